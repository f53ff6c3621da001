// Exercise cuda/06_two_dimensions: rows and columns.
//
// out[n, m] = x[m, n]. x has M rows of N elements, one row after the other in memory; out has N rows of M elements.
// Blocks have 32 x 8 threads. x counts the columns of x (n), y its rows (m).
#include "common.cuh"

__global__ void transpose_kernel(const float* x, float* out, int64_t M, int64_t N) {
    const int64_t m = int64_t(blockIdx.y) * blockDim.y + threadIdx.y;
    const int64_t n = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    // TODO: copy element (m, n) of x to element (n, m) of out, if there is such an element. Compute both offsets from
    // the length of a row.
    // END
}

extern "C" int transpose(const float* x, float* out, int64_t M, int64_t N, int64_t dtype, cudaStream_t stream,
                         LaunchRecord* record) {
    const dim3 block(32, 8), grid(unsigned(ceil_div<int64_t>(N, 32)), unsigned(ceil_div<int64_t>(M, 8)));
    record->set(grid, block);
    transpose_kernel<<<grid, block, 0, stream>>>(x, out, M, N);
    return cudaGetLastError();
}
