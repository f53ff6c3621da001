// The product of one stage of fitted.cuh, by a wgmma whose number of columns is chosen at run time.
// Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions" and "brx.idx".
#pragma once

#include "hopper/wgmma.cuh"

#define PRODUCT(N, TYPE, SUMS, STEP, A_MN, B_MN)                                                        \
    "wgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPE "." TYPE " {" SUMS "}, a" STEP ", b" STEP \
    ", 1, 1, 1, " A_MN ", " B_MN ";\n\t"
#define PRODUCTS(N, TYPE, SUMS, A_MN, B_MN)                                                                \
    "size" N ":\n\twgmma.fence.sync.aligned;\n\t" PRODUCT(N, TYPE, SUMS, "0", A_MN, B_MN)                   \
        PRODUCT(N, TYPE, SUMS, "1", A_MN, B_MN) PRODUCT(N, TYPE, SUMS, "2", A_MN, B_MN)                    \
            PRODUCT(N, TYPE, SUMS, "3", A_MN, B_MN) "wgmma.commit_group.sync.aligned;\n\tbra.uni done;\n\t"
// A, B, SIZE, A_STEP, B_STEP, A_MN and B_MN are operands. LABELS and FURTHER hold the sizes that 192 columns lack.
#define STAGE(TYPE, LABELS, FURTHER, A, B, SIZE, A_STEP, B_STEP, A_MN, B_MN, ...)                                    \
    asm volatile(                                                                                                    \
        "{\n\t.reg .b64 a0, a1, a2, a3, b0, b1, b2, b3;\n\tmov.b64 a0, " A ";\n\tadd.s64 a1, a0, " A_STEP            \
        ";\n\tadd.s64 a2, a1, " A_STEP ";\n\tadd.s64 a3, a2, " A_STEP ";\n\tmov.b64 b0, " B                          \
        ";\n\tadd.s64 b1, b0, " B_STEP ";\n\tadd.s64 b2, b1, " B_STEP ";\n\tadd.s64 b3, b2, " B_STEP                 \
        ";\n\tsizes: .branchtargets size16, size32, size48, size64, size80, size96, size112, size128, size144, "     \
        "size160, size176, size192" LABELS ";\n\tbrx.idx.uni " SIZE ", sizes;\n\t"                                   \
        PRODUCTS("16", TYPE, SUMS_8, A_MN, B_MN) PRODUCTS("32", TYPE, SUMS_16, A_MN, B_MN)                           \
        PRODUCTS("48", TYPE, SUMS_24, A_MN, B_MN) PRODUCTS("64", TYPE, SUMS_32, A_MN, B_MN)                          \
        PRODUCTS("80", TYPE, SUMS_40, A_MN, B_MN) PRODUCTS("96", TYPE, SUMS_48, A_MN, B_MN)                          \
        PRODUCTS("112", TYPE, SUMS_56, A_MN, B_MN) PRODUCTS("128", TYPE, SUMS_64, A_MN, B_MN)                        \
        PRODUCTS("144", TYPE, SUMS_72, A_MN, B_MN) PRODUCTS("160", TYPE, SUMS_80, A_MN, B_MN)                        \
        PRODUCTS("176", TYPE, SUMS_88, A_MN, B_MN) PRODUCTS("192", TYPE, SUMS_96, A_MN, B_MN) FURTHER "done:\n\t}"   \
        : __VA_ARGS__                                                                                                \
        : "l"(a), "l"(b), "r"(size), "n"(a_step), "n"(b_step), "n"(int(A_IS_MN)), "n"(int(B_IS_MN))                  \
        : "memory")
#define FURTHER_LABELS ", size208, size224, size240, size256"
#define FURTHER_SIZES(TYPE, A_MN, B_MN)                                                      \
    PRODUCTS("208", TYPE, SUMS_104, A_MN, B_MN) PRODUCTS("224", TYPE, SUMS_112, A_MN, B_MN) \
    PRODUCTS("240", TYPE, SUMS_120, A_MN, B_MN) PRODUCTS("256", TYPE, SUMS_128, A_MN, B_MN)
#define STAGE_192(TYPE) \
    STAGE(TYPE, "", "", "%96", "%97", "%98", "%99", "%100", "%101", "%102", ACC_64(0), ACC_32(64))
#define STAGE_256(TYPE)                                                                                       \
    STAGE(TYPE, FURTHER_LABELS, FURTHER_SIZES(TYPE, "%133", "%134"), "%128", "%129", "%130", "%131", "%132", \
          "%133", "%134", ACC_64(0), ACC_64(64))

// acc += the product of one stage, for 16 (`size` + 1) columns. All sizes are in one asm statement, so that their sums
// stay in the same registers: between separate statements the compiler would move them.
template <typename T, bool A_IS_MN, bool B_IS_MN, int COUNT>
__device__ __forceinline__ void multiply_stage(float (&acc)[COUNT], uint64_t a, uint64_t b, int size) {
    constexpr int a_step = A_IS_MN ? MN_MAJOR_STEP : K_MAJOR_STEP, b_step = B_IS_MN ? MN_MAJOR_STEP : K_MAJOR_STEP;
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
        if constexpr (COUNT == 96) {
            STAGE_192("bf16");
        } else {
            STAGE_256("bf16");
        }
    } else {
        if constexpr (COUNT == 96) {
            STAGE_192("f16");
        } else {
            STAGE_256("f16");
        }
    }
}
