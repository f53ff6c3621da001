// A warp for each row; the lanes combine their results by xor shuffles.
#include "common.cuh"

#define FULL 0xffffffffu

__inline__ __device__ float warpReduceMax(float v) {
    for (int offset = 16; offset > 0; offset /= 2) v = fmaxf(v, __shfl_xor_sync(FULL, v, offset));
    return v;
}
__inline__ __device__ float warpReduceSum(float v) {
    for (int offset = 16; offset > 0; offset >>= 1) v += __shfl_xor_sync(FULL, v, offset);
    return v;
}

template <typename T>
__global__ void softmax_warp(const T* x, T* y, int64_t rows, int64_t cols, int64_t stride_m, int64_t stride_n) {
    const int64_t row = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    const int lane = threadIdx.x % 32;
    if (row >= rows) return;
    x += row * stride_m;
    y += row * cols;
    float biggest = -INFINITY;
    for (int64_t c = lane; c < cols; c += 32) biggest = fmaxf(biggest, to_float(x[c * stride_n]));
    biggest = warpReduceMax(biggest);
    float total = 0.0f;
    for (int64_t c = lane; c < cols; c += 32) total += __expf(to_float(x[c * stride_n]) - biggest);
    const float inverse = 1.0f / warpReduceSum(total);
    for (int64_t c = lane; c < cols; c += 32)
        y[c] = from_float<T>(__expf(to_float(x[c * stride_n]) - biggest) * inverse);
}

template <typename T>
__global__ void layer_norm_warp(const T* x, const T* gamma, const T* beta, T* y, int64_t rows, int64_t cols,
                                int64_t stride_m, int64_t stride_n, float eps) {
    const int64_t row = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    const int lane = threadIdx.x % 32;
    if (row >= rows) return;
    x += row * stride_m;
    y += row * cols;
    float total = 0.0f;
    for (int64_t c = lane; c < cols; c += 32) total += to_float(x[c * stride_n]);
    const float mean = warpReduceSum(total) / cols;
    float squares = 0.0f;
    for (int64_t c = lane; c < cols; c += 32) {
        const float d = to_float(x[c * stride_n]) - mean;
        squares = fmaf(d, d, squares);
    }
    const float rstd = rsqrtf(warpReduceSum(squares) / cols + eps);
    for (int64_t c = lane; c < cols; c += 32) {
        const float normal = (to_float(x[c * stride_n]) - mean) * rstd;
        y[c] = from_float<T>(fmaf(normal, to_float(gamma[c]), to_float(beta[c])));
    }
}

template <typename T>
__global__ void rms_norm_warp(const T* x, const T* gamma, T* y, int64_t rows, int64_t cols, int64_t stride_m,
                              int64_t stride_n, float eps) {
    const int64_t row = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    const int lane = threadIdx.x % 32;
    if (row >= rows) return;
    x += row * stride_m;
    float squares = 0.0f;
    for (int64_t c = lane; c < cols; c += 32) squares += to_float(x[c * stride_n]) * to_float(x[c * stride_n]);
    const float rstd = rsqrtf(warpReduceSum(squares) / float(cols) + eps);
    for (int64_t c = lane; c < cols; c += 32)
        y[row * cols + c] = from_float<T>(to_float(x[c * stride_n]) * rstd * to_float(gamma[c]));
}

extern "C" int softmax(const void* x, void* out, int64_t m, int64_t n, int64_t stride_m, int64_t stride_n,
                       int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(m, 4)));
    record->set(grid, 128);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        softmax_warp<T><<<grid, 128, 0, stream>>>((const T*)x, (T*)out, m, n, stride_m, stride_n);
    });
}

extern "C" int layer_norm(const void* x, const void* weight, const void* bias, void* out, int64_t m, int64_t n,
                          int64_t stride_m, int64_t stride_n, double eps, int64_t dtype, cudaStream_t stream,
                          LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(m, 8)));
    record->set(grid, 256);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        layer_norm_warp<T><<<grid, 256, 0, stream>>>((const T*)x, (const T*)weight, (const T*)bias, (T*)out, m, n,
                                                     stride_m, stride_n, float(eps));
    });
}

extern "C" int rms_norm(const void* x, const void* weight, void* out, int64_t m, int64_t n, int64_t stride_m,
                        int64_t stride_n, double eps, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(m, 8)));
    record->set(grid, 256);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        rms_norm_warp<T><<<grid, 256, 0, stream>>>((const T*)x, (const T*)weight, (T*)out, m, n, stride_m, stride_n,
                                                   float(eps));
    });
}
