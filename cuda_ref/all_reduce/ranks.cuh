// Memory of all ranks (_runtime/symmetric.py): its layout, and the meeting of the same block of every rank.
#pragma once

#include <sched.h>

#include <type_traits>

#include "common/common.cuh"

constexpr int MAX_BLOCKS = 64, MAX_RANKS = 16;                // as in symmetric.py
constexpr int64_t HEADER = 4 * MAX_BLOCKS * (MAX_RANKS + 1);  // bytes
constexpr int THREADS = 512;

// Most meetings of a call. Meeting i of call c has the number c MEETINGS + i, so numbers grow from call to call.
constexpr unsigned MEETINGS = 64;

// Publishes all that this block wrote before a barrier: it is visible to a thread that reads the number by
// load_acquire.
__device__ __forceinline__ void store_release(unsigned* flag, unsigned number) {
#ifdef __CUDA_ARCH__
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(number) : "memory");
#else
    __atomic_store_n(flag, number, __ATOMIC_RELEASE);
#endif
}
__device__ __forceinline__ unsigned load_acquire(const unsigned* flag) {
    unsigned number;
#ifdef __CUDA_ARCH__
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(number) : "l"(flag) : "memory");
#else
    number = __atomic_load_n(flag, __ATOMIC_ACQUIRE);
#endif
    return number;
}

// The memory of all ranks, as this rank maps it. Flags and words are those of this block.
struct Ranks {
    const int64_t* addresses;
    int rank, ranks;

    // The number of the last meeting that rank `from` has come to, in the memory of rank `of`.
    __device__ __forceinline__ unsigned* flag(int of, int from) const {
        return reinterpret_cast<unsigned*>(addresses[of]) + blockIdx.x * MAX_RANKS + from;
    }
    // The number of calls so far, the same on all ranks. Calls use the halves of the data in turns.
    __device__ __forceinline__ unsigned* calls() const {
        return reinterpret_cast<unsigned*>(addresses[rank]) + MAX_BLOCKS * MAX_RANKS + blockIdx.x;
    }
    template <typename T>
    __device__ __forceinline__ T* data(int of, int64_t start) const {
        return reinterpret_cast<T*>(addresses[of] + HEADER + start);
    }
    // Waits for this block of every rank: what they wrote before is then visible. index: from 1 on in each call.
    __device__ __forceinline__ void meet(unsigned calls, unsigned index) const {
        const unsigned number = calls * MEETINGS + index;
        __syncthreads();  // a release also covers what other threads wrote before a barrier
        const int peer = threadIdx.x;
        if (peer < ranks) {
            store_release(flag(peer, rank), number);
            while (int(load_acquire(flag(rank, peer)) - number) < 0) {  // a peer may have come to the next one
#ifndef __CUDA_ARCH__
                sched_yield();  // another process is to come
#endif
            }
        }
        __syncthreads();
    }
    __device__ __forceinline__ void leave(unsigned calls) const {
        __syncthreads();  // all threads have read the number of calls
        if (threadIdx.x == 0) *this->calls() = calls + 1;
    }
};

// A vector in packs of 16 bytes; the last pack may be shorter. Packs are kept as four words: the compiler would unpack
// elements of 16 bits right after each load, and so wait for its data before the next one.
template <typename T>
struct Packs {
    static constexpr int LANES = 16 / sizeof(T), BITS = 8 * sizeof(T);
    using Bits = std::conditional_t<sizeof(T) == 4, unsigned, unsigned short>;
    int64_t n;  // elements of the vector

    __device__ __forceinline__ uint4 load(const T* x, int64_t pack) const {
        if ((pack + 1) * LANES <= n) return reinterpret_cast<const uint4*>(x)[pack];
        uint64_t low = 0, high = 0;
#pragma unroll 1  // seldom runs, and stands in the code of every load
        for (int64_t i = (pack + 1) * LANES - 1; i >= pack * LANES; --i) {
            high = high << BITS | low >> (64 - BITS);
            low = low << BITS | (i < n ? reinterpret_cast<const Bits*>(x)[i] : 0);
        }
        return {unsigned(low), unsigned(low >> 32), unsigned(high), unsigned(high >> 32)};
    }
    __device__ __forceinline__ void store(T* x, int64_t pack, const uint4& given) const {
        if ((pack + 1) * LANES <= n) {
            reinterpret_cast<uint4*>(x)[pack] = given;
            return;
        }
        uint64_t low = uint64_t(given.y) << 32 | given.x, high = uint64_t(given.w) << 32 | given.z;
#pragma unroll 1
        for (int64_t i = pack * LANES; i < n; ++i) {
            reinterpret_cast<Bits*>(x)[i] = Bits(low);
            low = low >> BITS | high << (64 - BITS);
            high >>= BITS;
        }
    }
};

// A sum of packs in float32.
template <typename T>
struct Sum {
    static constexpr int LANES = 16 / sizeof(T);
    float acc[LANES] = {};

    __device__ __forceinline__ void add(const uint4& words) {
        Pack<T, LANES> pack;
        memcpy(&pack, &words, 16);
#pragma unroll
        for (int lane = 0; lane < LANES; ++lane) acc[lane] += to_float(pack[lane]);
    }
    __device__ __forceinline__ uint4 rounded() const {
        Pack<T, LANES> pack;
#pragma unroll
        for (int lane = 0; lane < LANES; ++lane) pack[lane] = from_float<T>(acc[lane]);
        uint4 words;
        memcpy(&words, &pack, 16);
        return words;
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
    uint4 of[RANKS];

    // Their sum in float32, in the order of the ranks, rounded once.
    __device__ __forceinline__ uint4 sum() const {
        Sum<T> found;
#pragma unroll
        for (int rank = 0; rank < RANKS; ++rank) found.add(of[rank]);
        return found.rounded();
    }
};

// load(rank) of all ranks, by a number that is known: all loads are issued before the first sum.
template <typename T, int RANKS, typename Load>
__device__ __forceinline__ PacksOfAll<T, RANKS> load_of_all(Load load) {
    PacksOfAll<T, RANKS> found;
#pragma unroll
    for (int rank = 0; rank < RANKS; ++rank) found.of[rank] = load(rank);
    return found;
}

// Calls store(i, sum) for the packs from begin to end: the sum of load(rank, i) over all ranks. RANKS = 0: a number
// known at run time.
template <typename T, int RANKS, typename Load, typename Store>
__device__ __forceinline__ void for_sums(const Ranks& all, int64_t begin, int64_t end, Load load, Store store) {
    if constexpr (RANKS > 0) {
        for_packs<8 / RANKS>(
            begin, end, [&](int64_t i) { return load_of_all<T, RANKS>([&](int rank) { return load(rank, i); }); },
            [&](int64_t i, const PacksOfAll<T, RANKS>& found) { store(i, found.sum()); });
    } else {
        for (int64_t i = begin + threadIdx.x; i < end; i += THREADS) {
            Sum<T> sum;
            for (int rank = 0; rank < all.ranks; ++rank) sum.add(load(rank, i));
            store(i, sum.rounded());
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
