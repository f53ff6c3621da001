// The functions of cuda_ref/hopper/wgmma.cuh on a CPU. Products are computed when they are waited for, by each thread its
// own sums.
#pragma once

#include <type_traits>

#include "hopper/tma.cuh"

constexpr int K_MAJOR_STEP = 32 >> 4, MN_MAJOR_STEP = 16 * ROW_BYTES >> 4;

template <typename T>
using Output = std::conditional_t<std::is_same_v<T, Float8>, __nv_bfloat16, T>;

inline uint64_t wgmma_descriptor(uint32_t address, int box_stride, int eight = 1024) {
    if (eight != 1024) stop("written for boxes of rows that follow each other");
    return uint64_t(box_stride >> 4) << 16 | address >> 4;
}

struct Products {
    Deferred open;
    std::vector<Deferred> groups;
};
inline Products& products() {
    static Products of[1024];
    return of[threadIdx.x];
}

inline void wgmma_fence() {}
inline void wgmma_commit_group() {
    products().groups.push_back(products().open);
    products().open.clear();
}
template <int PRIOR>
void wgmma_wait_group() {
    auto& groups = products().groups;
    while (int(groups.size()) > PRIOR) {
        run_all(groups.front());
        groups.erase(groups.begin());
    }
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

// Row r and element k of an operand in boxes of 128 bytes; an MN-major one has 16 bits.
template <typename T, bool MN_MAJOR>
float element(uint64_t descriptor, int r, int k) {
    const uint32_t start = uint32_t(descriptor & 0x3fff) << 4, box_stride = uint32_t(descriptor >> 16 & 0x3fff) << 4;
    T x;
    memcpy(&x, swizzled(MN_MAJOR ? start + r / 64 * box_stride + k * ROW_BYTES + r % 64 * 2
                                 : start + r * ROW_BYTES + k * int(sizeof(T))), sizeof x);
    return to_float(x);
}

// acc (+)= A B for the sums of this thread, whose two rows of A are given.
template <typename T, bool B_MN, int K>
void add_products(float* acc, int count, const float (&a)[2][K], uint64_t b, int add) {
    for (int i = 0; i < count; ++i) {
        const int column = i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
        float sum = add ? acc[i] : 0.0f;
        for (int k = 0; k < K; ++k) sum += a[i / 2 % 2][k] * element<T, B_MN>(b, column, k);
        acc[i] = sum;
    }
}

template <typename T, bool A_MN, bool B_MN, bool ADD = true, int COUNT>
void wgmma(float (&acc)[COUNT], uint64_t a, uint64_t b) {
    products().open.push_back([to = static_cast<float*>(acc), a, b] {
        const int row = threadIdx.x % WARPGROUP / 32 * 16 + threadIdx.x % 32 / 4;
        constexpr int K = 32 / sizeof(T);
        float x[2][K];
        for (int i = 0; i < 2 * K; ++i) x[i / K][i % K] = element<T, A_MN>(a, row + i / K * 8, i % K);
        add_products<T, B_MN>(to, COUNT, x, b, ADD);
    });
}

template <typename T, bool A_MN, bool B_MN, int COUNT>
void wgmma_stage(float (&acc)[COUNT], uint64_t a, uint64_t b) {
    for (int k = 0; k < 4; ++k) {
        wgmma<T, A_MN, B_MN>(acc, a + k * (A_MN ? MN_MAJOR_STEP : K_MAJOR_STEP),
                             b + k * (B_MN ? MN_MAJOR_STEP : K_MAJOR_STEP));
    }
}
