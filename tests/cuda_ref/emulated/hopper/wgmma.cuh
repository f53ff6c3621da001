// The functions of cuda_ref/hopper/wgmma.cuh on a CPU. Products are computed when they are waited for, by each thread its
// own sums.
#pragma once

#include <type_traits>

#include "hopper/tma.cuh"

template <typename T>
using Output = std::conditional_t<std::is_same_v<T, Float8>, __nv_bfloat16, T>;

constexpr int K_MAJOR_STEP = 32 >> 4, MN_MAJOR_STEP = 16 * ROW_BYTES >> 4;

inline uint64_t wgmma_descriptor(uint32_t address, int box_stride, int eight = 1024) {
    if (eight != 1024) stop("written for boxes of rows that follow each other");
    return uint64_t(box_stride >> 4) << 16 | address >> 4;
}

inline Groups& products() {
    static Groups of[1024];
    return of[threadIdx.x];
}

inline void wgmma_fence() {}
inline void wgmma_commit_group() { products().commit(); }
template <int PRIOR>
void wgmma_wait_group() {
    products().wait(PRIOR);
    named_barrier_sync(8 + threadIdx.x / WARPGROUP, WARPGROUP);  // products of a warpgroup end together
}
template <typename T, int COUNT>
void warpgroup_fence_operand(T (&)[COUNT]) {}

inline float to_float(Float8 x) {
    const int exponent = x.bits >> 3 & 15, last = x.bits & 7;
    if ((x.bits & 0x7f) == 0x7f) return NAN;
    const float size = exponent ? ldexpf(float(8 + last), exponent - 10) : ldexpf(float(last), -9);
    return x.bits & 0x80 ? -size : size;
}

// Row r and element k of an operand in boxes of 128 bytes.
template <typename T, bool MN_MAJOR>
float element(uint64_t descriptor, int r, int k) {
    const uint32_t start = uint32_t(descriptor & 0x3fff) << 4, box_stride = uint32_t(descriptor >> 16 & 0x3fff) << 4;
    T x;
    memcpy(&x, swizzled(MN_MAJOR ? start + r / 64 * box_stride + k * ROW_BYTES + r % 64 * 2
                                 : start + r * ROW_BYTES + k * int(sizeof(T))), sizeof x);
    return to_float(x);
}

// acc = A B for K-major operands, added to acc if ADD.
template <typename T, bool A_MN, bool B_MN, bool ADD = true, int COUNT>
void wgmma(float (&acc)[COUNT], uint64_t a, uint64_t b) {
    products().open.push_back([to = static_cast<float*>(acc), a, b] {
        const int row = threadIdx.x % WARPGROUP / 32 * 16 + threadIdx.x % 32 / 4;
        for (int i = 0; i < COUNT; ++i) {
            const int column = i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
            float sum = ADD ? to[i] : 0.0f;
            for (int k = 0; k < 32 / int(sizeof(T)); ++k) {
                sum += element<T, A_MN>(a, row + i / 2 % 2 * 8, k) * element<T, B_MN>(b, column, k);
            }
            to[i] = sum;
        }
    });
}
template <typename T, bool A_MN, bool B_MN, int COUNT>
void wgmma_stage(float (&acc)[COUNT], uint64_t a, uint64_t b) {
    for (int k = 0; k < 4; ++k) wgmma<T, A_MN, B_MN>(acc, a + k * K_MAJOR_STEP, b + k * K_MAJOR_STEP);
}
