// Asynchronous copies to shared memory.
#include <cuda_pipeline.h>

#include "common.cuh"

// Each thread copies 16 bytes of the next row while the current row is summed. `waits` = 0 omits the wait.
__global__ void row_sums(const float* in, float* out, int rows, int waits) {
    __shared__ __align__(16) float buffer[2][128];
    const int t = threadIdx.x;
    __pipeline_memcpy_async(&buffer[0][t * 4], in + t * 4, 16);
    __pipeline_commit();
    for (int row = 0; row < rows; row++) {
        if (row + 1 < rows)
            __pipeline_memcpy_async(&buffer[(row + 1) % 2][t * 4], in + (row + 1) * 128 + t * 4, 16, t == 31 ? 8 : 0);
        __pipeline_commit();
        if (waits) __pipeline_wait_prior(1);
        __syncthreads();
        float sum = 0;
        for (int i = t; i < 128; i += 32) sum += buffer[row % 2][(i + 4) % 128];
        out[row * 32 + t] = sum;
        __syncthreads();
    }
}
extern "C" int sum_rows(const float* in, float* out, int64_t rows, int64_t waits, int64_t offset, cudaStream_t stream,
                        LaunchRecord* record) {
    record->set(1, 32);
    row_sums<<<1, 32, 0, stream>>>(in + offset, out, rows, waits);
    return cudaGetLastError();
}
