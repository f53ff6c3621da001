// Exercise cuda/13_prefix_sum: all partial sums in a few steps.
//
// out[m, n] = x[m, 0] + ... + x[m, n], for rows of at most 1024 elements; one block for a row. After the step with
// distance d, place n holds the sum of the 2 d elements that end there.
#include "common.cuh"

__global__ void prefix_sum_kernel(const float* x, float* out, int N) {
    __shared__ float sums[1024];
    const int n = threadIdx.x;
    const int64_t begin = int64_t(blockIdx.x) * N;
    sums[n] = x[begin + n];
    __syncthreads();
    for (int distance = 1; distance < N; distance *= 2) {
        // TODO: add the sum that stands `distance` places before to this thread's, if there is one. All threads must
        // have read before any thread writes, and all must have written before the next step reads: two barriers.
        const float before = n >= distance ? sums[n - distance] : 0.0f;
        __syncthreads();
        sums[n] += before;
        __syncthreads();
        // END
    }
    out[begin + n] = sums[n];
}

extern "C" int prefix_sum(const float* x, float* out, int64_t M, int64_t N, int64_t dtype, cudaStream_t stream,
                          LaunchRecord* record) {
    const dim3 grid{unsigned(M)}, block{unsigned(N)};
    record->set(grid, block);
    prefix_sum_kernel<<<grid, block, 0, stream>>>(x, out, int(N));
    return cudaGetLastError();
}
