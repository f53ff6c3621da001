// out[i, j] = x[i, j] * weight[j] / sqrt(mean over k of x[i, k]^2 + eps)
//
// One warp computes one row, in float32, and reads it twice: for the mean of the squares and for the result. A lane
// takes every 32nd column, so that the lanes read neighbours. registers.cu reads 16 bytes per lane and keeps the row.
//
// Source: B. Zhang, R. Sennrich, "Root Mean Square Layer Normalization", 2019 (arXiv 1910.07467).
#include "common/warp.cuh"

constexpr int ROWS = 4;  // rows per block, one per warp

template <typename T>
__global__ void __launch_bounds__(WARP* ROWS)
    rms_norm_naive(const T* x, const T* weight, T* out, int64_t m, int64_t n, int64_t stride_m, int64_t stride_n,
                   double eps) {
    const int64_t row = int64_t(blockIdx.x) * ROWS + threadIdx.y;
    if (row >= m) return;  // true for all lanes of the warp
    x += row * stride_m;
    out += row * n;
    using W = Working<T>;

    W squares = 0;
    for (int64_t j = threadIdx.x; j < n; j += WARP) {
        const W v = to_working(x[j * stride_n]);
        squares += v * v;
    }
    const W scale = rsqrt(over_warp(squares, Addition()) / n + W(eps));

    for (int64_t j = threadIdx.x; j < n; j += WARP) {
        out[j] = from_working<T>(to_working(x[j * stride_n]) * scale * to_working(weight[j]));
    }
}

extern "C" int rms_norm(const void* x, const void* weight, void* out, int64_t m, int64_t n, int64_t stride_m,
                        int64_t stride_n, double eps, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(m, ROWS))), block(WARP, ROWS);
    record->set(grid, block);
    return by_dtype_or_double(dtype, [&](auto zero) {
        using T = decltype(zero);
        rms_norm_naive<T><<<grid, block, 0, stream>>>(static_cast<const T*>(x), static_cast<const T*>(weight),
                                                      static_cast<T*>(out), m, n, stride_m, stride_n, eps);
    });
}
