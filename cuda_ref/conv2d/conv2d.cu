// out[n, p, q, k] = sum over r, s, c of x[n, p stride + r - padding, q stride + s - padding, c] * weight[k, r, s, c],
// for any strides of x and weight; out is row-major
//
// One thread computes one element of out: the window of one pixel times the weights of one output channel.
//
// The kernel follows the definition. Taps that lie in the padding are left out. The lanes of a warp have neighbouring
// k: all read the same pixel, and each its own weights. There are two loads per multiply-add, and weights are far
// apart: the load units are busy, the arithmetic units idle. mma.cu loads tiles into shared memory.
//
// Precision. 16-bit inputs: products are exact in float32. float32: `ieee` multiplies the inputs as they are; `tf32`
// first rounds each factor to tf32. Additions round, in float32, in order of r, s and c.
//
// Source: the definition.
#include "matmul/operands.cuh"

constexpr int THREADS = 256;

struct ConvShape {
    int H, W, C, K, R, S, P, Q, stride, padding;
    int64_t outputs;
};

struct ConvStrides {
    int64_t x[4], weight[4];  // strides of n, h, w, c; of k, r, s, c
};

// Four blocks fit on a multiprocessor; for eight, the compiler would spill registers.
template <typename T, bool TF32>
__global__ void __launch_bounds__(THREADS, 4)
    conv2d_naive(const T* x, const T* weight, T* __restrict__ out, const ConvShape shape, const ConvStrides by) {
    const int64_t index = int64_t(blockIdx.x) * THREADS + threadIdx.x;
    if (index >= shape.outputs) return;
    const int64_t pixel = index / shape.K, row = pixel / shape.Q, n = row / shape.P;
    const int k = int(index - pixel * shape.K);
    const int top = int(row - n * shape.P) * shape.stride - shape.padding;
    const int left = int(pixel - row * shape.Q) * shape.stride - shape.padding;
    x += n * by.x[0];
    weight += k * by.weight[0];
    Working<T> acc = 0;
    for (int r = 0; r < shape.R; ++r) {
        const int h = top + r;
        if (h < 0 || h >= shape.H) continue;
        for (int s = 0; s < shape.S; ++s) {
            const int w = left + s;
            if (w < 0 || w >= shape.W) continue;
            const T* from = x + h * by.x[1] + w * by.x[2];
            const T* factors = weight + r * by.weight[1] + s * by.weight[2];
            for (int c = 0; c < shape.C; ++c) {
                acc = fma(factor<T, TF32>(*from), factor<T, TF32>(*factors), acc);
                from += by.x[3];
                factors += by.weight[3];
            }
        }
    }
    out[index] = from_working<T>(acc);
}

// x_n ... x_c and weight_k ... weight_c are strides in elements.
extern "C" int conv2d(const void* x, const void* weight, void* out, int64_t N, int64_t H, int64_t W, int64_t C,
                      int64_t x_n, int64_t x_h, int64_t x_w, int64_t x_c, int64_t K, int64_t R, int64_t S,
                      int64_t weight_k, int64_t weight_r, int64_t weight_s, int64_t weight_c, int64_t P, int64_t Q,
                      int64_t stride, int64_t padding, int64_t tf32, int64_t dtype, cudaStream_t stream,
                      LaunchRecord* record) {
    const int64_t outputs = N * P * Q * K;
    const ConvShape shape = {int(H), int(W), int(C), int(K), int(R), int(S), int(P), int(Q), int(stride), int(padding),
                             outputs};
    const ConvStrides by = {{x_n, x_h, x_w, x_c}, {weight_k, weight_r, weight_s, weight_c}};
    const dim3 grid(unsigned(ceil_div<int64_t>(outputs, THREADS))), block(THREADS);
    record->set(grid, block);
    return by_precision_or_double(dtype, tf32, [&](auto zero, auto rounded) {
        using T = decltype(zero);
        conv2d_naive<T, decltype(rounded)::value><<<grid, block, 0, stream>>>(
            static_cast<const T*>(x), static_cast<const T*>(weight), static_cast<T*>(out), shape, by);
    });
}
