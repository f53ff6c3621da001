// out[m, n] = sigma(sum over k of x[m, k] * weight[n, k] + bias[n]); any strides of x and weight; out is row-major
//
// A block of 32 x 8 threads computes a tile of 32 x 32 elements of out, a thread four of them, 8 rows apart: the product
// is that of matmul_tiled.cu. What this adds is the end: the thread that holds a sum adds the bias, computes the
// sigmoid, and only then rounds and stores. A second kernel would read and write all M N elements once more, and would
// see sums rounded to 16 bits.
//
// With dy, the same kernel stores what the backward pass needs of the forward one, dz = dy s (1 - s).
#include "matmul_common.cuh"
#include "sigmoid.cuh"

constexpr int TILE = 32;         // rows and columns of every tile; the lanes of a warp
constexpr int THREAD_ROWS = 8;   // rows of threads in a block
constexpr int STEPS = TILE / THREAD_ROWS;  // outputs of a thread, and elements of a tile that it copies

// Copies the tile from (row0, k0) on; the lanes of a warp copy neighbours along k if these follow each other in memory.
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

template <typename T, bool TF32>
__global__ void __launch_bounds__(TILE* THREAD_ROWS)
    linear_sigmoid(const StridedOperand<T> x, const StridedOperand<T> weight, const T* __restrict__ bias,
                   int64_t bias_stride, const T* __restrict__ dy, int64_t dy_stride_m, int64_t dy_stride_n,
                   T* __restrict__ out, int64_t K) {
    __shared__ float x_tile[TILE][TILE + 1];       // [m][k]
    __shared__ float weight_tile[TILE][TILE + 1];  // [n][k]
    const int64_t M = x.size, N = weight.size, tiles_n = ceil_div<int64_t>(N, TILE);
    const int64_t tile_m = blockIdx.x / tiles_n * TILE, tile_n = blockIdx.x % tiles_n * TILE;
    const int tx = threadIdx.x, ty = threadIdx.y;
    float acc[STEPS] = {};
    for (int64_t tile_k = 0; tile_k < K; tile_k += TILE) {
        load_tile<T, TF32>(x_tile, x, K, tile_m, tile_k);
        load_tile<T, TF32>(weight_tile, weight, K, tile_n, tile_k);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TILE; ++k) {
            const float w = weight_tile[tx][k];
#pragma unroll
            for (int i = 0; i < STEPS; ++i) acc[i] = fmaf(x_tile[ty + i * THREAD_ROWS][k], w, acc[i]);
        }
        __syncthreads();  // before the tiles are overwritten
    }
    const int64_t n = tile_n + tx;
    if (n >= N) return;
    const float b = to_float(bias[n * bias_stride]);
#pragma unroll
    for (int i = 0; i < STEPS; ++i) {
        const int64_t m = tile_m + ty + i * THREAD_ROWS;
        if (m >= M) continue;
        const float s = sigmoid_for<T>(acc[i] + b);
        const float result = dy == nullptr ? s : to_float(dy[m * dy_stride_m + n * dy_stride_n]) * (s * (1.0f - s));
        out[m * N + n] = from_float<T>(result);
    }
}

// dy may be null.
extern "C" int linear_sigmoid(const void* x, const void* weight, const void* bias, const void* dy, void* out, int64_t M,
                              int64_t N, int64_t K, int64_t stride_xm, int64_t stride_xk, int64_t stride_wn,
                              int64_t stride_wk, int64_t bias_stride, int64_t dy_stride_m, int64_t dy_stride_n,
                              int64_t tf32, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    // The x dimension of a grid is limited to 2^31 - 1, an output of 2 * 10^12 elements.
    const dim3 grid(unsigned(ceil_div<int64_t>(M, TILE) * ceil_div<int64_t>(N, TILE))), block(TILE, THREAD_ROWS);
    record->set(grid, block);
    return by_precision(dtype, tf32, [&](auto zero, auto rounded) {
        using T = decltype(zero);
        linear_sigmoid<T, decltype(rounded)::value><<<grid, block, 0, stream>>>(
            strided_operand<T>(x, M, stride_xm, stride_xk), strided_operand<T>(weight, N, stride_wn, stride_wk),
            static_cast<const T*>(bias), bias_stride, static_cast<const T*>(dy), dy_stride_m, dy_stride_n,
            static_cast<T*>(out), K);
    });
}
