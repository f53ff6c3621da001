// Rows of a matrix in registers: loads and stores of 16 bytes, and reductions over the threads of a row.
//
// The threads of a row differ in threadIdx.x. threadIdx.y counts rows of a block; there are several only if a row has
// one warp. Thread t of T holds the packs t, t + T, ... of its part of the row. A pack is 16 bytes.
#pragma once

#include <type_traits>

#include "common/warp.cuh"

constexpr int MAX_THREADS = 1024;

// Element `lane` of a pack, as float.
template <typename T>
__device__ __forceinline__ float element(const uint4& words, int lane) {
    Pack<T, 16 / sizeof(T)> pack;
    memcpy(&pack, &words, sizeof(words));
    return to_float(pack[lane]);
}

// A part of a row: `n` elements from `data` on, `stride` apart.
template <typename T>
struct Part {
    T* data;
    int n;
    int64_t stride;
};

// A part of a row in registers, PACKS packs per thread. PACKED: the part is contiguous, begins and ends at multiples of
// 16 bytes, and a thread accesses whole packs. Otherwise neighbouring threads access neighbouring elements.
template <typename T, int PACKS, bool PACKED>
struct Registers {
    static constexpr int LANES = 16 / sizeof(T);
    uint4 v[PACKS];

    __device__ __forceinline__ static int index(int pack, int lane) {
        return PACKED ? (pack * int(blockDim.x) + int(threadIdx.x)) * LANES + lane
                      : (pack * LANES + lane) * int(blockDim.x) + int(threadIdx.x);
    }

    // Loads pack `number` of this thread. Elements beyond the row are `beyond`.
    __device__ __forceinline__ static uint4 load_pack(const Part<const T>& x, int number, float beyond) {
        if (PACKED && index(number, 0) < x.n) return *reinterpret_cast<const uint4*>(x.data + index(number, 0));
        Pack<T, LANES> pack;
#pragma unroll
        for (int lane = 0; lane < LANES; ++lane) {
            const int i = index(number, lane);
            pack[lane] = !PACKED && i < x.n ? x.data[i * x.stride] : from_float<T>(beyond);
        }
        uint4 words;
        memcpy(&words, &pack, sizeof(words));
        return words;
    }

    __device__ __forceinline__ void load(const Part<const T>& x, float beyond) {
#pragma unroll
        for (int pack = 0; pack < PACKS; ++pack) v[pack] = load_pack(x, pack, beyond);
    }

    // Calls f(element as float) for each element.
    template <typename F>
    __device__ __forceinline__ void each(F f) const {
#pragma unroll
        for (int pack = 0; pack < PACKS; ++pack) {
#pragma unroll
            for (int lane = 0; lane < LANES; ++lane) f(element<T>(v[pack], lane));
        }
    }

    // Calls f(element as float) for each element of a row of n elements.
    template <typename F>
    __device__ __forceinline__ void each_within(int n, F f) const {
#pragma unroll
        for (int pack = 0; pack < PACKS; ++pack) {
            if (PACKED && index(pack, 0) >= n) break;
#pragma unroll
            for (int lane = 0; lane < LANES; ++lane) {
                if (PACKED || index(pack, lane) < n) f(element<T>(v[pack], lane));
            }
        }
    }

    // Called between two passes: keeps the compiler from holding the elements as floats, in twice the registers.
    __device__ __forceinline__ void stay_packed() {
#ifdef __CUDA_ARCH__
        if constexpr (sizeof(T) < 4) {
#pragma unroll
            for (int pack = 0; pack < PACKS; ++pack) {
                asm volatile("" : "+r"(v[pack].x), "+r"(v[pack].y), "+r"(v[pack].z), "+r"(v[pack].w));
            }
        }
#endif
    }

    // Stores f(element as float, the operands' elements at the same position as float).
    template <typename F, typename... Operands>
    __device__ __forceinline__ void store(const Part<T>& out, F f, const Operands&... operands) const {
#pragma unroll
        for (int pack = 0; pack < PACKS; ++pack) {
            if (index(pack, 0) < out.n) store_pack(out, pack, f, v[pack], load_pack(operands, pack, 0.0f)...);
        }
    }

