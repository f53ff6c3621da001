// Exercise cuda/08_coalescing: neighbouring threads use neighbouring addresses.
//
// out[m, n] = 2 x[m, n]; x and out are row-major. The matrix is square, its sides are multiples of 32, and a block has
// 32 x 32 threads: m and n may come from x and y in either way, and the results are right in both. The check also counts
// the pieces of 32 bytes, the sectors, that the warps load and store.
#include "common.cuh"

__global__ void double_kernel(const float* x, float* out, int64_t N) {
    // TODO: declare `const int64_t m` and `const int64_t n`, the row and the column of this thread's element, so that
    // the 32 lanes of a warp, which differ in threadIdx.x, read one piece of a row.
    const int64_t m = blockIdx.y * blockDim.y + threadIdx.y;
    const int64_t n = blockIdx.x * blockDim.x + threadIdx.x;
    // END
    out[m * N + n] = 2.0f * x[m * N + n];
}

extern "C" int double_matrix(const float* x, float* out, int64_t M, int64_t N, int64_t dtype, cudaStream_t stream,
                             LaunchRecord* record) {
    const dim3 block(32, 32), grid(unsigned(N / 32), unsigned(M / 32));
    record->set(grid, block);
    double_kernel<<<grid, block, 0, stream>>>(x, out, N);
    return cudaGetLastError();
}
