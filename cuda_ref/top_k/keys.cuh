// Numbers and their indices as unsigned 64-bit integers, which order as the numbers do, equal ones by their indices.
//
// The upper half is the number with its bits changed to order as integers, one NaN above infinity. The lower half is
// 2^32 - 1 minus the index. No two elements of a row have the same key: a selection of the largest keys has no ties.
// No key is 0.
#pragma once

#include "common/common.cuh"

__device__ __forceinline__ uint64_t key_of(float x, uint32_t index) {
    const uint32_t bits = x != x ? 0x7fc00000u : __float_as_uint(x);
    const uint32_t ordered = bits >> 31 ? ~bits : bits | 0x80000000u;
    return uint64_t(ordered) << 32 | (0xffffffffu - index);
}

__device__ __forceinline__ uint32_t index_of(uint64_t key) { return 0xffffffffu - uint32_t(key); }
