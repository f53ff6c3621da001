// Exercise cuda/18_tiled_matmul: each loaded element is used 16 times.
//
// out = a b. A block of 16 x 16 threads computes a tile of 16 x 16 elements of out. In steps of 16 along K it copies a
// tile of a and one of b to shared memory, zeros where a or b ends, and adds their product.
#include "common.cuh"

constexpr int TILE = 16;

__global__ void matmul_kernel(const float* a, const float* b, float* out, int64_t M, int64_t K, int64_t N) {
    __shared__ float a_tile[TILE][TILE], b_tile[TILE][TILE];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int64_t m = int64_t(blockIdx.y) * TILE + ty, n = int64_t(blockIdx.x) * TILE + tx;
    float acc = 0.0f;
    for (int64_t first_k = 0; first_k < K; first_k += TILE) {
        a_tile[ty][tx] = m < M && first_k + tx < K ? a[m * K + first_k + tx] : 0.0f;
        b_tile[ty][tx] = n < N && first_k + ty < K ? b[(first_k + ty) * N + n] : 0.0f;
        // TODO: wait until both tiles are complete. Add the 16 products of this thread's element to acc: row ty of
        // a_tile times column tx of b_tile. Wait until no thread reads the tiles any more.
        // END
    }
    if (m < M && n < N) out[m * N + n] = acc;
}

extern "C" int matmul(const float* a, const float* b, float* out, int64_t M, int64_t K, int64_t N, int64_t dtype,
                      cudaStream_t stream, LaunchRecord* record) {
    const dim3 block(TILE, TILE), grid(unsigned(ceil_div<int64_t>(N, TILE)), unsigned(ceil_div<int64_t>(M, TILE)));
    record->set(grid, block);
    matmul_kernel<<<grid, block, 0, stream>>>(a, b, out, M, K, N);
    return cudaGetLastError();
}
