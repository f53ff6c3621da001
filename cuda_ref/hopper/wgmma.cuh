// wgmma: a warpgroup (four warps, the first a multiple of four) multiplies a 64 x K by a K x N matrix and adds the
// product to sums in its registers. B is in shared memory, A in shared memory or, in tf32, in registers. K is 32 bytes:
// 32 elements of float8, 16 of 16 bits, or 8 of tf32.
// Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
#pragma once

#include <type_traits>

#include "hopper/hopper.cuh"
#include "hopper/tma.cuh"

// The dtype of the output of a product.
template <typename T>
using Output = std::conditional_t<std::is_same_v<T, Float8>, __nv_bfloat16, T>;

// Matrix descriptor of an operand in boxes of 128 swizzled bytes, which begin at multiples of 1024. The operand, unless
// it is K-major, and the strides are multiples of 1024 too.
//   K-major   Rows of the box are rows of the operand. Eight of them take 1024 bytes, and the next eight begin `eight`
//             bytes further. The next K elements begin 32 bytes further in the row: the hardware swizzles the computed
//             address, so the operand may also begin at any row of a box.
//   MN-major  Rows of the box are k. Eight of them take 1024 bytes. The next K elements begin K rows further. The box
//             of the next 128 bytes of rows of the operand begins `box_stride` bytes further.
__device__ __forceinline__ uint64_t wgmma_descriptor(uint32_t address, int box_stride, int eight = 1024) {
    constexpr uint64_t SWIZZLE_128B = uint64_t(1) << 62;
    return SWIZZLE_128B | uint64_t(eight >> 4) << 32 | uint64_t(box_stride >> 4) << 16 | (address & 0x3ffff) >> 4;
}

// Distance from one K to the next, in the units of a descriptor (16 bytes); the second one for 16-bit types.
constexpr int K_MAJOR_STEP = 32 >> 4, MN_MAJOR_STEP = 16 * ROW_BYTES >> 4;

// Called before the first wgmma, and after other writes to registers that the next wgmma reads or adds to.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits for all committed groups but the last PRIOR.
template <int PRIOR>
__device__ __forceinline__ void wgmma_wait_group() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PRIOR) : "memory");
}

// Keeps the compiler from moving reads of the sums above the wait that precedes this call.
template <int COUNT>
__device__ __forceinline__ void warpgroup_fence_operand(float (&acc)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(acc[i])::"memory");
}

// Keeps the compiler from reusing the registers of A before that wait.
template <int COUNT>
__device__ __forceinline__ void warpgroup_fence_operand(uint32_t (&a)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+r"(a[i])::"memory");
}

// Fragment of the sums. For the columns 8 j ... 8 j + 7, thread t of the warpgroup holds in acc[4 j + 0..3]
//   (row, column), (row, column + 1), (row + 8, column), (row + 8, column + 1)
// with row = t / 32 * 16 + t % 32 / 4 and column = 8 j + t % 4 * 2.

// Operand lists of the asm statements: the registers %0 ... %(n - 1), and acc[i] ... acc[i + n - 1].
#define SUMS_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define SUMS_16 SUMS_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define SUMS_24 SUMS_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define SUMS_32 SUMS_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define SUMS_40 SUMS_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define SUMS_48 SUMS_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define SUMS_56 SUMS_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define SUMS_64 SUMS_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define SUMS_72 SUMS_64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define SUMS_80 SUMS_72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define SUMS_88 SUMS_80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define SUMS_96 SUMS_88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define SUMS_104 SUMS_96 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define SUMS_112 SUMS_104 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define SUMS_120 SUMS_112 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define SUMS_128 SUMS_120 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define ACC_8(i)                                                                                             \
    "+f"(acc[i]), "+f"(acc[i + 1]), "+f"(acc[i + 2]), "+f"(acc[i + 3]), "+f"(acc[i + 4]), "+f"(acc[i + 5]), \
        "+f"(acc[i + 6]), "+f"(acc[i + 7])
