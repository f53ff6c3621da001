// out = a b, float32, row-major. A block computes a tile of 16 x 16, a thread one element. The first warp fills the
// tiles in shared memory, all warps read them.
#include "common.cuh"

enum Mistake {
    NONE,
    TAIL_TILE_NOT_CLEARED,
    BARRIER_MISSING,
    SUMS_IN_FLOAT16,
    LEADING_DIMENSION_OF_B,
    BLOCK_AXES_SWAPPED
};

constexpr int TILE = 16;

__global__ void multiply(const float* a, const float* b, float* out, int64_t M, int64_t N, int64_t K, int64_t mistake) {
    __shared__ float a_tile[TILE][TILE], b_tile[TILE][TILE];
    const bool swapped = mistake == BLOCK_AXES_SWAPPED;
    const int64_t tile_m = int64_t(swapped ? blockIdx.x : blockIdx.y) * TILE;
    const int64_t tile_n = int64_t(swapped ? blockIdx.y : blockIdx.x) * TILE;
    const int64_t b_row = mistake == LEADING_DIMENSION_OF_B ? K : N;
    const int thread = threadIdx.y * TILE + threadIdx.x;
    a_tile[threadIdx.y][threadIdx.x] = b_tile[threadIdx.y][threadIdx.x] = 0.0f;
    __syncthreads();
    float acc = 0.0f;
    for (int64_t k = 0; k < K; k += TILE) {
        for (int i = thread; thread < 32 && i < TILE * TILE; i += 32) {
            const int r = i / TILE, c = i % TILE;
            const bool a_there = tile_m + r < M && k + c < K, b_there = k + r < K && tile_n + c < N;
            const bool clear = mistake != TAIL_TILE_NOT_CLEARED;
            if (a_there || clear) a_tile[r][c] = a_there ? a[(tile_m + r) * K + k + c] : 0.0f;
            if (b_there || clear) b_tile[r][c] = b_there ? b[(k + r) * b_row + tile_n + c] : 0.0f;
        }
        if (mistake != BARRIER_MISSING) __syncthreads();
        for (int i = 0; i < TILE; ++i) {
            acc = fmaf(a_tile[threadIdx.y][i], b_tile[i][threadIdx.x], acc);
            if (mistake == SUMS_IN_FLOAT16) acc = to_float(from_float<__half>(acc));
        }
        __syncthreads();
    }
    const int64_t m = tile_m + threadIdx.y, n = tile_n + threadIdx.x;
    if (m < M && n < N) out[m * N + n] = acc;
}

extern "C" int matmul(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K, int64_t mistake,
                      cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(N, TILE)), unsigned(ceil_div<int64_t>(M, TILE))), block(TILE, TILE);
    record->set(grid, block);
    multiply<<<grid, block, 0, stream>>>(static_cast<const float*>(a), static_cast<const float*>(b),
                                         static_cast<float*>(out), M, N, K, mistake);
    return cudaGetLastError();
}
