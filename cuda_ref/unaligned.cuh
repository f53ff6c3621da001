// 16-bit elements at addresses that are no multiples of 16 bytes, in 16-byte accesses.
#pragma once

#include "common.cuh"

constexpr int CHUNK = 8;  // elements in 16 bytes

// The eight elements that begin `offset` elements after the start of low, continued in high; 0 <= offset < 8.
__device__ __forceinline__ uint4 shifted(uint4 low, uint4 high, int offset) {
    uint32_t x[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    if (offset & 4) {
#pragma unroll
        for (int i = 0; i < 6; ++i) x[i] = x[i + 2];
    }
    if (offset & 2) {
#pragma unroll
        for (int i = 0; i < 5; ++i) x[i] = x[i + 1];
    }
    if (offset & 1) {
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = x[i] >> 16 | x[i + 1] << 16;
    }
    return {x[0], x[1], x[2], x[3]};
}

// x with zeros for all but the first `count` elements; count may be negative, or more than eight.
__device__ __forceinline__ uint4 first_elements(uint4 x, int count) {
    uint32_t words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (count <= 2 * i) {
            words[i] = 0;
        } else if (count == 2 * i + 1) {
            words[i] &= 0xffff;
        }
    }
    return {words[0], words[1], words[2], words[3]};
}

// Elements between the last multiple of 16 bytes and the address.
__host__ __device__ __forceinline__ int misalignment(const void* address) {
    return int(reinterpret_cast<uintptr_t>(address) % 16 / 2);
}

// Eight neighbours, of which the first `count` exist; the others are zeros. All aligned 16 bytes that are read hold one.
__device__ __forceinline__ uint4 load_neighbours(const uint16_t* from, int count) {
    if (count <= 0) return {};
    const int offset = misalignment(from);
    const uint4* const aligned = reinterpret_cast<const uint4*>(from - offset);
    const uint4 low = aligned[0];
    const uint4 high = offset > 0 && offset + min(count, CHUNK) > CHUNK ? aligned[1] : uint4{};
    return first_elements(shifted(low, high, offset), count);
}
