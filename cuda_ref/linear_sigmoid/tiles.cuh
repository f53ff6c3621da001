// The product of matmul/tiled.cu for a and b^T (rows times rows), with a function applied before the store.
#pragma once

#include "matmul/operands.cuh"
#include "common/sigmoid.cuh"

constexpr int TILE = 32;                   // rows and columns of every tile; the lanes of a warp
constexpr int THREAD_ROWS = 8;             // rows of threads in a block
constexpr int STEPS = TILE / THREAD_ROWS;  // outputs of a thread, and elements of a tile that it copies

// Copies the tile from (row0, k0) on. The lanes of a warp copy along k if neighbours along k are adjacent in memory.
template <typename T, bool TF32>
__device__ __forceinline__ void load_tile(float (&tile)[TILE][TILE + 1], const StridedOperand<T>& x, int64_t K,
                                          int64_t row0, int64_t k0) {
#pragma unroll
    for (int i = 0; i < STEPS; ++i) {
        const int along = threadIdx.x, across = threadIdx.y + i * THREAD_ROWS;
        const int r = x.along_k ? across : along, k = x.along_k ? along : across;
        const bool inside = row0 + r < x.size && k0 + k < K;
        tile[r][k] = inside ? factor<T, TF32>(x.data[(row0 + r) * x.stride_x + (k0 + k) * x.stride_k]) : 0.0f;
    }
}

// out[m, n] = finish(sum over k of a[m, k] * b[n, k], m, n)
template <typename T, bool TF32, typename Finish>
__global__ void __launch_bounds__(TILE* THREAD_ROWS)
    tiled_product(const StridedOperand<T> a, const StridedOperand<T> b, T* __restrict__ out, int64_t K,
                  const Finish finish) {
    __shared__ float a_tile[TILE][TILE + 1];  // [m][k]
    __shared__ float b_tile[TILE][TILE + 1];  // [n][k]
    const int64_t M = a.size, N = b.size, tiles_n = ceil_div<int64_t>(N, TILE);
    const int64_t tile_m = blockIdx.x / tiles_n * TILE, tile_n = blockIdx.x % tiles_n * TILE;
    const int tx = threadIdx.x, ty = threadIdx.y;
    float acc[STEPS] = {};
    for (int64_t tile_k = 0; tile_k < K; tile_k += TILE) {
        load_tile<T, TF32>(a_tile, a, K, tile_m, tile_k);
        load_tile<T, TF32>(b_tile, b, K, tile_n, tile_k);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TILE; ++k) {
            const float b_nk = b_tile[tx][k];
#pragma unroll
            for (int i = 0; i < STEPS; ++i) acc[i] = fmaf(a_tile[ty + i * THREAD_ROWS][k], b_nk, acc[i]);
        }
        __syncthreads();  // before the tiles are overwritten
    }
#pragma unroll
    for (int i = 0; i < STEPS; ++i) {
        const int64_t m = tile_m + ty + i * THREAD_ROWS, n = tile_n + tx;
        if (m < M && n < N) out[m * N + n] = from_float<T>(finish(acc[i], m, n));
    }
}

// Launches nothing for an empty out.
template <typename T, bool TF32, typename Finish>
void launch_product(const StridedOperand<T>& a, const StridedOperand<T>& b, void* out, int64_t K, const Finish& finish,
                    cudaStream_t stream, LaunchRecord* record) {
    if (a.size == 0 || b.size == 0) return;
    // The x dimension of a grid is limited to 2^31 - 1, an output of 2 * 10^12 elements.
    const dim3 grid(unsigned(ceil_div<int64_t>(a.size, TILE) * ceil_div<int64_t>(b.size, TILE)));
    const dim3 block(TILE, THREAD_ROWS);
    record->set(grid, block);
    tiled_product<T, TF32, Finish><<<grid, block, 0, stream>>>(a, b, static_cast<T*>(out), K, finish);
}

template <typename T>
struct BiasSigmoid {
    const T* bias;
    int64_t stride;

    __device__ __forceinline__ float operator()(float sum, int64_t, int64_t n) const {
        return sigmoid_for<T>(sum + to_float(bias[n * stride]));
    }
};
