// 1 / (1 + exp(-x)) for a float32 x:
//   - `sigmoid_accurate` for float32 results: 20 instructions, error at most 1.96 ulp (checked for all float32 values).
//     A Newton step removes the error of the reciprocal; the other operations round correctly.
//   - `sigmoid_near` for float32 numbers that are rounded further: 10 instructions, error at most 4 ulp. The exp2 of the
//     hardware has 2 of them, its reciprocal and two roundings the others.
//   - `sigmoid_fast` for 16-bit results: 5 instructions, with the exp2 and the reciprocal of the hardware. Its error,
//     about 2^-17, is far below the rounding of the result, 2^-11 (float16) or 2^-8 (bfloat16).
//
// exp(-x) overflows for x < -88, where 1 / (1 + exp(-x)) is not yet 0. sigmoid_accurate and sigmoid_fast compute 2^-S /
// (2^-S + 2^-S exp(-x)).
//
// Reduction to 2^k exp(f): W. Cody, W. Waite, "Software Manual for the Elementary Functions", 1980.
#pragma once

#include "common/common.cuh"

// 1 / x within 1 ulp, if x and 1 / x are normal; one instruction.
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

// The argument of exp2 is d - t, where d is what the product and log2(e) lose by rounding: 2^d is about 1 + d ln(2).
// Results below 2^-126 are 0. A NaN gives a number: this is for products with x.
__device__ __forceinline__ float sigmoid_near(float x) {
    x = fminf(fmaxf(x, -88.0f), 88.0f);  // exp(-x) and d stay finite
    const float t = __fmul_rn(x, 1.44269502f);  // the compiler would compute -t by a second product
    const float d = fmaf(x, -1.92596299e-8f, fmaf(x, -1.44269502f, t));
    const float e = exp2_fast(-t);
    return reciprocal(1.0f + fmaf(e * d, 0.693147182f, e));
}

// With S = 16, the sum overflows, or the reciprocal is flushed to 0, only for results below half of the smallest
// bfloat16.
__device__ __forceinline__ float sigmoid_fast(float x) {
    return reciprocal(exp2_fast(fmaf(x, -1.44269504f, -16.0f)) + 0x1p-16f) * 0x1p-16f;
}

// The sigmoid for a result of type T.
template <typename T>
__device__ __forceinline__ float sigmoid_for(float x) {
    if constexpr (sizeof(T) == 4) {
        return sigmoid_accurate(x);
    } else {
        return sigmoid_fast(x);
    }
}
