// out[i, j] = (x[i, j] - mean_i) / sqrt(variance_i + eps) * weight[j] + bias[j], mean_i and variance_i of row i
//
// One warp computes one row, in float32, and reads it three times: for the mean, for the variance and for the result. A
// lane takes every 32nd column, so that the lanes read neighbours. The variance is the mean of (x - mean)^2. Computing
// it as the mean of x^2 minus the squared mean would save a pass, but cancels if the mean is large. registers.cu reads
// 16 bytes per lane and keeps the row.
//
// Source: J. Ba, J. Kiros, G. Hinton, "Layer Normalization", 2016 (arXiv 1607.06450).
#include "common/warp.cuh"

constexpr int ROWS = 4;  // rows per block, one per warp

template <typename T>
__global__ void __launch_bounds__(WARP* ROWS)
    layer_norm_naive(const T* x, const T* weight, const T* bias, T* out, int64_t m, int64_t n, int64_t stride_m,
                     int64_t stride_n, double eps) {
    const int64_t row = int64_t(blockIdx.x) * ROWS + threadIdx.y;
    if (row >= m) return;  // true for all lanes of the warp
    x += row * stride_m;
    out += row * n;
    using W = Working<T>;

    W sum = 0;
    for (int64_t j = threadIdx.x; j < n; j += WARP) sum += to_working(x[j * stride_n]);
    const W mean = over_warp(sum, Addition()) / n;

    W squares = 0;
    for (int64_t j = threadIdx.x; j < n; j += WARP) {
        const W v = to_working(x[j * stride_n]);
        squares += (v - mean) * (v - mean);
    }
    const W scale = rsqrt(over_warp(squares, Addition()) / n + W(eps));

    for (int64_t j = threadIdx.x; j < n; j += WARP) {
        out[j] = from_working<T>((to_working(x[j * stride_n]) - mean) * scale * to_working(weight[j]) + to_working(bias[j]));
    }
}

extern "C" int layer_norm(const void* x, const void* weight, const void* bias, void* out, int64_t m, int64_t n,
                          int64_t stride_m, int64_t stride_n, double eps, int64_t dtype, cudaStream_t stream,
                          LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(m, ROWS))), block(WARP, ROWS);
    record->set(grid, block);
    return by_dtype_or_double(dtype, [&](auto zero) {
        using T = decltype(zero);
        layer_norm_naive<T><<<grid, block, 0, stream>>>(static_cast<const T*>(x), static_cast<const T*>(weight),
                                                        static_cast<const T*>(bias), static_cast<T*>(out), m, n,
                                                        stride_m, stride_n, eps);
    });
}
