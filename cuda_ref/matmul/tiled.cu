// out[m, n] = sum over k of a[m, k] * b[k, n], for any strides of a and b; out is row-major
//
// A block of 32 x 8 threads computes a tile of 32 x 32 elements of out, a thread four of them, 8 rows apart.
//
// Adds tiles in shared memory to matmul.cu. In steps of 32 along K the block copies a 32 x 32 tile of a and one of b,
// each element once, and uses each element 32 times: global memory is read 32 times less. The lanes of a warp copy
// along the dimension with the smaller stride, so that they read neighbours in any layout. A thread uses an element of
// b for four products. Elements are widened to float32, or rounded to tf32, once, when they are copied.
//
// The rows of a tile are 33 floats apart: both along a row and down a column, the lanes access 32 different banks. In
// the inner loop they read 32 neighbours of b, and one element of a, which is broadcast.
// Elements outside a or b are zeros in the tiles; results outside out are not stored.
//
// Precision: as in matmul.cu, and the sum has the same order, so the results are bitwise the same.
//
// Source: "CUDA C++ Programming Guide", section "Shared Memory"; several outputs a thread: V. Volkov, J. Demmel,
// "Benchmarking GPUs to Tune Dense Linear Algebra", SC 2008.
#include "matmul/operands.cuh"

constexpr int TILE = 32;         // rows and columns of every tile; the lanes of a warp
constexpr int THREAD_ROWS = 8;   // rows of threads in a block
constexpr int STEPS = TILE / THREAD_ROWS;  // outputs of a thread, and elements of a tile that it copies

// Copies the tile that starts at (row0, col0) of a matrix of `rows` x `cols`.
template <typename T, bool TF32>
__device__ __forceinline__ void load_tile(float (&tile)[TILE][TILE + 1], const T* __restrict__ matrix, int64_t rows,
                                          int64_t cols, int64_t row0, int64_t col0, int64_t stride_row,
                                          int64_t stride_col) {
    const bool lanes_along_row = stride_col <= stride_row;
#pragma unroll
    for (int i = 0; i < STEPS; ++i) {
        const int along = threadIdx.x, across = threadIdx.y + i * THREAD_ROWS;
        const int r = lanes_along_row ? across : along, c = lanes_along_row ? along : across;
        float x = 0.0f;
        if (row0 + r < rows && col0 + c < cols) x = to_float(matrix[(row0 + r) * stride_row + (col0 + c) * stride_col]);
        tile[r][c] = TF32 ? round_to_tf32(x) : x;
    }
}

template <typename T, bool TF32>
__global__ void __launch_bounds__(TILE* THREAD_ROWS)
    matmul_tiled(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ out, int64_t M, int64_t N, int64_t K,
                 int64_t stride_am, int64_t stride_ak, int64_t stride_bk, int64_t stride_bn) {
    __shared__ float a_tile[TILE][TILE + 1];  // [m][k]
    __shared__ float b_tile[TILE][TILE + 1];  // [k][n]
    const int64_t tiles_n = ceil_div<int64_t>(N, TILE);
    const int64_t tile_m = blockIdx.x / tiles_n * TILE, tile_n = blockIdx.x % tiles_n * TILE;
    const int tx = threadIdx.x, ty = threadIdx.y;
    float acc[STEPS] = {};
    for (int64_t tile_k = 0; tile_k < K; tile_k += TILE) {
        load_tile<T, TF32>(a_tile, a, M, K, tile_m, tile_k, stride_am, stride_ak);
        load_tile<T, TF32>(b_tile, b, K, N, tile_k, tile_n, stride_bk, stride_bn);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TILE; ++k) {
            const float b_kn = b_tile[k][tx];
#pragma unroll
            for (int i = 0; i < STEPS; ++i) acc[i] = fmaf(a_tile[ty + i * THREAD_ROWS][k], b_kn, acc[i]);
        }
        __syncthreads();  // before the tiles are overwritten
    }
#pragma unroll
    for (int i = 0; i < STEPS; ++i) {
        const int64_t m = tile_m + ty + i * THREAD_ROWS, n = tile_n + tx;
        if (m < M && n < N) out[m * N + n] = from_float<T>(acc[i]);
    }
}

extern "C" int matmul_tiled(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K, int64_t stride_am,
                            int64_t stride_ak, int64_t stride_bk, int64_t stride_bn, int64_t tf32, int64_t dtype,
                            cudaStream_t stream, LaunchRecord* record) {
    // The x dimension of a grid is limited to 2^31 - 1, an output of 2 * 10^12 elements.
    const dim3 grid(unsigned(ceil_div<int64_t>(M, TILE) * ceil_div<int64_t>(N, TILE))), block(TILE, THREAD_ROWS);
    record->set(grid, block);
    return by_precision(dtype, tf32, [&](auto zero, auto rounded) {
        using T = decltype(zero);
        matmul_tiled<T, decltype(rounded)::value>
            <<<grid, block, 0, stream>>>(static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(out), M, N,
                                         K, stride_am, stride_ak, stride_bk, stride_bn);
    });
}
