// Exponentials of softmax.
#pragma once

#include "common/rows.cuh"

constexpr float LOG2_E = 1.44269504f;

// exp(x) for x <= 0, for results of type T. For 16-bit types the value is 2^16 exp(x), by one instruction: the
// hardware's 2^y gives 0 for subnormal results. Adding 16 costs a relative error of 2^-20, far below the rounding of
// the result.
template <typename T>
__device__ __forceinline__ float exponential(float x) {
#ifdef __CUDA_ARCH__
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(fmaf(x, LOG2_E, 16.0f)));
    return result;
#else
    return exp2f(fmaf(x, LOG2_E, 16.0f));
#endif
}
template <>
__device__ __forceinline__ float exponential<float>(float x) {
    return exp2f(x * LOG2_E);
}

// Replaces a maximum of minus infinity by 0, so that exp gives 0 and not NaN.
__device__ __forceinline__ float finite_maximum(float largest) { return largest == -INFINITY ? 0.0f : largest; }
