// Exercise cuda/09_shared_memory: threads of a block exchange values.
//
// out[m, n] = x[m, N - 1 - n], for rows of at most 1024 elements. A block reverses one row: each thread puts its
// element into shared memory, and takes the element of another thread.
#include "common.cuh"

__global__ void reverse_kernel(const float* x, float* out, int64_t N) {
    __shared__ float row[1024];
    const int n = threadIdx.x;
    const int64_t begin = int64_t(blockIdx.x) * N;
    row[n] = x[begin + n];
    // TODO: wait until all threads of the block have put their element, then write element n of out from `row`.
    __syncthreads();
    out[begin + n] = row[N - 1 - n];
    // END
}

extern "C" int reverse_rows(const float* x, float* out, int64_t M, int64_t N, int64_t dtype, cudaStream_t stream,
                            LaunchRecord* record) {
    const dim3 grid{unsigned(M)}, block{unsigned(N)};
    record->set(grid, block);
    reverse_kernel<<<grid, block, 0, stream>>>(x, out, N);
    return cudaGetLastError();
}
