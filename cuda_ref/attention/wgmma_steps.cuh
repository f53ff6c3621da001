// wgmma for attention: 16 bits, widths of sums that hopper/wgmma.cuh lacks, a flag whether to add to the sums, and A in
// registers.
// Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
#pragma once

#include "hopper/wgmma.cuh"

#define ACC_88(i) ACC_64(i), ACC_8(i + 64), ACC_8(i + 72), ACC_8(i + 80)

// The operands after the sums. A in shared memory: descriptors of A and B, the flag whether to add, the flag whether B
// is MN-major. A in registers: four registers of A, then the same.
#define PRODUCT_SS(N, TYPE, SUMS, A, B, ADD, MN, ...)                                                         \
    asm volatile("{\n\t.reg .pred add;\n\tsetp.ne.b32 add, " ADD ", 0;\n\t"                                  \
                 "wgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPE "." TYPE " {" SUMS "}, " A ", " B      \
                 ", add, 1, 1, 0, " MN ";\n\t}"                                                               \
                 : __VA_ARGS__                                                                                \
                 : "l"(a), "l"(b), "r"(add), "n"(int(B_MN)))
#define PRODUCT_RS(N, TYPE, SUMS, A0, A1, A2, A3, B, ADD, MN, ...)                                            \
    asm volatile("{\n\t.reg .pred add;\n\tsetp.ne.b32 add, " ADD ", 0;\n\t"                                  \
                 "wgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPE "." TYPE " {" SUMS "}, {" A0 ", " A1   \
                 ", " A2 ", " A3 "}, " B ", add, 1, 1, " MN ";\n\t}"                                          \
                 : __VA_ARGS__                                                                                \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(int(B_MN)))
#define BY_TYPE(KIND, N, ...)                            \
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {    \
        KIND(N, "bf16", __VA_ARGS__);                    \
    } else {                                             \
        KIND(N, "f16", __VA_ARGS__);                     \
    }

// acc = A B, or acc += A B with add = 1; A is K-major.
template <typename T, bool B_MN, int COUNT>
__device__ __forceinline__ void wgmma(float (&acc)[COUNT], uint64_t a, uint64_t b, int add) {
    if constexpr (COUNT == 32) {
        BY_TYPE(PRODUCT_SS, "64", SUMS_32, "%32", "%33", "%34", "%35", ACC_32(0));
    } else if constexpr (COUNT == 40) {
        BY_TYPE(PRODUCT_SS, "80", SUMS_40, "%40", "%41", "%42", "%43", ACC_40(0));
    } else if constexpr (COUNT == 64) {
        BY_TYPE(PRODUCT_SS, "128", SUMS_64, "%64", "%65", "%66", "%67", ACC_64(0));
    } else {
        static_assert(COUNT == 88, "N = 2 COUNT is 64, 80, 128 or 176");
        BY_TYPE(PRODUCT_SS, "176", SUMS_88, "%88", "%89", "%90", "%91", ACC_88(0));
    }
}

// wgmma with A in registers: a[0..3] are pairs of elements (row, 2 (t % 4)), (row + 8, 2 (t % 4)),
// (row, 2 (t % 4) + 8), (row + 8, 2 (t % 4) + 8), with row and t as in hopper/wgmma.cuh. The sums of 16 columns,
// rounded, therefore are the A of a next product.
template <typename T, bool B_MN, int COUNT>
__device__ __forceinline__ void wgmma(float (&acc)[COUNT], const uint32_t* a, uint64_t b, int add) {
    if constexpr (COUNT == 4) {
        BY_TYPE(PRODUCT_RS, "8", "%0, %1, %2, %3", "%4", "%5", "%6", "%7", "%8", "%9", "%10", "+f"(acc[0]), "+f"(acc[1]),
                "+f"(acc[2]), "+f"(acc[3]));
    } else if constexpr (COUNT == 8) {
        BY_TYPE(PRODUCT_RS, "16", SUMS_8, "%8", "%9", "%10", "%11", "%12", "%13", "%14", ACC_8(0));
    } else if constexpr (COUNT == 16) {
        BY_TYPE(PRODUCT_RS, "32", SUMS_16, "%16", "%17", "%18", "%19", "%20", "%21", "%22", ACC_16(0));
    } else if constexpr (COUNT == 32) {
        BY_TYPE(PRODUCT_RS, "64", SUMS_32, "%32", "%33", "%34", "%35", "%36", "%37", "%38", ACC_32(0));
    } else if constexpr (COUNT == 64) {
        BY_TYPE(PRODUCT_RS, "128", SUMS_64, "%64", "%65", "%66", "%67", "%68", "%69", "%70", ACC_64(0));
    } else {
        static_assert(COUNT == 128, "N = 2 COUNT is 8, 16, 32, 64, 128 or 256");
        BY_TYPE(PRODUCT_RS, "256", SUMS_128, "%128", "%129", "%130", "%131", "%132", "%133", "%134", ACC_64(0),
                ACC_64(64));
    }
}
