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

// Four codes at a time, the first in the lowest byte.
__device__ __forceinline__ uint32_t float8_of(const float (&x)[4]) {
    uint32_t word;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    asm("{\n.reg .b16 low, high;\n"
        "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
        "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
        "mov.b32 %0, {low, high};\n}"
        : "=r"(word)
        : "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]));
#else
    word = 0;
    for (int i = 0; i < 4; ++i) word |= uint32_t(float8_of(x[i])) << (8 * i);
#endif
    return word;
}

// |x| is at most 127 and not NaN: the sum with 1.5 * 2^23 has the integer in its low bits. A conversion takes longer.
__device__ __forceinline__ uint32_t int8_of(const float (&x)[4]) {
    uint32_t bits[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) bits[i] = __float_as_uint(x[i] + 0x1.8p23f);
    return __byte_perm(__byte_perm(bits[0], bits[1], 0x0040), __byte_perm(bits[2], bits[3], 0x0040), 0x5410);
}

// The type of codes, as an argument: a template parameter would double the time to compile the kernels.
struct Codes {
    bool int8;

    // The scale of a group whose largest |x| is this. Keeps NaN.
    __device__ __forceinline__ float scale(float largest) const {
        const float found = largest / (int8 ? 127.0f : 448.0f);
        return found < LEAST_SCALE ? LEAST_SCALE : found;
    }

    // Writes the codes of COUNT numbers one by one; `number(i)` is number i over the scale. It costs instructions, but the
    // rows of quantize, which wait for memory, take 2% longer with codes by fours.
    template <int COUNT, typename Number>
    __device__ __forceinline__ void write_singly(uint8_t (&codes)[COUNT], Number number) const {
        if (int8) {
#pragma unroll
            for (int i = 0; i < COUNT; ++i) codes[i] = int8_of(number(i));
        } else {
#pragma unroll
            for (int i = 0; i < COUNT; ++i) codes[i] = float8_of(number(i));
        }
    }

    __device__ __forceinline__ uint8_t code(float x) const { return int8 ? int8_of(x) : float8_of(x); }

    // Writes the codes of COUNT numbers, a multiple of four; `number(i)` is number i, and `inverse` 1 / scale.
    template <int COUNT, typename Number>
    __device__ __forceinline__ void write(uint8_t (&codes)[COUNT], float inverse, Number number) const {
        uint32_t words[COUNT / 4];
        const uint32_t finite = inverse > 0.0f ? ~0u : 0u;  // or a number of the group is NaN or infinite
#pragma unroll
        for (int i = 0; i < COUNT / 4; ++i) {
            float x[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) x[j] = number(4 * i + j) * inverse;
            words[i] = int8 ? int8_of(x) & finite : float8_of(x);
        }
        memcpy(codes, words, COUNT);
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
        codes[row * n + column] = kind.code(number(row, column) / scale);
    }
}
