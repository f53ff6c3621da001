// Memory of all ranks (_runtime/symmetric.py): its layout, and the meeting of the same block of every rank.
#pragma once

#include "common/common.cuh"

constexpr int MAX_BLOCKS = 64, MAX_RANKS = 16;                // as in symmetric.py
constexpr int64_t HEADER = 4 * MAX_BLOCKS * (MAX_RANKS + 1);  // bytes
constexpr int THREADS = 512;

// The memory of all ranks, as this rank maps it. Flags and words are those of this block.
struct Ranks {
    const int64_t* addresses;
    int rank, ranks;

    __device__ __forceinline__ int* flag(int of, int from) const {
        return reinterpret_cast<int*>(addresses[of]) + blockIdx.x * MAX_RANKS + from;
    }
    // 0 or 1: which half of the data the next call uses; in packets.cu the number of calls.
    __device__ __forceinline__ int* turn() const {
        return reinterpret_cast<int*>(addresses[rank]) + MAX_BLOCKS * MAX_RANKS + blockIdx.x;
    }
    template <typename T>
    __device__ __forceinline__ T* data(int of, int64_t start) const {
        return reinterpret_cast<T*>(addresses[of] + HEADER + start);
    }
    // Waits for this block of every rank: what they wrote before is then visible. Leaves the flags 0.
    __device__ __forceinline__ void meet() const {
        __threadfence_system();
        __syncthreads();  // the flags are set after the writes of all threads
        const int peer = threadIdx.x;
        if (peer < ranks) {
            while (atomicCAS_system(flag(peer, rank), 0, 1) != 0) {
            }
            while (atomicCAS_system(flag(rank, peer), 1, 0) != 1) {
            }
            __threadfence_system();
        }
        __syncthreads();
    }
};

// A part of a vector in packs of 16 bytes; the last pack of the vector may be shorter.
template <typename T>
struct Packs {
    static constexpr int LANES = 16 / sizeof(T);
    int64_t n;  // elements of the vector

    using P = Pack<T, LANES>;
    __device__ __forceinline__ P load(const T* x, int64_t pack) const {
        if ((pack + 1) * LANES <= n) return reinterpret_cast<const P*>(x)[pack];
        P found;
        for (int lane = 0; lane < LANES; ++lane)
            found[lane] = pack * LANES + lane < n ? x[pack * LANES + lane] : from_float<T>(0.0f);
        return found;
    }
    __device__ __forceinline__ void store(T* x, int64_t pack, const P& given) const {
        if ((pack + 1) * LANES <= n) {
            reinterpret_cast<P*>(x)[pack] = given;
            return;
        }
        for (int lane = 0; lane < LANES; ++lane)
            if (pack * LANES + lane < n) x[pack * LANES + lane] = given[lane];
    }
};

// Calls store(i, load(i)) for the packs from begin to end, with UNROLL loads in flight before the first store: the
// compiler does not move a load before a store to memory that may be the same.
template <int UNROLL = 4, typename Load, typename Store>
__device__ __forceinline__ void for_packs(int64_t begin, int64_t end, Load load, Store store) {
    for (int64_t first = begin + threadIdx.x; first < end; first += THREADS * UNROLL) {
        decltype(load(first)) found[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (first + u * THREADS < end) found[u] = load(first + u * THREADS);
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (first + u * THREADS < end) store(first + u * THREADS, found[u]);
    }
}

// The same pack of every rank.
template <typename T, int RANKS>
struct PacksOfAll {
    Pack<T, 16 / sizeof(T)> of[RANKS];

    // Their sum in float32, in the order of the ranks, rounded once.
    __device__ __forceinline__ Pack<T, 16 / sizeof(T)> sum() const {
        Pack<T, 16 / sizeof(T)> found;
#pragma unroll
        for (int lane = 0; lane < int(16 / sizeof(T)); ++lane) {
            float acc = 0.0f;
#pragma unroll
            for (int peer = 0; peer < RANKS; ++peer) acc += to_float(of[peer][lane]);
            found[lane] = from_float<T>(acc);
        }
        return found;
    }
};

template <typename T, int RANKS>
__device__ __forceinline__ PacksOfAll<T, RANKS> load_of_all(const Ranks& all, int64_t start, int64_t pack) {
    PacksOfAll<T, RANKS> found;
#pragma unroll
    for (int peer = 0; peer < RANKS; ++peer) found.of[peer] = all.data<const Pack<T, 16 / sizeof(T)>>(peer, start)[pack];
    return found;
}

// Calls store(i, sum) for the packs from begin to end: the sum over all ranks. RANKS = 0: a number known at run time.
template <typename T, int RANKS, typename Store>
__device__ __forceinline__ void for_sums(const Ranks& all, int64_t start, int64_t begin, int64_t end, Store store) {
    constexpr int LANES = 16 / sizeof(T);
    using P = Pack<T, LANES>;
    if constexpr (RANKS > 0) {
        for_packs<8 / RANKS>(begin, end, [&](int64_t i) { return load_of_all<T, RANKS>(all, start, i); },
                             [&](int64_t i, const PacksOfAll<T, RANKS>& found) { store(i, found.sum()); });
    } else {
        for (int64_t i = begin + threadIdx.x; i < end; i += THREADS) {
            float acc[LANES] = {};
            for (int peer = 0; peer < all.ranks; ++peer) {
                const P given = all.data<const P>(peer, start)[i];
                for (int lane = 0; lane < LANES; ++lane) acc[lane] += to_float(given[lane]);
            }
            P sum;
            for (int lane = 0; lane < LANES; ++lane) sum[lane] = from_float<T>(acc[lane]);
            store(i, sum);
        }
    }
}

// Calls f with the number of ranks as a constant if it is a usual one, else with 0.
template <typename F>
inline void by_ranks(int ranks, F f) {
    switch (ranks) {
        case 2: f(std::integral_constant<int, 2>{}); break;
        case 4: f(std::integral_constant<int, 4>{}); break;
        case 8: f(std::integral_constant<int, 8>{}); break;
        default: f(std::integral_constant<int, 0>{});
    }
}
