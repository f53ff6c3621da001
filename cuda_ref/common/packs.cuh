// Accesses of several neighbouring elements by one instruction, and kernels that read rows of matrices by them.
#pragma once

#include <initializer_list>
#include <type_traits>

#include "common/common.cuh"

template <typename T, int N>
__device__ __forceinline__ Pack<T, N> read_pack(const T* from) {
    return *reinterpret_cast<const Pack<T, N>*>(from);
}

template <typename T, int N>
__device__ __forceinline__ void write_pack(T* to, const Pack<T, N>& pack) {
    *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

// A matrix whose rows have no gaps; `stride` elements from one to the next.
template <typename T>
struct Rows {
    const T* data;
    int64_t stride;

    __device__ __forceinline__ const T* at(int64_t row, int64_t column) const { return data + row * stride + column; }
};

// The place of a thread in rows that `across` blocks share: it has `lanes` columns from `column` on.
struct RowPlace {
    int64_t row, column;

    __device__ __forceinline__ RowPlace(unsigned across, int lanes)
        : row(blockIdx.x / across), column((int64_t(blockIdx.x % across) * blockDim.x + threadIdx.x) * lanes) {}
};

// True if packs of 16 bytes of all rows of the matrices and of their contiguous results are aligned.
template <typename T, typename... Matrices>
bool are_packs(int64_t m, int64_t n, std::initializer_list<const void*> results, const Matrices&... matrices) {
    constexpr int64_t LANES = 16 / sizeof(T);
    bool aligned = m == 1 || n % LANES == 0;
    for (const void* each : results) aligned = aligned && is_aligned(each, 16);
    return aligned && ((is_aligned(matrices.data, 16) && (m == 1 || matrices.stride % LANES == 0)) && ...);
}

constexpr int PACK_THREADS = 256;

// Calls f(lanes, across, grid), lanes as a type with a `value`: 16 bytes if `packs`, else one element.
template <typename T, typename F>
void by_packs(bool packs, int64_t m, int64_t n, LaunchRecord* record, F f) {
    const auto with = [&](auto lanes) {
        const int64_t across = ceil_div<int64_t>(n, int64_t(PACK_THREADS) * lanes());
        const dim3 grid{unsigned(m * across)};
        record->set(grid, PACK_THREADS);
        f(lanes, unsigned(across), grid);
    };
    if (packs) {
        with(std::integral_constant<int, 16 / sizeof(T)>());
    } else {
        with(std::integral_constant<int, 1>());
    }
}
