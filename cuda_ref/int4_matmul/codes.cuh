// Codes of 4 bits as pairs of 16-bit numbers for tensor cores.
#pragma once

#include <type_traits>

#include "common/common.cuh"

constexpr int GROUP = 128, MIDDLE = 8;  // terms that share a scale; the zero point if none is given

template <typename T>
using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;

// The bits of 1024 in float16 or 128 in bfloat16, in both halves. The last place of these numbers is 1: a code in the
// last bits adds itself to the number.
// Source: Kim et al., "Who Says Elephants Can't Run" (2022).
template <typename T>
constexpr uint32_t MAGIC = std::is_same_v<T, __half> ? 0x64006400u : 0x43004300u;

// The zero point of a group, from 0 to 15, as `less_zero` subtracts it.
template <typename T>
__device__ __forceinline__ uint32_t zero_pair(uint32_t zero) {
    return MAGIC<T> | zero | zero << 16;
}

// The codes in bits 0 to 3 and 16 to 19, less the zero point: exact.
template <typename T>
__device__ __forceinline__ uint32_t less_zero(uint32_t codes, uint32_t zero) {
#ifdef __CUDA_ARCH__
    uint32_t bits;  // one instruction: the compiler makes two of the expression below, which has two constants
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(bits) : "r"(codes), "r"(0x000f000fu), "r"(MAGIC<T>));
#else
    const uint32_t bits = (codes & 0x000f000fu) | MAGIC<T>;
#endif
    Pair<T> x, y;
    memcpy(&x, &bits, 4);
    memcpy(&y, &zero, 4);
    const Pair<T> difference = __hsub2(x, y);
    uint32_t result;
    memcpy(&result, &difference, 4);
    return result;
}

// Codes in units: code less zero is ONE<T> times a number of the type. A 16-bit number is proportional to its bits up
// to bit 7 (bfloat16) or 10 (float16), as subnormal numbers are. So a multiplication by a power of two takes a code
// from bits 0 to 3 or from bits 4 to 7, without a shift. The unit is the largest for which these powers exist.
template <typename T>
constexpr float ONE = std::is_same_v<T, __half> ? 512.0f : 64.0f;

// The powers for bits 0 to 3 and for bits 4 to 7, in both halves.
template <typename T>
constexpr uint32_t LOW_POWER = std::is_same_v<T, __half> ? 0x78007800u : 0x7f007f00u;
template <typename T>
constexpr uint32_t HIGH_POWER = std::is_same_v<T, __half> ? 0x68006800u : 0x7d007d00u;

template <typename T>
__device__ __forceinline__ Pair<T> pair_of(uint32_t bits) {
    Pair<T> pair;
    memcpy(&pair, &bits, 4);
    return pair;
}

// The negative zero points of two equal halves, in units.
template <typename T>
__device__ __forceinline__ Pair<T> minus_zeros(uint32_t zeros) {
    return __hmul2(pair_of<T>(zeros), pair_of<T>(LOW_POWER<T> | 0x80008000u));
}

// The codes in bits 4 HIGH to 4 HIGH + 3 and 16 bits above, less the zero points, in units: exact.
template <typename T, bool HIGH>
__device__ __forceinline__ uint32_t code_units(uint32_t codes, Pair<T> minus_zero) {
    const Pair<T> alone = pair_of<T>(codes & (HIGH ? 0x00f000f0u : 0x000f000fu));
    const Pair<T> units = __hfma2(alone, pair_of<T>(HIGH ? HIGH_POWER<T> : LOW_POWER<T>), minus_zero);
    uint32_t result;
    memcpy(&result, &units, 4);
    return result;
}

// Scales and zero points of groups; strides in elements, between rows of the weights and between groups. `zero` may be
// null.
template <typename T>
struct Groups {
    const T* scale;
    const uint8_t* zero;
    int64_t scale_row, scale_group, zero_row, zero_group;

    __device__ __forceinline__ T scale_of(int n, int group) const {
        return scale[n * scale_row + group * scale_group];
    }
    __device__ __forceinline__ uint32_t zero_of(int n, int group) const {
        return zero == nullptr ? MIDDLE : zero[n * zero_row + group * zero_group];
    }
};
