// The scale of a group of numbers, and the codes of its numbers.
#pragma once

#include "common/warp.cuh"

constexpr float LEAST_SCALE = 1.17549435e-38f;  // 2^-126, the smallest normal number

// |x| as bits: these order as the numbers do, with NaN above infinity. fmaxf loses a NaN.
__device__ __forceinline__ unsigned magnitude_of(float x) { return __float_as_uint(x) & 0x7fffffffu; }

// The larger of two |x|; NaN is the largest.
struct Largest {
    static constexpr float NEUTRAL = 0.0f;
    __device__ __forceinline__ float operator()(float a, float b) const { return a > b || a != a ? a : b; }
};

// float8_e4m3fn: 4 bits of exponent with a bias of 7, 3 of the significand, no infinity.
__device__ __forceinline__ uint8_t float8_of(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    uint16_t two;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(two) : "f"(0.0f), "f"(x));
    return uint8_t(two);
#else
    const unsigned sign = __float_as_uint(x) >> 24 & 0x80u, size = magnitude_of(x);
    if (size > 0x7f800000u) return uint8_t(sign | 0x7fu);  // NaN
    const float clamped = fminf(__uint_as_float(size), 448.0f);
    if (clamped < 0.015625f) return uint8_t(sign | unsigned(__float2int_rn(clamped * 512.0f)));  // multiples of 2^-9
    const unsigned bits = __float_as_uint(clamped);
    const unsigned rounded = bits + 0x7ffffu + (bits >> 20 & 1u);  // to nearest, ties to even
    return uint8_t(sign | ((rounded >> 20) - ((127 - 7) << 3)));
#endif
}

__device__ __forceinline__ uint8_t int8_of(float x) { return x == x ? uint8_t(__float2int_rn(x)) : uint8_t(0); }

// The type of codes, as an argument: a template parameter would double the time to compile the kernels.
struct Codes {
    bool int8;

    // The scale of a group whose largest |x| is this. Keeps NaN.
    __device__ __forceinline__ float scale(float largest) const {
        const float found = largest / (int8 ? 127.0f : 448.0f);
        return found < LEAST_SCALE ? LEAST_SCALE : found;
    }

    // Writes the codes of COUNT numbers; `number(i)` is number i.
    template <int COUNT, typename Number>
    __device__ __forceinline__ void write(uint8_t (&codes)[COUNT], Number number) const {
        if (int8) {
#pragma unroll
            for (int i = 0; i < COUNT; ++i) codes[i] = int8_of(number(i));
        } else {
#pragma unroll
            for (int i = 0; i < COUNT; ++i) codes[i] = float8_of(number(i));
        }
    }
};

// One warp stores the scale and the codes of a group: `rows` x `columns` elements of an (m, n) matrix, or fewer at its
// edges. Each lane computes one element at a time, and each element twice: for the largest, and for the code.
// number(row, column): an element.
template <typename Number>
__device__ __forceinline__ void code_group(Codes kind, int64_t group, int64_t m, int64_t n, int64_t rows, int64_t columns,
                                           uint8_t* codes, float* scales, Number number) {
    const int64_t across = ceil_div(n, columns), top = group / across * rows, left = group % across * columns;
    const int64_t width = min(columns, n - left), count = width * min(rows, m - top);

    unsigned size = 0;
    for (int64_t i = threadIdx.x; i < count; i += WARP) {
        size = max(size, magnitude_of(number(top + i / width, left + i % width)));
    }
    const float scale = kind.scale(over_warp(__uint_as_float(size), Largest()));
    if (threadIdx.x == 0) scales[group] = scale;
    for (int64_t i = threadIdx.x; i < count; i += WARP) {
        const int64_t row = top + i / width, column = left + i % width;
        uint8_t code[1];
        kind.write(code, [&](int) { return number(row, column) / scale; });
        codes[row * n + column] = code[0];
    }
}