#define ACC_16(i) ACC_8(i), ACC_8(i + 8)
#define ACC_24(i) ACC_16(i), ACC_8(i + 16)
#define ACC_32(i) ACC_16(i), ACC_16(i + 16)
#define ACC_40(i) ACC_32(i), ACC_8(i + 32)
#define ACC_48(i) ACC_32(i), ACC_16(i + 32)
#define ACC_56(i) ACC_32(i), ACC_24(i + 32)
#define ACC_64(i) ACC_32(i), ACC_32(i + 32)
// After the sums, a and b come flags: whether to add to the sums (float8), factors 1 of a and b, and whether a and b
// are MN-major (16 bits).
#define WGMMA_8(N_, SUMS, A, B, ADD_, ...)                                                                         \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" N_ "k32.f32.e4m3.e4m3 {" SUMS "}, " A ", " B ", " ADD_        \
                 ", 1, 1;"                                                                                         \
                 : __VA_ARGS__                                                                                     \
                 : "l"(a), "l"(b), "n"(int(ADD)))
#define WGMMA_16(N_, TYPE, SUMS, A, B, A_MN_, B_MN_, ...)                                                          \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" N_ "k16.f32." TYPE "." TYPE " {" SUMS "}, " A ", " B          \
                 ", 1, 1, 1, " A_MN_ ", " B_MN_ ";"                                                                \
                 : __VA_ARGS__                                                                                     \
                 : "l"(a), "l"(b), "n"(int(A_MN)), "n"(int(B_MN)))
#define WGMMA_32(N_, SUMS, A, B, ...)                                                                              \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" N_ "k8.f32.tf32.tf32 {" SUMS "}, " A ", " B ", 1, 1, 1;"      \
                 : __VA_ARGS__                                                                                     \
                 : "l"(a), "l"(b))
#define WGMMA(N_, SUMS, A, B, A_MN_, B_MN_, ...)                             \
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {                         \
        WGMMA_16(N_, "bf16", SUMS, A, B, A_MN_, B_MN_, __VA_ARGS__);          \
    } else if constexpr (std::is_same_v<T, __half>) {                         \
        WGMMA_16(N_, "f16", SUMS, A, B, A_MN_, B_MN_, __VA_ARGS__);           \
    } else if constexpr (std::is_same_v<T, Float8>) {                         \
        WGMMA_8(N_, SUMS, A, B, A_MN_, __VA_ARGS__);                          \
    } else {                                                                  \
        WGMMA_32(N_, SUMS, A, B, __VA_ARGS__);                                \
    }

// acc[0 ... COUNT - 1] += A B, both operands by descriptors; with ADD = false (float8 only) they become A B.
template <typename T, bool A_MN, bool B_MN, bool ADD, int COUNT>
__device__ __forceinline__ void wgmma_sums(float* acc, uint64_t a, uint64_t b) {
    static_assert(COUNT % 8 == 0 && COUNT <= 128, "N = 2 COUNT is a multiple of 16");
    static_assert(sizeof(T) == 2 || !(A_MN || B_MN), "only 16-bit operands may be MN-major");
    static_assert(sizeof(T) == 1 || ADD, "");
    if constexpr (COUNT == 8) {
        WGMMA("16", SUMS_8, "%8", "%9", "%10", "%11", ACC_8(0));
    } else if constexpr (COUNT == 16) {
        WGMMA("32", SUMS_16, "%16", "%17", "%18", "%19", ACC_16(0));
    } else if constexpr (COUNT == 24) {
        WGMMA("48", SUMS_24, "%24", "%25", "%26", "%27", ACC_24(0));
    } else if constexpr (COUNT == 32) {
        WGMMA("64", SUMS_32, "%32", "%33", "%34", "%35", ACC_32(0));
    } else if constexpr (COUNT == 40) {
        WGMMA("80", SUMS_40, "%40", "%41", "%42", "%43", ACC_40(0));
    } else if constexpr (COUNT == 48) {
        WGMMA("96", SUMS_48, "%48", "%49", "%50", "%51", ACC_48(0));
    } else if constexpr (COUNT == 56) {
        WGMMA("112", SUMS_56, "%56", "%57", "%58", "%59", ACC_56(0));
    } else if constexpr (COUNT == 64) {
        WGMMA("128", SUMS_64, "%64", "%65", "%66", "%67", ACC_64(0));
    } else if constexpr (COUNT == 72) {
        WGMMA("144", SUMS_72, "%72", "%73", "%74", "%75", ACC_64(0), ACC_8(64));
    } else if constexpr (COUNT == 80) {
        WGMMA("160", SUMS_80, "%80", "%81", "%82", "%83", ACC_64(0), ACC_16(64));
    } else if constexpr (COUNT == 88) {
        WGMMA("176", SUMS_88, "%88", "%89", "%90", "%91", ACC_64(0), ACC_24(64));
    } else if constexpr (COUNT == 96) {
        WGMMA("192", SUMS_96, "%96", "%97", "%98", "%99", ACC_64(0), ACC_32(64));
    } else if constexpr (COUNT == 104) {
        WGMMA("208", SUMS_104, "%104", "%105", "%106", "%107", ACC_64(0), ACC_40(64));
    } else if constexpr (COUNT == 112) {
        WGMMA("224", SUMS_112, "%112", "%113", "%114", "%115", ACC_64(0), ACC_48(64));
    } else if constexpr (COUNT == 120) {
        WGMMA("240", SUMS_120, "%120", "%121", "%122", "%123", ACC_64(0), ACC_56(64));
    } else {
        WGMMA("256", SUMS_128, "%128", "%129", "%130", "%131", ACC_64(0), ACC_64(64));
    }
}

