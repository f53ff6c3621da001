// dx[n, h, w, c] = sum of dy[n, p, q, c] over the windows (p, q) whose largest pixel is x[n, h, w, c],
// for any strides of x and dy; dx is row-major
//
// One thread computes one element of dx. It visits the windows that hold its pixel and compares the pixel with all
// others of the window: a larger one, or an equal one before it, wins the window. A thread per window, which finds the
// largest pixel once and adds dy to it, would need atomic additions where windows overlap: sums in any order, whose
// last bits differ from call to call. Here the order is fixed, and the same pixels are read again from the caches.
//
// Source: the definition.
#include "common/common.cuh"

constexpr int THREADS = 256;

struct PoolShape {
    int H, W, C, R, S, P, Q, stride, padding;
    int64_t inputs;
};

struct PoolStrides {
    int64_t x_n, x_h, x_w, x_c, y_n, y_p, y_q, y_c;  // of x and dy, in elements
};

// Whether `own`, the pixel (own_h, own_w), is the first largest one of the window that begins at (top, left).
template <typename T>
__device__ bool wins(const T* x, float own, int own_h, int own_w, int top, int left, const PoolShape& shape,
                     const PoolStrides& by) {
    for (int h = max(top, 0); h < min(top + shape.R, shape.H); ++h) {
        for (int w = max(left, 0); w < min(left + shape.S, shape.W); ++w) {
            const float other = to_float(x[h * by.x_h + w * by.x_w]);
            const bool before = h < own_h || (h == own_h && w < own_w);
            if (other > own || (other == own && before)) return false;
        }
    }
    return true;
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    max_pool2d_grad_naive(const T* x, const T* dy, T* __restrict__ dx, const PoolShape shape, const PoolStrides by) {
    const int64_t index = int64_t(blockIdx.x) * THREADS + threadIdx.x;
    if (index >= shape.inputs) return;
    const int64_t pixel = index / shape.C, row = pixel / shape.W, n = row / shape.H;
    const int h = int(row - n * shape.H), w = int(pixel - row * shape.W);
    const int64_t c = index - pixel * shape.C;
    x += n * by.x_n + c * by.x_c;
    dy += n * by.y_n + c * by.y_c;
    const float own = to_float(x[h * by.x_h + w * by.x_w]);
    const int first_p = max(0, ceil_div(h + shape.padding - shape.R + 1, shape.stride));
    const int first_q = max(0, ceil_div(w + shape.padding - shape.S + 1, shape.stride));
    float acc = 0.0f;
    for (int p = first_p; p <= min((h + shape.padding) / shape.stride, shape.P - 1); ++p) {
        for (int q = first_q; q <= min((w + shape.padding) / shape.stride, shape.Q - 1); ++q) {
            const int top = p * shape.stride - shape.padding, left = q * shape.stride - shape.padding;
            if (wins(x, own, h, w, top, left, shape, by)) acc += to_float(dy[p * by.y_p + q * by.y_q]);
        }
    }
    dx[index] = from_float<T>(acc);
}

// x_n ... y_c are strides in elements; P and Q are the rows and columns of dy.
extern "C" int max_pool2d_grad(const void* x, const void* dy, void* dx, int64_t N, int64_t H, int64_t W, int64_t C,
                               int64_t x_n, int64_t x_h, int64_t x_w, int64_t x_c, int64_t y_n, int64_t y_p,
                               int64_t y_q, int64_t y_c, int64_t R, int64_t S, int64_t P, int64_t Q, int64_t stride,
                               int64_t padding, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const int64_t inputs = N * H * W * C;
    const PoolShape shape = {int(H), int(W), int(C), int(R), int(S), int(P), int(Q), int(stride), int(padding), inputs};
    const PoolStrides by = {x_n, x_h, x_w, x_c, y_n, y_p, y_q, y_c};
    const dim3 grid(unsigned(ceil_div<int64_t>(inputs, THREADS))), block(THREADS);
    record->set(grid, block);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        max_pool2d_grad_naive<T><<<grid, block, 0, stream>>>(static_cast<const T*>(x), static_cast<const T*>(dy),
                                                             static_cast<T*>(dx), shape, by);
    });
}
