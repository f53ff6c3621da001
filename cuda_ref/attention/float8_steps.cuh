// wgmma in float8 with A in registers, and the rounding of four numbers to float8.
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

// Rounds four numbers to float8 and packs them, the first into the lowest byte.
__device__ __forceinline__ uint32_t rounded_four(float x0, float x1, float x2, float x3) {
    uint32_t four;
    asm("{\n\t.reg .b16 low, high;\n\t"
        "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n\tcvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n\t"
        "mov.b32 %0, {low, high};\n\t}"
        : "=r"(four)
        : "f"(x0), "f"(x1), "f"(x2), "f"(x3));
    return four;
}
