// Rows of attention's operands in the registers of LANES neighbouring lanes of a warp, all in float32.
#pragma once

#include "common/float8.cuh"

struct Float8 {
    uint8_t bits;
};

__device__ __forceinline__ float to_float(Float8 x) { return float8_to_float(x.bits); }

// The scale of a float8 operand; 1 without one.
__device__ __forceinline__ float scale_of(const float* scale) { return scale == nullptr ? 1.0f : *scale; }

// An operand in memory: its rows, with strides in elements.
template <typename T>
struct Rows {
    const T* data;
    int64_t batch, head, row;

    __device__ __forceinline__ const T* at(int64_t b, int64_t h, int64_t i) const {
        return data + b * batch + h * head + i * row;
    }
};

// A row of D numbers, at most LANES * COLUMNS. Lane threadIdx.x has every LANES-th number, from its own index on.
template <int LANES, int COLUMNS>
struct Row {
    float numbers[COLUMNS] = {};

    // Number c of this lane in a row in memory, whose numbers are `stride` elements apart; zero from column D on.
    template <typename T>
    __device__ __forceinline__ static float number(const T* from, int c, int64_t D, int64_t stride) {
        const int d = c * LANES + threadIdx.x;
        return d < D ? to_float(from[d * stride]) : 0.0f;
    }

    template <typename T>
    __device__ __forceinline__ void load(const T* from, int64_t D, int64_t stride = 1) {
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) numbers[c] = number(from, c, D, stride);
    }

    // Dot product with a row in memory, in all lanes. Lanes of other rows may already have returned.
    template <typename T>
    __device__ __forceinline__ float dot(const T* from, int64_t D, int64_t stride = 1) const {
        const unsigned lanes = (0xffffffffu >> (32 - LANES)) << (threadIdx.y * LANES % 32);  // of this row in the warp
        float sum = 0.0f;
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) sum = fmaf(numbers[c], number(from, c, D, stride), sum);
#pragma unroll
        for (int step = 1; step < LANES; step *= 2) sum += __shfl_xor_sync(lanes, sum, step);
        return sum;
    }

    // Multiplies this row by alpha, and adds weight times a row in memory.
    template <typename T>
    __device__ __forceinline__ void add(float alpha, float weight, const T* from, int64_t D, int64_t stride = 1) {
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) numbers[c] = fmaf(weight, number(from, c, D, stride), numbers[c] * alpha);
    }

    // Stores this row times a factor, contiguously.
    template <typename T>
    __device__ __forceinline__ void store(T* to, float factor, int64_t D) const {
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            const int d = c * LANES + threadIdx.x;
            if (d < D) to[d] = from_float<T>(numbers[c] * factor);
        }
    }
};
