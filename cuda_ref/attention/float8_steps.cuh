// wgmma in float8 with A in registers, and the rounding of numbers to float8.
// Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
#pragma once

#include "common/float8.cuh"
#include "hopper/wgmma.cuh"

__device__ __forceinline__ float to_float(Float8 x) { return float8_to_float(x.bits); }

// acc = A B, or acc += A B with add = 1, for 32 terms. a[0..3] are elements 4 c ... 4 c + 3, with c = t % 4, of `row`
// and `row` + 8, and the same 16 elements further, with row and t as in hopper/wgmma.cuh.
template <int COUNT>
__device__ __forceinline__ void wgmma_float8(float (&acc)[COUNT], const uint32_t* a, uint64_t b, int add) {
#define PRODUCT(N, SUMS, A0, A1, A2, A3, B, ADD, ...)                                                                  \
    asm volatile("{\n\t.reg .pred add;\n\tsetp.ne.b32 add, " ADD ", 0;\n\t"                                           \
                 "wgmma.mma_async.sync.aligned.m64n" N "k32.f32.e4m3.e4m3 {" SUMS "}, {" A0 ", " A1 ", " A2 ", " A3   \
                 "}, " B ", add, 1, 1;\n\t}"                                                                          \
                 : __VA_ARGS__                                                                                        \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add))
    if constexpr (COUNT == 32) {
        PRODUCT("64", SUMS_32, "%32", "%33", "%34", "%35", "%36", "%37", ACC_32(0));
    } else if constexpr (COUNT == 64) {
        PRODUCT("128", SUMS_64, "%64", "%65", "%66", "%67", "%68", "%69", ACC_64(0));
    } else {
        static_assert(COUNT == 128, "N = 2 COUNT is 64, 128 or 256");
        PRODUCT("256", SUMS_128, "%128", "%129", "%130", "%131", "%132", "%133", ACC_64(0), ACC_64(64));
    }
#undef PRODUCT
}

// wgmma_wait_group<0> in a warp whose neighbours need not call it.
__device__ __forceinline__ void wgmma_wait_in_warp() { wgmma_wait_group<0>(); }

// Rounds two numbers to float8 and packs them, `low` into the lower byte.
__device__ __forceinline__ uint16_t rounded_float8_pair(float low, float high) {
    uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
}

__device__ __forceinline__ uint32_t joined(uint16_t low, uint16_t high) {
    uint32_t four;
    asm("mov.b32 %0, {%1, %2};" : "=r"(four) : "h"(low), "h"(high));
    return four;
}

// Keeps the compiler from computing these pairs later.
template <int COUNT>
__device__ __forceinline__ void warpgroup_fence_operand(uint16_t (&pairs)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+h"(pairs[i])::"memory");
}
