// y = rms_norm(x, weight); scale = max |y| / 448 (int8: 127) over a group, at least 2^-126; code = y / scale, rounded to
// nearest
//
// Two kernels: a warp computes the factor 1 / sqrt(mean of x^2 + eps) of a row, then a warp computes the codes of a
// group, as in quantize.cu. A group may have 128 rows, so it needs their factors first.
#include "common/codes.cuh"

constexpr int GROUPS = 4;  // per block, one per warp

template <typename T>
__global__ void __launch_bounds__(WARP* GROUPS)
    row_factors(const T* x, float* factors, int64_t m, int64_t n, int64_t stride_m, int64_t stride_n, float eps) {
    const int64_t row = int64_t(blockIdx.x) * GROUPS + threadIdx.y;
    if (row >= m) return;  // true for all lanes of the warp
    float squares = 0.0f;
    for (int64_t j = threadIdx.x; j < n; j += WARP) {
        const float v = to_float(x[row * stride_m + j * stride_n]);
        squares += v * v;
    }
    const float factor = rsqrtf(over_warp(squares, Addition()) / n + eps);
    if (threadIdx.x == 0) factors[row] = factor;
}

template <typename T>
__global__ void __launch_bounds__(WARP* GROUPS)
    rms_norm_quantize_naive(const T* x, const T* weight, const float* factors, uint8_t* codes, float* scales, Codes kind,
                            int64_t m, int64_t n, int64_t stride_m, int64_t stride_n, int64_t rows, int64_t columns) {
    const int64_t group = int64_t(blockIdx.x) * GROUPS + threadIdx.y;
    if (group >= ceil_div(m, rows) * ceil_div(n, columns)) return;  // true for all lanes of the warp
    code_group(kind, group, m, n, rows, columns, codes, scales, [&](int64_t i, int64_t j) {
        return to_float(x[i * stride_m + j * stride_n]) * factors[i] * to_float(weight[j]);
    });
}

// factors: workspace, m numbers. rows, columns: of a group.
extern "C" int rms_norm_quantize(const void* x, const void* weight, void* factors, void* codes, void* scales, int64_t m,
                                 int64_t n, int64_t stride_m, int64_t stride_n, float eps, int64_t rows, int64_t columns,
                                 int64_t int8, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const int64_t groups = ceil_div(m, rows) * ceil_div(n, columns);
    const dim3 of_rows(unsigned(ceil_div<int64_t>(m, GROUPS))), block(WARP, GROUPS);
    const dim3 grid(unsigned(ceil_div<int64_t>(groups, GROUPS)));
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const T* from = static_cast<const T*>(x);
        float* found = static_cast<float*>(factors);
        record->set(of_rows, block);
        row_factors<T><<<of_rows, block, 0, stream>>>(from, found, m, n, stride_m, stride_n, eps);
        record->set(grid, block);
        rms_norm_quantize_naive<T><<<grid, block, 0, stream>>>(
            from, static_cast<const T*>(weight), found, static_cast<uint8_t*>(codes), static_cast<float*>(scales),
            Codes{int8 != 0}, m, n, stride_m, stride_n, rows, columns);
    });
}
