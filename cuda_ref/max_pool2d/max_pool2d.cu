// out[n, p, q, c] = max over r < R, s < S of x[n, p stride + r - padding, q stride + s - padding, c] inside the image,
// for any strides of x; out is row-major
//
// One thread computes one element of out. The lanes of a warp have neighbouring channels, so that a warp reads whole
// lines of memory. Taps in the padding are left out, which is not the same as a 0 there: all pixels may be negative.
// fmaxf(x, NaN) is x, so NaN is tested for. Windows that overlap read a pixel again, from
// the caches. vectorized.cu reads 16 bytes per thread.
//
// Source: the definition.
#include "common/common.cuh"

constexpr int THREADS = 256;

struct PoolShape {
    int H, W, C, R, S, P, Q, stride, padding;
    int64_t outputs;
};

struct PoolStrides {
    int64_t n, h, w, c;  // of x, in elements
};

template <typename T>
__global__ void __launch_bounds__(THREADS)
    max_pool2d_naive(const T* x, T* __restrict__ out, const PoolShape shape, const PoolStrides by) {
    const int64_t index = int64_t(blockIdx.x) * THREADS + threadIdx.x;
    if (index >= shape.outputs) return;
    const int64_t pixel = index / shape.C, row = pixel / shape.Q, n = row / shape.P;
    const int top = int(row - n * shape.P) * shape.stride - shape.padding;
    const int left = int(pixel - row * shape.Q) * shape.stride - shape.padding;
    x += n * by.n + (index - pixel * shape.C) * by.c;
    float largest = -INFINITY;
    for (int h = max(top, 0); h < min(top + shape.R, shape.H); ++h) {
        for (int w = max(left, 0); w < min(left + shape.S, shape.W); ++w) {
            const float value = to_float(x[h * by.h + w * by.w]);
            if (value > largest || isnan(value)) largest = value;  // nothing is larger than a NaN
        }
    }
    out[index] = from_float<T>(largest);
}

// x_n ... x_c are strides in elements; P and Q are the rows and columns of out.
extern "C" int max_pool2d(const void* x, void* out, int64_t N, int64_t H, int64_t W, int64_t C, int64_t x_n,
                          int64_t x_h, int64_t x_w, int64_t x_c, int64_t R, int64_t S, int64_t P, int64_t Q,
                          int64_t stride, int64_t padding, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const int64_t outputs = N * P * Q * C;
    const PoolShape shape = {int(H), int(W), int(C), int(R), int(S), int(P), int(Q), int(stride), int(padding),
                             outputs};
    const PoolStrides by = {x_n, x_h, x_w, x_c};
    const dim3 grid(unsigned(ceil_div<int64_t>(outputs, THREADS))), block(THREADS);
    record->set(grid, block);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        max_pool2d_naive<T>
            <<<grid, block, 0, stream>>>(static_cast<const T*>(x), static_cast<T*>(out), shape, by);
    });
}