// acc += A B; with ADD = false acc = A B.
template <typename T, bool A_MN, bool B_MN, bool ADD = true, int COUNT>
__device__ __forceinline__ void wgmma(float (&acc)[COUNT], uint64_t a, uint64_t b) {
    wgmma_sums<T, A_MN, B_MN, ADD, COUNT>(acc, a, b);
}

// acc += A B in tf32 with A in registers: a[0..3] are the elements (row, t % 4), (row + 8, t % 4), (row, t % 4 + 4),
// (row + 8, t % 4 + 4), with row and t as above. A may then be MN-major in shared memory.
template <int COUNT>
__device__ __forceinline__ void wgmma(float (&acc)[COUNT], const uint32_t* a, uint64_t b) {
    static_assert(COUNT == 32 || COUNT == 64 || COUNT == 96 || COUNT == 128, "N = 2 COUNT is 64, 128, 192 or 256");
#define WGMMA_RS(N_, SUMS, A0, A1, A2, A3, B, ...)                                                        \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" N_ "k8.f32.tf32.tf32 {" SUMS "}, {" A0 ", " A1 ", " A2 \
                 ", " A3 "}, " B ", 1, 1, 1;"                                                             \
                 : __VA_ARGS__                                                                            \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
    if constexpr (COUNT == 32) {
        WGMMA_RS("64", SUMS_32, "%32", "%33", "%34", "%35", "%36", ACC_32(0));
    } else if constexpr (COUNT == 64) {
        WGMMA_RS("128", SUMS_64, "%64", "%65", "%66", "%67", "%68", ACC_64(0));
    } else if constexpr (COUNT == 96) {
        WGMMA_RS("192", SUMS_96, "%96", "%97", "%98", "%99", "%100", ACC_64(0), ACC_32(64));
    } else {
        WGMMA_RS("256", SUMS_128, "%128", "%129", "%130", "%131", "%132", ACC_64(0), ACC_64(64));
    }
}

// acc[0 ... COUNT - 1] += A B over one stage: the four products of 128 bytes of k.
template <typename T, bool A_MN, bool B_MN, int COUNT>
__device__ __forceinline__ void wgmma_stage_sums(float* acc, uint64_t a, uint64_t b) {
    static_assert(sizeof(T) == 2 || !(A_MN || B_MN), "only 16-bit operands may be MN-major");
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        wgmma_sums<T, A_MN, B_MN, true, COUNT>(acc, a + k * (A_MN ? MN_MAJOR_STEP : K_MAJOR_STEP),
                                               b + k * (B_MN ? MN_MAJOR_STEP : K_MAJOR_STEP));
    }
}
template <typename T, bool A_MN, bool B_MN, int COUNT>
__device__ __forceinline__ void wgmma_stage(float (&acc)[COUNT], uint64_t a, uint64_t b) {
    wgmma_stage_sums<T, A_MN, B_MN, COUNT>(acc, a, b);
}
