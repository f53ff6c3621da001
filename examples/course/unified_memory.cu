// Memory that both sides use by one pointer: pages move to the side that touches them, and the first touch pays.
#include "measure.h"

__global__ void scale(float* x, int64_t count) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) x[i] = 2.0f * x[i];
}

// Time of one pass over x on the device, in microseconds.
double pass(float* x, int64_t count) {
    cudaEvent_t begin, end;
    check(cudaEventCreate(&begin), "cudaEventCreate");
    check(cudaEventCreate(&end), "cudaEventCreate");
    check(cudaEventRecord(begin), "cudaEventRecord");
    scale<<<unsigned((count + 255) / 256), 256>>>(x, count);
    check(cudaGetLastError(), "launch");
    check(cudaEventRecord(end), "cudaEventRecord");
    check(cudaEventSynchronize(end), "kernel");
    float ms = 0.0f;
    check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    return 1000.0 * ms;
}

int main() {
    const int64_t count = emulated() ? 1 << 12 : 1 << 26;
    float *managed, *device = device_floats(count);
    check(cudaMallocManaged(&managed, count * sizeof(float)), "cudaMallocManaged");
    pass(device, count);  // loads the kernel
    printf("%-52s %12s\n", "one pass over the array", "us");
    for (int64_t i = 0; i < count; ++i) managed[i] = 1.0f;  // the pages are on the host
    printf("%-52s %12.0f\n", "managed, after the host has written it", pass(managed, count));
    printf("%-52s %12.0f\n", "managed, again: the pages are on the device", pass(managed, count));
    printf("%-52s %12.0f\n", "memory of cudaMalloc", pass(device, count));
    const double us =
        microseconds([&] { cudaMemcpy(device, managed, count * sizeof(float), cudaMemcpyDeviceToDevice); }, 3);
    printf("%-52s %12.0f\n", "copy of the same size within the device", us);
    int wrong = 0;
    for (int64_t i = 0; i < count; ++i) wrong += managed[i] != 4.0f;  // the pages move back
    printf("%d of %ld elements are wrong\n", wrong, long(count));
    return wrong != 0;
}
