// Exercise cuda/10_tree_sum: a reduction in shared memory.
//
// out[m] = sum of row m. A block of 256 threads adds one row. First each thread adds every 256th element; then half of
// the threads add the sums of the other half, then a quarter, until one sum is left.
#include "common.cuh"

constexpr int THREADS = 256;

__global__ void sum_kernel(const float* x, float* out, int64_t N) {
    __shared__ float sums[THREADS];
    const float* row = x + int64_t(blockIdx.x) * N;
    float sum = 0.0f;
    for (int64_t n = threadIdx.x; n < N; n += THREADS) sum += row[n];
    sums[threadIdx.x] = sum;
    __syncthreads();
    // TODO: the loop over half = 128, 64, ..., 1. In each pass threads below `half` add the sum that stands `half`
    // places after their own. Then all threads wait, so that the next pass reads complete sums.
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    // END
    if (threadIdx.x == 0) out[blockIdx.x] = sums[0];
}

extern "C" int row_sum(const float* x, float* out, int64_t M, int64_t N, int64_t dtype, cudaStream_t stream,
                       LaunchRecord* record) {
    const dim3 grid{unsigned(M)}, block(THREADS);
    record->set(grid, block);
    sum_kernel<<<grid, block, 0, stream>>>(x, out, N);
    return cudaGetLastError();
}
