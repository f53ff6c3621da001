// Exercise cuda/22_tensor_core: a warp multiplies tiles of 16 x 16.
//
// out = a b; a and b are float16, out is float32, all sizes are multiples of 16. One warp for each tile of out. A
// fragment is a tile that the lanes of a warp hold together.
#include "common.cuh"

#include <mma.h>

using namespace nvcuda;
constexpr int TILE = 16;

__global__ void matmul_kernel(const __half* a, const __half* b, float* out, int64_t K, int64_t N) {
    const int64_t m = int64_t(blockIdx.y) * TILE, n = int64_t(blockIdx.x) * TILE;
    wmma::fragment<wmma::matrix_a, TILE, TILE, TILE, __half, wmma::row_major> a_tile;
    wmma::fragment<wmma::matrix_b, TILE, TILE, TILE, __half, wmma::row_major> b_tile;
    wmma::fragment<wmma::accumulator, TILE, TILE, TILE, float> acc;
    wmma::fill_fragment(acc, 0.0f);
    for (int64_t k = 0; k < K; k += TILE) {
        // TODO: load the tile of a at (m, k) and that of b at (k, n), and add their product to acc:
        // wmma::load_matrix_sync(tile, address of its first element, elements from row to row), and
        // wmma::mma_sync(acc, a_tile, b_tile, acc).
        // END
    }
    wmma::store_matrix_sync(out + m * N + n, acc, unsigned(N), wmma::mem_row_major);
}

extern "C" int matmul_half(const __half* a, const __half* b, float* out, int64_t M, int64_t K, int64_t N, int64_t dtype,
                           cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(N / TILE), unsigned(M / TILE)), block(32);
    record->set(grid, block);
    matmul_kernel<<<grid, block, 0, stream>>>(a, b, out, K, N);
    return cudaGetLastError();
}
