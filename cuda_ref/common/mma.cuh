// mma.sync: a warp multiplies a 16 x 16 by a 16 x 8 matrix of 16-bit elements and adds the product to float32 sums in
// its registers. ldmatrix loads the fragments from shared memory. On the CPU, lanes read each other's registers.
// Source: PTX ISA, "Warp Level Matrix Instructions".
#pragma once

#include <type_traits>

#include <cuda_pipeline.h>

#include "common/common.cuh"

// Fragments of lane l, with g = l / 4 and q = l % 4; pairs are neighbours in one register:
//   a[0..3]   (g, 2q), (g + 8, 2q), (g, 2q + 8), (g + 8, 2q + 8) of the left matrix, and the next element along k
//   b[0..1]   (2q, g), (2q + 8, g) of the right one, and the next element along k
//   sums      (g, 2q), (g, 2q + 1), (g + 8, 2q), (g + 8, 2q + 1)

// Loads four 8 x 8 matrices of 16-bit elements. Lane l passes the address of row l % 8 of matrix l / 8, a multiple of
// 16 bytes. It receives elements (g, 2q) and (g, 2q + 1) of matrix i in x[i]; with TRANSPOSED, (2q, g) and (2q + 1, g).
template <bool TRANSPOSED>
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&x)[4], const char* row) {
#ifdef __CUDACC__
    const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
    if constexpr (TRANSPOSED) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(address)
                     : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(address)
                     : "memory");
    }
#else
    const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    const char* const* const all = cuda_host::gather(row);
    for (int i = 0; i < 4; ++i) {
        uint16_t pair[2];
        for (int j = 0; j < 2; ++j) {
            const char* const source = all[i * 8 + (TRANSPOSED ? 2 * q + j : g)];
            memcpy(&pair[j], source + (TRANSPOSED ? g : 2 * q + j) * 2, 2);
        }
        memcpy(&x[i], pair, 4);
    }
#endif
}

// Copies `bytes` of 16 bytes to shared memory by cp.async; the others become zeros. __pipeline_memcpy_async would emit
// a branch and an instruction for each number of bytes that is not known at compile time.
__device__ __forceinline__ void copy_async(char* to, const char* from, int bytes) {
#ifdef __CUDA_ARCH__
    const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
#else
    __pipeline_memcpy_async(to, from, 16, 16 - bytes);
#endif
}

// sums += a b
template <typename T>
__device__ __forceinline__ void mma(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#ifdef __CUDACC__
    if constexpr (std::is_same_v<T, __half>) {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    } else {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
#else
    const int lane = threadIdx.x % 32;
    struct Pair {
        uint32_t low, high;  // terms 2q and 2q + 8
    };
    struct Fragments {
        Pair upper, lower, right;
    };
    const Fragments mine = {{a[0], a[2]}, {a[1], a[3]}, {b0, b1}};
    const Fragments* const all = cuda_host::gather(mine);
    for (int q = 0; q < 4; ++q) {
        Pack<T, 4> rows[2], columns[2];
        const Fragments& left = all[lane / 4 * 4 + q];
        const Pair x[2] = {left.upper, left.lower};
        const Pair y[2] = {all[lane % 4 * 8 + q].right, all[lane % 4 * 8 + 4 + q].right};
        memcpy(rows, x, sizeof(x));
        memcpy(columns, y, sizeof(y));
        for (int i = 0; i < 4; ++i) {
            for (int k = 0; k < 4; ++k) sums[i] += to_float(rows[i / 2][k]) * to_float(columns[i % 2][k]);
        }
    }
#endif
}
