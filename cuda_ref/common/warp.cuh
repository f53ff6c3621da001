// Reductions over the 32 lanes of a warp.
#pragma once

#include "common/common.cuh"

constexpr int WARP = 32;

struct Maximum {
    static constexpr float NEUTRAL = -INFINITY;
    __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
    __device__ __forceinline__ double operator()(double a, double b) const { return fmax(a, b); }
};
struct Addition {
    static constexpr float NEUTRAL = 0.0f;
    __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
    __device__ __forceinline__ double operator()(double a, double b) const { return a + b; }
};

// Combines the values of all lanes in five steps; every lane gets the same bits.
template <typename W, typename F>
__device__ __forceinline__ W over_warp(W value, F combine) {
#pragma unroll
    for (int distance = WARP / 2; distance > 0; distance /= 2) {
        value = combine(value, __shfl_xor_sync(0xffffffffu, value, distance));
    }
    return value;
}
