// The gates of gated linear units: act(a) = a s, where s is the sigmoid of w = a (silu), or of w = LINEAR (a + CUBIC
// a^3) (gelu by its approximation with tanh, since (1 + tanh(z)) / 2 is the sigmoid of 2 z).
#pragma once

#include "common/sigmoid.cuh"

constexpr float LINEAR = 1.5957691216f;        // sqrt(8 / pi)
constexpr float LINEAR_CUBIC = 0.0713548163f;  // sqrt(8 / pi) 0.044715

// s for a result of type T.
template <typename T, bool GELU>
__device__ __forceinline__ float gate_for(float a) {
    return sigmoid_for<T>(GELU ? a * fmaf(LINEAR_CUBIC * a, a, LINEAR) : a);
}

// act'(a) = s + a w' s (1 - s).
template <bool GELU>
__device__ __forceinline__ float slope_of(float a, float s) {
    const float steep = GELU ? a * fmaf(3.0f * LINEAR_CUBIC * a, a, LINEAR) : a;
    return fmaf(steep * s, 1.0f - s, s);
}