    template <typename F, typename... Words>
    __device__ __forceinline__ static void store_pack(const Part<T>& out, int number, F f, const Words&... words) {
        Pack<T, LANES> pack;
#pragma unroll
        for (int lane = 0; lane < LANES; ++lane) pack[lane] = from_float<T>(f(element<T>(words, lane)...));
        if constexpr (PACKED) {
            uint4 result;
            memcpy(&result, &pack, sizeof(result));
            *reinterpret_cast<uint4*>(out.data + index(number, 0)) = result;
        } else {
#pragma unroll
            for (int lane = 0; lane < LANES; ++lane) {
                const int i = index(number, lane);
                if (i < out.n) out.data[i * out.stride] = pack[lane];
            }
        }
    }
};

// Combines the values of all threads of the row in this block in a fixed order; every thread gets the result.
// `scratch`: shared memory, one place per warp. Successive calls use different memory, which saves a barrier.
template <typename F>
__device__ __forceinline__ float over_block(float value, F combine, float* scratch) {
    value = over_warp(value, combine);
    if (blockDim.x == WARP) return value;
    if (threadIdx.x % WARP == 0) scratch[threadIdx.x / WARP] = value;
    __syncthreads();
    const int lane = threadIdx.x % WARP;
    return over_warp(lane < blockDim.x / WARP ? scratch[lane] : F::NEUTRAL, combine);
}

// The division of rows among threads. rows: per block; packs: per thread; held: true if the threads hold a row.
struct Division {
    dim3 block;
    int64_t rows;
    int packs;
    bool packed, held;

    dim3 grid(int64_t m) const { return dim3(unsigned(ceil_div(m, rows))); }
};

constexpr int WARP_PACKS = 4;   // packs per thread in the longest row of a warp
constexpr int WARP_ROWS = 4;    // rows per block, if each has one warp
constexpr int BLOCK_PACKS = 4;  // packs per thread of a block with one row: enough loads in flight
constexpr int MOST_PACKS = 8;   // packs per thread in longer packed rows; in other rows addresses take registers too
constexpr int PAIR = 512;       // threads: with 8 packs each, two blocks take all registers of a multiprocessor

// Divides rows: a warp per short row, a block per longer one. vectors: n elements each, read with each row.
template <typename T, typename... Vectors>
Division divide_rows(const T* x, int64_t m, int64_t n, int64_t stride_m, int64_t stride_n, const Vectors*... vectors) {
    constexpr int64_t LANES = 16 / sizeof(T);
    const bool aligned = is_aligned(x, 16) && (is_aligned(vectors, 16) && ...);
    const bool packed = aligned && n % LANES == 0 && stride_n == 1 && (m == 1 || stride_m % LANES == 0);
    const int64_t packs = ceil_div(n, LANES);
    if (packs <= WARP * WARP_PACKS) {
        const int each = int(ceil_div<int64_t>(packs, WARP));
        return {dim3(WARP, WARP_ROWS), WARP_ROWS, each < 3 ? each : 4, packed, true};
    }
    const int each = packed && packs > PAIR * BLOCK_PACKS ? MOST_PACKS : BLOCK_PACKS;
    const int64_t threads = ceil_div<int64_t>(packs, WARP * each) * WARP;
    if (threads <= MAX_THREADS) return {dim3(unsigned(threads)), 1, each, packed, true};
    return {dim3(MAX_THREADS), 1, BLOCK_PACKS, packed, false};
}

// Calls f(PACKS, PACKED), as types with a `value`, for the packs of a division.
template <typename F>
void by_division(const Division& division, F f) {
    constexpr std::true_type yes;
    constexpr std::false_type no;
    const auto with = [&](auto number) { division.packed ? f(number, yes) : f(number, no); };
    switch (division.packs) {
        case 1: with(std::integral_constant<int, 1>()); break;
        case 2: with(std::integral_constant<int, 2>()); break;
        case 4: with(std::integral_constant<int, 4>()); break;
        case 8: f(std::integral_constant<int, 8>(), yes); break;
    }
}
