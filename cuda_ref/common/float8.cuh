// The numbers of float8_e4m3fn codes.
#pragma once

#include "common/common.cuh"

// A sign, 4 bits of exponent with a bias of 7, 3 of the significand; 0x7f and 0xff are NaN.
__device__ __forceinline__ float float8_to_float(uint8_t code) {
    const unsigned sign = unsigned(code & 0x80) << 24, magnitude = code & 0x7f;
    if (magnitude == 0x7f) return __uint_as_float(sign | 0x7fc00000u);
    const float small = float(int(magnitude)) * 0.001953125f;  // below 2^-6: multiples of 2^-9
    return __uint_as_float(sign | (magnitude < 8 ? __float_as_uint(small) : (magnitude << 20) + ((127 - 7) << 23)));
}

// Two neighbouring codes, the first in the low byte, as float16: exact.
__device__ __forceinline__ uint32_t float8_to_halves(uint16_t codes) {
    uint32_t halves;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(codes));
#else
    const __half both[2] = {from_float<__half>(float8_to_float(uint8_t(codes))),
                            from_float<__half>(float8_to_float(uint8_t(codes >> 8)))};
    memcpy(&halves, both, 4);
#endif
    return halves;
}
