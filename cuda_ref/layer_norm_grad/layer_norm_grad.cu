// dx = s (g - a - xhat b), g = dy w, xhat = (x - mean) s, s = 1 / sqrt(variance + eps), a and b the means of g and of
// g xhat, all of one row; dweight[j] = sum over i of dy[i, j] xhat[i, j], dbias[j] = sum over i of dy[i, j]
//
// Launches as in rms_norm_grad.cu, in float32: one warp computes one row of dx and keeps mean and s; one thread adds a
// part of a column of both sums; the last launches add the parts, in a fixed order. persistent.cu reads x and dy once.
#include "common/column_sums.cuh"
#include "common/warp.cuh"

constexpr int ROWS = 4;  // rows per block, one per warp
constexpr int THREADS = 128;

// A matrix of any strides.
template <typename T>
struct Matrix {
    const T* data;
    int64_t stride_m, stride_n;

    __device__ __forceinline__ float operator()(int64_t i, int64_t j) const {
        return to_float(data[i * stride_m + j * stride_n]);
    }
};

// The mean of a row and 1 / its deviation.
struct Statistics {
    float mean, scale;
};

template <typename T>
__global__ void __launch_bounds__(WARP* ROWS)
    layer_norm_grad_naive(Matrix<T> x, const T* weight, Matrix<T> dy, T* dx, Statistics* statistics, int64_t m,
                          int64_t n, float eps) {
    const int64_t row = int64_t(blockIdx.x) * ROWS + threadIdx.y;
    if (row >= m) return;  // true for all lanes of the warp
    float sum = 0.0f, of_g = 0.0f;
    for (int64_t j = threadIdx.x; j < n; j += WARP) {
        sum += x(row, j);
        of_g += dy(row, j) * to_float(weight[j]);
    }
    const float mean = over_warp(sum, Addition()) / n, a = over_warp(of_g, Addition()) / n;

    float squares = 0.0f, products = 0.0f;
    for (int64_t j = threadIdx.x; j < n; j += WARP) {
        const float c = x(row, j) - mean;
        squares += c * c;
        products += dy(row, j) * to_float(weight[j]) * c;
    }
    const float s = rsqrtf(over_warp(squares, Addition()) / n + eps);
    const float b = over_warp(products, Addition()) / n * s;
    for (int64_t j = threadIdx.x; j < n; j += WARP) {
        const float g = dy(row, j) * to_float(weight[j]);
        dx[row * n + j] = from_float<T>(s * (g - a - (x(row, j) - mean) * s * b));
    }
    if (threadIdx.x == 0) statistics[row] = {mean, s};
}

// Thread (column, part) adds the rows part, part + parts, ...
template <typename T>
__global__ void __launch_bounds__(THREADS)
    layer_norm_grad_weight(Matrix<T> x, Matrix<T> dy, const Statistics* statistics, float* partial, int64_t m,
                           int64_t n, int64_t parts) {
    const int64_t index = int64_t(blockIdx.x) * THREADS + threadIdx.x, j = index % n;
    if (index >= parts * n) return;
    float of_weight = 0.0f, of_bias = 0.0f;
    for (int64_t i = index / n; i < m; i += parts) {
        of_weight += dy(i, j) * ((x(i, j) - statistics[i].mean) * statistics[i].scale);
        of_bias += dy(i, j);
    }
    partial[index] = of_weight;
    partial[parts * n + index] = of_bias;
}

// statistics: 2 m floats. partial: 2 parts n floats.
extern "C" int layer_norm_grad(const void* x, const void* weight, const void* dy, void* dx, void* dweight, void* dbias,
                               void* statistics, void* partial, int64_t m, int64_t n, int64_t x_m, int64_t x_n,
                               int64_t dy_m, int64_t dy_n, float eps, int64_t parts, int64_t dtype,
                               cudaStream_t stream, LaunchRecord* record) {
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const Matrix<T> values = {static_cast<const T*>(x), x_m, x_n};
        const Matrix<T> grads = {static_cast<const T*>(dy), dy_m, dy_n};
        Statistics* of_rows = static_cast<Statistics*>(statistics);
        float* of_parts = static_cast<float*>(partial);
        const dim3 grid(unsigned(ceil_div<int64_t>(m, ROWS))), block(WARP, ROWS);
        record->set(grid, block);
        layer_norm_grad_naive<T><<<grid, block, 0, stream>>>(values, static_cast<const T*>(weight), grads,
                                                             static_cast<T*>(dx), of_rows, m, n, eps);
        const dim3 columns(unsigned(ceil_div<int64_t>(parts * n, THREADS)));
        record->set(columns, THREADS);
        layer_norm_grad_weight<T><<<columns, THREADS, 0, stream>>>(values, grads, of_rows, of_parts, m, n, parts);
        T *of_weight = static_cast<T*>(dweight), *of_bias = static_cast<T*>(dbias);
        launch_column_sums(of_parts, of_weight, of_bias, parts, n, stream, record);
    });
}
