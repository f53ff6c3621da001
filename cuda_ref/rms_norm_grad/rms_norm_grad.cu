// dx = s (g - xhat b), g = dy w, xhat = x s, s = 1 / sqrt(mean of x^2 + eps), b = mean of g xhat, all of one row;
// dweight[j] = sum over i of dy[i, j] xhat[i, j]
//
// Three launches, in float32. One warp computes one row of dx and keeps s. Then one thread adds a part of a column:
// neighbouring threads have neighbouring columns. The last launch adds the parts, in a fixed order. x and dy are read
// three times; persistent.cu reads them once.
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

template <typename T>
__global__ void __launch_bounds__(WARP* ROWS)
    rms_norm_grad_naive(Matrix<T> x, const T* weight, Matrix<T> dy, T* dx, float* scales, int64_t m, int64_t n,
                        float eps) {
    const int64_t row = int64_t(blockIdx.x) * ROWS + threadIdx.y;
    if (row >= m) return;  // true for all lanes of the warp
    float squares = 0.0f, products = 0.0f;
    for (int64_t j = threadIdx.x; j < n; j += WARP) {
        squares += x(row, j) * x(row, j);
        products += dy(row, j) * to_float(weight[j]) * x(row, j);
    }
    const float s = rsqrtf(over_warp(squares, Addition()) / n + eps);
    const float b = over_warp(products, Addition()) / n * s;
    for (int64_t j = threadIdx.x; j < n; j += WARP) {
        dx[row * n + j] = from_float<T>(s * (dy(row, j) * to_float(weight[j]) - x(row, j) * s * b));
    }
    if (threadIdx.x == 0) scales[row] = s;
}

// Thread (column, part) adds the rows part, part + parts, ...
template <typename T>
__global__ void __launch_bounds__(THREADS)
    rms_norm_grad_weight(Matrix<T> x, Matrix<T> dy, const float* scales, float* partial, int64_t m, int64_t n,
                         int64_t parts) {
    const int64_t index = int64_t(blockIdx.x) * THREADS + threadIdx.x, j = index % n;
    if (index >= parts * n) return;
    float sum = 0.0f;
    for (int64_t i = index / n; i < m; i += parts) sum += dy(i, j) * (x(i, j) * scales[i]);
    partial[index] = sum;
}

// scales: m floats. partial: parts n floats.
extern "C" int rms_norm_grad(const void* x, const void* weight, const void* dy, void* dx, void* dweight, void* scales,
                             void* partial, int64_t m, int64_t n, int64_t x_m, int64_t x_n, int64_t dy_m, int64_t dy_n,
                             float eps, int64_t parts, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const Matrix<T> values = {static_cast<const T*>(x), x_m, x_n};
        const Matrix<T> grads = {static_cast<const T*>(dy), dy_m, dy_n};
        float *of_rows = static_cast<float*>(scales), *of_parts = static_cast<float*>(partial);
        const dim3 grid(unsigned(ceil_div<int64_t>(m, ROWS))), block(WARP, ROWS);
        record->set(grid, block);
        rms_norm_grad_naive<T><<<grid, block, 0, stream>>>(values, static_cast<const T*>(weight), grads,
                                                           static_cast<T*>(dx), of_rows, m, n, eps);
        const dim3 columns(unsigned(ceil_div<int64_t>(parts * n, THREADS)));
        record->set(columns, THREADS);
        rms_norm_grad_weight<T><<<columns, THREADS, 0, stream>>>(values, grads, of_rows, of_parts, m, n, parts);
        T *of_weight = static_cast<T*>(dweight), *none = nullptr;
        launch_column_sums(of_parts, of_weight, none, parts, n, stream, record);
    });
}
