// out[m, n] = a[m, n] + b[m, n], for any strides of a and b; out is row-major
//
// One thread adds one element, in float32, in each step of a loop over rows. The lanes of a warp have neighbouring n.
// In a row-major operand they read neighbours; in a transposed one they read one element of each of 32 columns, and the
// memory delivers 32 bytes for each. tiles.cu reads each operand along its contiguous dimension.
//
// Source: the definition. The loop: M. Harris, "CUDA Pro Tip: Write Flexible Kernels with Grid-Stride Loops", 2013.
#include <algorithm>

#include "common/common.cuh"

constexpr int BLOCK_M = 8, BLOCK_N = 32;  // threads along m and along n
constexpr int64_t MAX_GRID_Y = 65535;     // blocks; the x dimension has 2^31 - 1

template <typename T>
__global__ void __launch_bounds__(BLOCK_M* BLOCK_N)
    matrix_add_naive(const T* a, const T* b, T* out, int64_t M, int64_t N, int64_t stride_am, int64_t stride_an,
                     int64_t stride_bm, int64_t stride_bn) {
    const int64_t n = int64_t(blockIdx.x) * BLOCK_N + threadIdx.x;
    if (n >= N) return;
    for (int64_t m = int64_t(blockIdx.y) * BLOCK_M + threadIdx.y; m < M; m += int64_t(gridDim.y) * BLOCK_M) {
        const Working<T> x = to_working(a[m * stride_am + n * stride_an]);
        const Working<T> y = to_working(b[m * stride_bm + n * stride_bn]);
        out[m * N + n] = from_working<T>(x + y);
    }
}

extern "C" int matrix_add(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t stride_am,
                          int64_t stride_an, int64_t stride_bm, int64_t stride_bn, int64_t dtype, cudaStream_t stream,
                          LaunchRecord* record) {
    const int64_t blocks_m = std::min(ceil_div<int64_t>(M, BLOCK_M), MAX_GRID_Y);
    const dim3 grid(unsigned(ceil_div<int64_t>(N, BLOCK_N)), unsigned(blocks_m)), block(BLOCK_N, BLOCK_M);
    record->set(grid, block);
    return by_dtype_or_double(dtype, [&](auto zero) {
        using T = decltype(zero);
        matrix_add_naive<T><<<grid, block, 0, stream>>>(static_cast<const T*>(a), static_cast<const T*>(b),
                                                        static_cast<T*>(out), M, N, stride_am, stride_an, stride_bm,
                                                        stride_bn);
    });
}
