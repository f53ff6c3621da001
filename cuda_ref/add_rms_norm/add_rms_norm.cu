// r[i, j] = x[i, j] + residual[i, j], y[i, j] = r[i, j] * weight[j] / sqrt(mean over k of r[i, k]^2 + eps)
//
// One warp computes one row, in float32, as in rms_norm.cu: it reads x and the residual twice, for the mean of the
// squares and for the results. registers.cu reads 16 bytes per lane and keeps the sum.
#include "common/warp.cuh"

constexpr int ROWS = 4;  // rows per block, one per warp

template <typename T>
__global__ void __launch_bounds__(WARP* ROWS)
    add_rms_norm_naive(const T* x, const T* residual, const T* weight, T* y, T* r, int64_t m, int64_t n, int64_t x_m,
                       int64_t x_n, int64_t residual_m, int64_t residual_n, float eps) {
    const int64_t row = int64_t(blockIdx.x) * ROWS + threadIdx.y;
    if (row >= m) return;  // true for all lanes of the warp
    const auto sum = [&](int64_t j) {
        return to_float(x[row * x_m + j * x_n]) + to_float(residual[row * residual_m + j * residual_n]);
    };
    float squares = 0.0f;
    for (int64_t j = threadIdx.x; j < n; j += WARP) squares += sum(j) * sum(j);
    const float scale = rsqrtf(over_warp(squares, Addition()) / n + eps);

    for (int64_t j = threadIdx.x; j < n; j += WARP) {
        r[row * n + j] = from_float<T>(sum(j));
        y[row * n + j] = from_float<T>(sum(j) * scale * to_float(weight[j]));
    }
}

extern "C" int add_rms_norm(const void* x, const void* residual, const void* weight, void* y, void* r, int64_t m,
                            int64_t n, int64_t x_m, int64_t x_n, int64_t residual_m, int64_t residual_n, float eps,
                            int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(m, ROWS))), block(WARP, ROWS);
    record->set(grid, block);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        add_rms_norm_naive<T><<<grid, block, 0, stream>>>(
            static_cast<const T*>(x), static_cast<const T*>(residual), static_cast<const T*>(weight),
            static_cast<T*>(y), static_cast<T*>(r), m, n, x_m, x_n, residual_m, residual_n, eps);
    });
}
