// Exercise cuda/11_warp_sum: lanes of a warp exchange registers.
//
// out[m] = sum of row m. One warp adds one row. Its lanes add without shared memory and without a barrier:
// __shfl_down_sync(0xffffffff, value, d) gives each lane the value of the lane that is d further.
#include "common.cuh"

__global__ void sum_kernel(const float* x, float* out, int64_t N) {
    const float* row = x + int64_t(blockIdx.x) * N;
    float sum = 0.0f;
    for (int64_t n = threadIdx.x; n < N; n += 32) sum += row[n];
    // TODO: add the sums of all 32 lanes, so that lane 0 has the total: five shuffles, at distances 16, 8, 4, 2, 1.
    // END
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

extern "C" int row_sum(const float* x, float* out, int64_t M, int64_t N, int64_t dtype, cudaStream_t stream,
                       LaunchRecord* record) {
    const dim3 grid{unsigned(M)}, block(32);
    record->set(grid, block);
    sum_kernel<<<grid, block, 0, stream>>>(x, out, N);
    return cudaGetLastError();
}
