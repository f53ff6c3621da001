// out[i] = 1 / (1 + exp(-x[i]))
//
// A thread computes one pack of 16 bytes: 4 float32 or 8 16-bit elements. The loads and stores are those of
// vector_add.cu. Blocks have 128 threads where the data is large: a block frees its place when its last thread ends,
// and threads that compute between load and store end at different times. Small data, which all fits on the device at
// one time, takes 512.
//
// An H200 at full bandwidth has issue slots for about 55 instructions for each float32 element, but only 27 for each
// 16-bit element, and hides about half of them (docs/lab/cuda_elementwise.md). So there are two functions:
//   - `sigmoid_accurate` for float32: 20 instructions, error at most 1.96 ulp (checked for all float32 values). A
//     Newton step removes the error of the reciprocal; the other operations round correctly.
//   - `sigmoid_fast` for 16 bits: 5 instructions, with the exp2 and the reciprocal of the hardware. Its error, about
//     2^-17, is far below the rounding of the result, 2^-11 (float16) or 2^-8 (bfloat16).
//
// exp(-x) overflows for x < -88, where 1 / (1 + exp(-x)) is not yet 0. Both compute 2^-S / (2^-S + 2^-S exp(-x)).
//
// Reduction to 2^k exp(f): W. Cody, W. Waite, "Software Manual for the Elementary Functions", 1980.
#include "common.cuh"

constexpr int BLOCK = 128, BLOCK_SMALL = 512;  // threads
constexpr int64_t LARGE = 1 << 20;             // packs
constexpr int UNROLL_SINGLE = 8;               // elements that a thread of sigmoid_single loads ahead

// 1 / x within 1 ulp, for normal x and 1 / x; one instruction.
__device__ __forceinline__ float reciprocal(float x) {
#ifdef __CUDA_ARCH__
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
#else
    return 1.0f / x;
#endif
}

// 2^x within 2 ulp, 0 instead of subnormal results; one instruction.
__device__ __forceinline__ float exp2_fast(float x) {
#ifdef __CUDA_ARCH__
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
#else
    return exp2f(x);
#endif
}

__device__ __forceinline__ float sigmoid_accurate(float x) {
    // Beyond these limits the result rounds to 0 or 1. NaN stays NaN.
    x = x < -104.0f ? -104.0f : x;
    x = x > 30.0f ? 30.0f : x;
    // k = rint(-x / ln 2). Adding 1.5 * 2^23 leaves the integer k in the low bits of the sum.
    const float shifted = fmaf(x, -1.44269504f, 0x1.8p23f);
    const float k = shifted - 0x1.8p23f;
    // f = -x - k * ln 2 in two steps: the first factor has 15 bits, so k times it is exact. |f| <= ln(2) / 2.
    float f = fmaf(k, -0.693145752f, -x);
    f = fmaf(k, -1.42860677e-6f, f);
    // exp(f) - 1 = f + f^2 p(f), p minimax of degree 4: relative error 2^-28.
    float p = 1.38145406e-3f;
    p = fmaf(p, f, 8.36874545e-3f);
    p = fmaf(p, f, 4.16683890e-2f);
    p = fmaf(p, f, 1.66665211e-1f);
    p = fmaf(p, f, 4.99999940e-1f);
    p = fmaf(f * f, p, f);
    // e = 2^-32 exp(-x) = 2^(k - 32) (1 + p): both factors are normal numbers.
    const float scale = __uint_as_float((__float_as_uint(shifted) + (127 - 32)) << 23);
    const float e = fmaf(scale, p, scale);
    // A Newton step to the reciprocal of the exact sum, not of the rounded one. Only the last product can be subnormal.
    const float r = reciprocal(0x1p-32f + e);
    const float residual = fmaf(-e, r, fmaf(-0x1p-32f, r, 1.0f));
    return fmaf(r, residual, r) * 0x1p-32f;
}

// With S = 16, the sum overflows, or the reciprocal is flushed to 0, only for results below half of the smallest
// bfloat16.
__device__ __forceinline__ float sigmoid_fast(float x) {
    return reciprocal(exp2_fast(fmaf(x, -1.44269504f, -16.0f)) + 0x1p-16f) * 0x1p-16f;
}

__device__ __forceinline__ float sigmoid(float x) { return sigmoid_accurate(x); }
__device__ __forceinline__ __half sigmoid(__half x) { return from_float<__half>(sigmoid_fast(to_float(x))); }
__device__ __forceinline__ __nv_bfloat16 sigmoid(__nv_bfloat16 x) {
    return from_float<__nv_bfloat16>(sigmoid_fast(to_float(x)));
}

// Aligned. Thread i computes pack i; the threads after the last pack compute the remaining elements.
template <typename T>
__global__ void __launch_bounds__(BLOCK_SMALL)
    sigmoid_packed(const T* __restrict__ x, T* __restrict__ out, int64_t packs, int64_t n) {
    constexpr int LANES = 16 / sizeof(T);
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < packs) {
        const uint4 v = reinterpret_cast<const uint4*>(x)[i];
        reinterpret_cast<uint4*>(out)[i] = elementwise<T>([](T x) { return sigmoid(x); }, v);
    } else if (const int64_t at = packs * LANES + (i - packs); at < n) {
        out[at] = sigmoid(x[at]);
    }
}

// Any alignment. The elements of a thread are BLOCK apart, so that the lanes of a warp access neighbours.
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
    // The grid is limited to 2^31 - 1 blocks: 10^12 elements.
    if (is_aligned(x, 16) && is_aligned(out, 16) && n >= LANES) {
        const int64_t packs = n / LANES;
        const int block = packs >= LARGE ? BLOCK : BLOCK_SMALL;
        const dim3 grid(unsigned(ceil_div<int64_t>(packs + n % LANES, block)));
        record->set(grid, block);
        sigmoid_packed<T><<<grid, block, 0, stream>>>(x, out, packs, n);
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
