// Exercise cuda/21_double_buffer: copy the next tile during the arithmetic of this one.
//
// out[m] = sum of row m, in tiles of 256 elements; N is a multiple of 256. Copies from global to shared memory pass
// through no register and run by themselves: __pipeline_commit() ends a group of copies, and __pipeline_wait_prior(p)
// waits until at most the last p groups are under way. There are two buffers: one is summed while the other is filled.
#include "common.cuh"

#include <cuda_pipeline.h>

constexpr int THREADS = 64, TILE = 256;

__device__ void copy_tile(float* buffer, const float* row, int64_t tile) {
    __pipeline_memcpy_async(buffer + 4 * threadIdx.x, row + tile * TILE + 4 * threadIdx.x, 16);
}

__global__ void sum_kernel(const float* x, float* out, int64_t N) {
    __shared__ alignas(16) float buffers[2][TILE];
    __shared__ float sums[THREADS];
    const float* row = x + int64_t(blockIdx.x) * N;
    const int64_t tiles = N / TILE;
    float sum = 0.0f;
    copy_tile(buffers[0], row, 0);
    __pipeline_commit();
    for (int64_t tile = 0; tile < tiles; ++tile) {
        // TODO: if there is a next tile, begin to copy it to the other buffer. Commit in any case. Then wait until only
        // that last group may be under way, so that this tile has arrived.
        // END
        __syncthreads();  // the copies of all threads have arrived
        for (int i = threadIdx.x; i < TILE; i += THREADS) sum += buffers[tile % 2][i];
        __syncthreads();  // nobody reads this buffer any more
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < THREADS; ++i) sum += sums[i];
        out[blockIdx.x] = sum;
    }
}

extern "C" int row_sum(const float* x, float* out, int64_t M, int64_t N, int64_t dtype, cudaStream_t stream,
                       LaunchRecord* record) {
    const dim3 grid{unsigned(M)}, block(THREADS);
    record->set(grid, block);
    sum_kernel<<<grid, block, 0, stream>>>(x, out, N);
    return cudaGetLastError();
}
