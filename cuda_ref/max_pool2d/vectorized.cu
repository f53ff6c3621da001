// out[n, p, q, c] = max over r < R, s < S of x[n, p stride + r - padding, q stride + s - padding, c] inside the image,
// for x with packs of 16 bytes of channels; out is row-major
//
// One thread computes the same pixel of 4 or 8 neighbouring channels. A load moves 16 bytes, so that a warp has four to
// eight times as many bytes on the way as with single elements. The pixel of a thread is found by three divisions, of
// 32 bits and once for all channels of the pack; divisions of 64 bits for every element take longer than the loads.
#include "common/common.cuh"

constexpr int THREADS = 256;

struct PoolShape {
    int H, W, R, S, P, Q, stride, padding;
    unsigned channels, packs;  // packs of a pixel, and of the whole output
};

struct PoolStrides {
    int64_t n, h, w;  // of x, in elements
};

template <typename T>
__global__ void __launch_bounds__(THREADS)
    max_pool2d_packed(const T* __restrict__ x, uint4* __restrict__ out, const PoolShape shape, const PoolStrides by) {
    constexpr int LANES = 16 / sizeof(T);
    const unsigned index = blockIdx.x * unsigned(THREADS) + threadIdx.x;
    if (index >= shape.packs) return;
    const unsigned pixel = index / shape.channels, row = pixel / unsigned(shape.Q), n = row / unsigned(shape.P);
    const int top = int(row - n * shape.P) * shape.stride - shape.padding;
    const int left = int(pixel - row * shape.Q) * shape.stride - shape.padding;
    x += n * by.n + int64_t(index - pixel * shape.channels) * LANES;
    float largest[LANES];
#pragma unroll
    for (int lane = 0; lane < LANES; ++lane) largest[lane] = -INFINITY;
    for (int h = max(top, 0); h < min(top + shape.R, shape.H); ++h) {
        for (int w = max(left, 0); w < min(left + shape.S, shape.W); ++w) {
            const uint4 loaded = *reinterpret_cast<const uint4*>(x + h * by.h + w * by.w);
            Pack<T, LANES> pack;
            memcpy(&pack, &loaded, sizeof(pack));
#pragma unroll
            for (int lane = 0; lane < LANES; ++lane) {
                const float value = to_float(pack[lane]);
                if (value > largest[lane] || isnan(value)) largest[lane] = value;  // nothing is larger than a NaN
            }
        }
    }
    Pack<T, LANES> found;
#pragma unroll
    for (int lane = 0; lane < LANES; ++lane) found[lane] = from_float<T>(largest[lane]);
    uint4 stored;
    memcpy(&stored, &found, sizeof(stored));
    out[index] = stored;
}

// x_n, x_h and x_w are strides in elements, channels counts the packs of a pixel; P and Q are rows and columns of out.
extern "C" int max_pool2d_vectorized(const void* x, void* out, int64_t packs, int64_t H, int64_t W, int64_t channels,
                                     int64_t x_n, int64_t x_h, int64_t x_w, int64_t R, int64_t S, int64_t P, int64_t Q,
                                     int64_t stride, int64_t padding, int64_t dtype, cudaStream_t stream,
                                     LaunchRecord* record) {
    const PoolShape shape = {int(H), int(W), int(R), int(S), int(P), int(Q), int(stride), int(padding),
                             unsigned(channels), unsigned(packs)};
    const PoolStrides by = {x_n, x_h, x_w};
    const dim3 grid(unsigned(ceil_div<int64_t>(packs, THREADS))), block(THREADS);
    record->set(grid, block);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        max_pool2d_packed<T>
            <<<grid, block, 0, stream>>>(static_cast<const T*>(x), static_cast<uint4*>(out), shape, by);
    });
}
