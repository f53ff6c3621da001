// out[i] = 1 / (1 + exp(-x[i]))
//
// One thread takes one pack of 16 bytes: 4 float32 or 8 16-bit elements. The stream is vector_add.cu's, but in blocks
// of 128 threads where the data is large: threads compute for a while between their load and their store, and a block's
// place is given to the next block when all of its threads are done. At 2^28 bfloat16: 128 threads 248 us, 256 252,
// 1024 274. Data that all of the device's threads hold at once has no next block, and takes 512.
//
// The formula as written overflows and cancels. With e = exp(-|x|), which is never above 1, both halves are safe:
//     x >= 0:  1 / (1 + e)          x < 0:  e / (1 + e)
//
// How much arithmetic is free? At 4.3 TB/s an H200 moves 0.54 * 10^12 float32 or 1.1 * 10^12 16-bit elements a second,
// in and out, and has its threads issue 30 * 10^12 instructions: 55 for an element of float32, but only 27 for one of
// 16 bits. So there are two functions, and each is as good as its type needs:
//   - `sigmoid_accurate`, for float32: about 25 instructions, at most 1.9 ulp. Its operations round correctly, so
//     a CPU computes the same bits: all floats with 2^-30 <= |x| <= 128 were tried there, and a sample of the others;
//   - `sigmoid_fast`, for 16 bits: about 12, with the hardware's exp2 and reciprocal. Their errors, some 2^-22, are far
//     below the half unit, 2^-11 (float16) or 2^-8 (bfloat16), that the rounding of the result costs.
//
// Reduction to 2^k exp(f): W. Cody, W. Waite, "Software Manual for the Elementary Functions", 1980.
#include "common.cuh"

constexpr int BLOCK = 128, BLOCK_SMALL = 512;  // threads
constexpr int64_t LARGE = 1 << 20;             // packs
constexpr int UNROLL_SINGLE = 8;               // elements that a thread of sigmoid_single has in flight

// exp(-a) for a >= 0, NaN for NaN; at most 1.01 ulp, subnormal results included.
__device__ __forceinline__ float exp_minus(float a) {
    a = a > 104.0f ? 104.0f : a;  // exp(-104) rounds to 0; a NaN stays one
    // k = rint(-a / ln 2). Adding 1.5 * 2^23 leaves the integer k in the low bits of the sum.
    const float shifted = fmaf(a, -1.44269504f, 0x1.8p23f);
    const float k = shifted - 0x1.8p23f;
    // f = -a - k * ln 2 in two steps: the first factor has 15 bits, so k times it is exact. |f| <= ln(2) / 2.
    float f = fmaf(k, -0.693145752f, -a);
    f = fmaf(k, -1.42860677e-6f, f);
    // exp(f) = 1 + f + f^2 p(f), p minimax of degree 4: relative error 2^-28.
    float p = 1.38145406e-3f;
    p = fmaf(p, f, 8.36874545e-3f);
    p = fmaf(p, f, 4.16683890e-2f);
    p = fmaf(p, f, 1.66665211e-1f);
    p = fmaf(p, f, 4.99999940e-1f);
    p = 1.0f + fmaf(f * f, p, f);
    // 2^k can be subnormal (k >= -150), 2^(k + 24) cannot: only the last product rounds.
    const float scale = __uint_as_float((__float_as_uint(shifted) + (127 + 24)) << 23);
    return p * scale * 0x1p-24f;
}

// With t = e / (1 + e) = sigmoid(-|x|) both halves of the formula are c * (1 - t), where c is 1 or e. The roundings
// that t has been through weigh less there than in a quotient, and the last operation is one multiply-add.
__device__ __forceinline__ float sigmoid_accurate(float x) {
    const float e = exp_minus(fabsf(x));
    const float s = 1.0f + fabsf(e);  // e is not negative; but now the compiler knows that s is at least 1
    // 1 / s: the hardware's estimate and one Newton step. s lies in [1, 2], so no case needs care.
    float r = __fdividef(1.0f, s);
    r = fmaf(r, fmaf(-s, r, 1.0f), r);
    const float t = e * r;
    const float c = x < 0.0f ? e : 1.0f;
    return fmaf(-c, t, c);
}

__device__ __forceinline__ float sigmoid_fast(float x) {
    const float e = exp2f(-1.44269504f * fabsf(x));
    return __fdividef(x < 0.0f ? e : 1.0f, 1.0f + e);
}

__device__ __forceinline__ float sigmoid(float x) { return sigmoid_accurate(x); }
__device__ __forceinline__ __half sigmoid(__half x) { return from_float<__half>(sigmoid_fast(to_float(x))); }
__device__ __forceinline__ __nv_bfloat16 sigmoid(__nv_bfloat16 x) {
    return from_float<__nv_bfloat16>(sigmoid_fast(to_float(x)));
}

// Aligned.
template <typename T>
__global__ void __launch_bounds__(BLOCK_SMALL) sigmoid_packed(const T* __restrict__ x, T* __restrict__ out, int64_t n) {
    constexpr int LANES = 16 / sizeof(T);
    const int64_t packs = n / LANES;
    const int64_t pack = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (pack < packs) {
        const uint4 v = reinterpret_cast<const uint4*>(x)[pack];
        reinterpret_cast<uint4*>(out)[pack] = elementwise<T>([](T x) { return sigmoid(x); }, v);
    }
    const int64_t tail = packs * LANES + threadIdx.x;
    if (blockIdx.x == gridDim.x - 1 && tail < n) out[tail] = sigmoid(x[tail]);
}

// Any alignment: elements instead of packs, which lie BLOCK apart, so that the lanes of a warp are neighbours.
template <typename T>
__global__ void __launch_bounds__(BLOCK) sigmoid_single(const T* __restrict__ x, T* __restrict__ out, int64_t n) {
    const int64_t first = int64_t(blockIdx.x) * (BLOCK * UNROLL_SINGLE) + threadIdx.x;
    T v[UNROLL_SINGLE];
#pragma unroll
    for (int i = 0; i < UNROLL_SINGLE; ++i) {
        if (first + i * BLOCK < n) v[i] = x[first + i * BLOCK];
    }
#pragma unroll
    for (int i = 0; i < UNROLL_SINGLE; ++i) {
        if (first + i * BLOCK < n) out[first + i * BLOCK] = sigmoid(v[i]);
    }
}

template <typename T>
void launch(const T* x, T* out, int64_t n, cudaStream_t stream, LaunchRecord* record) {
    constexpr int LANES = 16 / sizeof(T);
    // A grid has at most 2^31 - 1 blocks: 10^12 elements, more than any device's memory holds.
    if (is_aligned(x, 16) && is_aligned(out, 16) && n >= LANES) {
        const int block = n / LANES >= LARGE ? BLOCK : BLOCK_SMALL;
        const dim3 grid(unsigned(ceil_div<int64_t>(n / LANES, block)));
        record->set(grid, block);
        sigmoid_packed<T><<<grid, block, 0, stream>>>(x, out, n);
    } else {
        const dim3 grid(unsigned(ceil_div<int64_t>(n, BLOCK * UNROLL_SINGLE)));
        record->set(grid, BLOCK);
        sigmoid_single<T><<<grid, BLOCK, 0, stream>>>(x, out, n);
    }
}

extern "C" int sigmoid(const void* x, void* out, int64_t n, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        launch(static_cast<const T*>(x), static_cast<T*>(out), n, stream, record);
    });
}
