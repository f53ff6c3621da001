// Exercise cuda/19_register_tile: several outputs of a thread.
//
// out = a b, with tiles of 32 x 32 in shared memory. A block has 32 x 8 threads, and a thread computes four elements of
// out, 8 rows apart, in registers: it reads an element of b_tile once and uses it four times.
#include "common.cuh"

constexpr int TILE = 32, ROWS = 8, OUTPUTS = TILE / ROWS;

__global__ void matmul_kernel(const float* a, const float* b, float* out, int64_t M, int64_t K, int64_t N) {
    __shared__ float a_tile[TILE][TILE], b_tile[TILE][TILE];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int64_t first_m = int64_t(blockIdx.y) * TILE, n = int64_t(blockIdx.x) * TILE + tx;
    float acc[OUTPUTS] = {};
    for (int64_t first_k = 0; first_k < K; first_k += TILE) {
        for (int row = ty; row < TILE; row += ROWS) {
            const int64_t m = first_m + row;
            a_tile[row][tx] = m < M && first_k + tx < K ? a[m * K + first_k + tx] : 0.0f;
            b_tile[row][tx] = n < N && first_k + row < K ? b[(first_k + row) * N + n] : 0.0f;
        }
        __syncthreads();
        for (int k = 0; k < TILE; ++k) {
            const float b_kn = b_tile[k][tx];
            // TODO: add the product with b_kn to each acc[i]. Output i belongs to row ty + i * ROWS of the tile.
            // END
        }
        __syncthreads();
    }
    for (int i = 0; i < OUTPUTS; ++i) {
        const int64_t m = first_m + ty + i * ROWS;
        if (m < M && n < N) out[m * N + n] = acc[i];
    }
}

extern "C" int matmul(const float* a, const float* b, float* out, int64_t M, int64_t K, int64_t N, int64_t dtype,
                      cudaStream_t stream, LaunchRecord* record) {
    const dim3 block(TILE, ROWS), grid(unsigned(ceil_div<int64_t>(N, TILE)), unsigned(ceil_div<int64_t>(M, TILE)));
    record->set(grid, block);
    matmul_kernel<<<grid, block, 0, stream>>>(a, b, out, M, K, N);
    return cudaGetLastError();
}
