// The numbers of float8_e4m3fn codes, and the groups that share a scale.
#pragma once

#include "common/common.cuh"

constexpr int GROUP = 128;  // terms of k, and rows of b, that share a scale

// float8_e4m3fn: a sign, 4 bits of exponent with a bias of 7, 3 of the significand; 0x7f and 0xff are NaN.
__device__ __forceinline__ float number_of(uint8_t code) {
    const unsigned sign = unsigned(code & 0x80) << 24, size = code & 0x7f;
    if (size == 0x7f) return __uint_as_float(sign | 0x7fc00000u);
    const float small = float(int(size)) * 0.001953125f;  // below 2^-6: multiples of 2^-9
    return __uint_as_float(sign | (size < 8 ? __float_as_uint(small) : (size << 20) + ((127 - 7) << 23)));
}
