// Shared by the LSTM kernels: the gates of a cell. Sums and c are float32.
#pragma once

#include "common/sigmoid.cuh"

constexpr int GATES = 4;  // i, f, g, o

__device__ __forceinline__ float sigmoid(float x) { return reciprocal(1.0f + __expf(-x)); }
__device__ __forceinline__ float tanh_of(float x) { return fmaf(2.0f, sigmoid(2.0f * x), -1.0f); }

// From the sums z computes the next c (in place) and returns the next h.
__device__ __forceinline__ float cell(const float (&z)[GATES], float& c) {
    c = sigmoid(z[1]) * c + sigmoid(z[0]) * tanh_of(z[2]);
    return sigmoid(z[3]) * tanh_of(c);
}
