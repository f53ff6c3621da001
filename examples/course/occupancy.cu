// Fewer resident warps hide less latency. Shared memory that a block asks for, and does not use, limits their number.
#include "measure.h"

__global__ void copy(const float* x, float* out, int64_t count) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) out[i] = x[i];
}

int main() {
    const int64_t count = emulated() ? 1 << 12 : 1 << 27;
    constexpr int threads = 256;
    float *x = device_floats(count), *out = device_floats(count);
    int most = 0, limit = 0;
    check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxThreadsPerMultiProcessor, 0), "attribute");
    check(cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0), "attribute");
    check(cudaFuncSetAttribute(copy, cudaFuncAttributeMaxDynamicSharedMemorySize, limit), "attribute");
    printf("%-18s %14s %12s %12s\n", "shared memory, KB", "occupancy, %", "us", "GB/s");
    for (const int kilobytes : {0, 28, 56, 112, 220}) {
        const size_t bytes = size_t(kilobytes) * 1024;
        int blocks = 0;
        check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, copy, threads, bytes), "occupancy");
        const double us = microseconds(
            [&] { copy<<<unsigned((count + threads - 1) / threads), threads, bytes>>>(x, out, count); });
        printf("%-18d %14.0f %12.1f %12.0f\n", kilobytes, 100.0 * blocks * threads / most, us,
               us > 0 ? 8e-3 * count / us : 0.0);
    }
    return 0;
}
