// 16-bit elements at addresses that are not multiples of 16 bytes, in 16-byte accesses.
#pragma once

#include "common/common.cuh"

constexpr int CHUNK = 8;  // elements in 16 bytes

// The eight elements that begin `offset` elements after the start of low and continue in high; 0 <= offset < 8.
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

// x with zeros in place of all but the first `count` elements; count may be negative, or above eight.
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

// Loads that keep their place in the program. nvcc would move plain loads down to their first use, and so wait for one
// after the other.
__device__ __forceinline__ uint4 load_now(const uint4* from) {
#ifdef __CUDA_ARCH__
    uint4 x;
    asm volatile("ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "l"(from));
    return x;
#else
    return *from;
#endif
}
__device__ __forceinline__ uint32_t load_now(const uint32_t* from) {
#ifdef __CUDA_ARCH__
    uint32_t x;
    asm volatile("ld.global.nc.b32 %0, [%1];" : "=r"(x) : "l"(from));
    return x;
#else
    return *from;
#endif
}
__device__ __forceinline__ uint32_t load_now(const uint16_t* from) {
#ifdef __CUDA_ARCH__
    uint16_t x;
    asm volatile("ld.global.nc.b16 %0, [%1];" : "=h"(x) : "l"(from));
    return x;
#else
    return *from;
#endif
}

// Elements between the last multiple of 16 bytes and the address.
__host__ __device__ __forceinline__ int misalignment(const void* address) {
    return int(reinterpret_cast<uintptr_t>(address) % 16 / 2);
}

// Eight neighbours, read by loads of aligned 16 bytes that may still be in flight. Only the first `count` exist.
// All loads are in flight together if all `Neighbours` are constructed before the first `value`: there is no branch
// around a load. If the aligned 16 bytes do not all end before `end`, or if no neighbour exists, the 16 bytes at
// `somewhere` are read instead, and `loaded` is false.
struct Neighbours {
    uint4 low, high;
    int offset, count;
    bool loaded;

    Neighbours() = default;
    __device__ __forceinline__ Neighbours(const uint16_t* from, int count, const uint16_t* end,
                                          const uint16_t* somewhere)
        : offset(misalignment(from)), count(count) {
        const bool two = offset + min(count, CHUNK) > CHUNK;
        loaded = count > 0 && from - offset + (two ? 2 * CHUNK : CHUNK) <= end;
        const uint4* const aligned = reinterpret_cast<const uint4*>(loaded ? from - offset : somewhere);
        low = load_now(aligned);
        high = load_now(aligned + (loaded && two ? 1 : 0));
    }
    // The neighbours, with zeros for those that do not exist.
    __device__ __forceinline__ uint4 value() const { return first_elements(shifted(low, high, offset), count); }
};
