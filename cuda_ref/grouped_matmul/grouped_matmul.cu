// out[t, n] = sum over k of x[t, k] * weight[e, k, n], where row t is among the sizes[e] rows of expert e
//
// One block computes 16 rows of one expert and 64 columns; one thread computes one element, as in matmul/matmul.cu. Rows
// of different experts need different weights, so the tiles of an expert begin at its first row, and its last tile may
// be partly empty: the rows after it belong to the next expert.
//
// A block finds its expert by itself: it counts the tiles of one expert after the other until it comes to its own. The
// host therefore does not read the sizes. It launches as many rows of blocks as there may be tiles: T / 16 full ones,
// and one for each expert that is not full. Blocks without a tile end at once.
//
// Precision. Products of 16-bit inputs are exact in float32. Sums are float32, in order of k, rounded once at the end.
//
// wgmma.cu adds tensor cores and persistent blocks.
#include <algorithm>

#include "common/common.cuh"

constexpr int BLOCK_M = 16;
constexpr int BLOCK_N = 64;
constexpr int64_t MAX_GRID_Y = 65535;

// The rows of a tile: from m on, before `end`, where the rows of the next expert begin.
struct Rows {
    int64_t expert, m, end;
};

__device__ Rows find_rows(const int* sizes, int64_t stride, int64_t experts, int64_t tile) {
    int64_t start = 0;
    for (int64_t e = 0; e < experts; ++e) {
        const int64_t size = sizes[e * stride], tiles = ceil_div<int64_t>(size, BLOCK_M);
        if (tile < tiles) return {e, start + tile * BLOCK_M, start + size};
        tile -= tiles;  // an expert without rows has no tiles
        start += size;
    }
    return {experts, start, start};  // all tiles belong to other blocks
}

template <typename T>
__global__ void __launch_bounds__(BLOCK_M* BLOCK_N)
    grouped_matmul_naive(const T* __restrict__ x, const T* __restrict__ weight, const int* __restrict__ sizes,
                         T* __restrict__ out, int64_t E, int64_t K, int64_t N, int64_t stride_xt, int64_t stride_xk,
                         int64_t stride_we, int64_t stride_wk, int64_t stride_wn, int64_t stride_sizes) {
    const int64_t n = int64_t(blockIdx.x) * BLOCK_N + threadIdx.x;
    // The y dimension of a grid is limited to 65535: more tiles take several steps.
    for (int64_t tile = blockIdx.y;; tile += gridDim.y) {
        const Rows rows = find_rows(sizes, stride_sizes, E, tile);
        if (rows.expert == E) return;
        const int64_t t = rows.m + threadIdx.y;
        if (t >= rows.end || n >= N) continue;
        const T* x_tk = x + t * stride_xt;
        const T* weight_kn = weight + rows.expert * stride_we + n * stride_wn;
        float acc = 0.0f;
        for (int64_t k = 0; k < K; ++k) {
            acc = fmaf(to_float(*x_tk), to_float(*weight_kn), acc);
            x_tk += stride_xk;
            weight_kn += stride_wk;
        }
        out[t * N + n] = from_float<T>(acc);
    }
}

extern "C" int grouped_matmul(const void* x, const void* weight, const void* sizes, void* out, int64_t T, int64_t E,
                              int64_t K, int64_t N, int64_t stride_xt, int64_t stride_xk, int64_t stride_we,
                              int64_t stride_wk, int64_t stride_wn, int64_t stride_sizes, int64_t dtype,
                              cudaStream_t stream, LaunchRecord* record) {
    const dim3 block(BLOCK_N, BLOCK_M);
    const int64_t tiles = T / BLOCK_M + std::min(T, E);
    const dim3 grid(unsigned(ceil_div<int64_t>(N, BLOCK_N)), unsigned(std::min(tiles, MAX_GRID_Y)));
    record->set(grid, block);
    return by_dtype(dtype, [&](auto zero) {
        using Element = decltype(zero);
        grouped_matmul_naive<Element><<<grid, block, 0, stream>>>(
            static_cast<const Element*>(x), static_cast<const Element*>(weight), static_cast<const int*>(sizes),
            static_cast<Element*>(out), E, K, N, stride_xt, stride_xk, stride_we, stride_wk, stride_wn, stride_sizes);
    });
}
