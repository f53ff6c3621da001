// Packets whose words are never 0: a rank stores them to the memory of the others, where every word was 0
//
// A word is 4 bytes, which arrive together, so the reader needs no flag: it reads until no word is 0, and leaves 0 for a
// later call. The highest bit of each word is inverted, so that only 0x80000000, a negative zero, would become 0. It is
// sent as a positive zero: a sum that begins at 0 does not change.
//
// A thread sends one round of packets before it reads that of the round before, so that packets arrive meanwhile. Calls
// use the halves of the memory in turns. A rank sends packets of call c + 1 after its kernel of call c has ended, and
// leaves c + 1 after packets of all ranks, or sums of them. So when a rank begins call c + 2, every rank has read and
// cleared that half.
//
// Source: the LL protocol of NCCL, with data for flags as in the Lamport kernels of TensorRT-LLM.
#pragma once

#include <type_traits>

#include "all_reduce/ranks.cuh"

constexpr unsigned NEGATIVE_ZERO = 0x80000000u;

__device__ __forceinline__ unsigned encoded(unsigned word) {
    return word == NEGATIVE_ZERO ? NEGATIVE_ZERO : word ^ NEGATIVE_ZERO;
}
__device__ __forceinline__ uint4 encoded(const uint4& pack) {
    return {encoded(pack.x), encoded(pack.y), encoded(pack.z), encoded(pack.w)};
}
__device__ __forceinline__ uint4 decoded(const uint4& packet) {
    return {packet.x ^ NEGATIVE_ZERO, packet.y ^ NEGATIVE_ZERO, packet.z ^ NEGATIVE_ZERO, packet.w ^ NEGATIVE_ZERO};
}

__device__ __forceinline__ void write(uint4* to, const uint4& packet) {
#ifdef __CUDA_ARCH__
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(packet.x), "r"(packet.y),
                 "r"(packet.z), "r"(packet.w)
                 : "memory");
#else
    __atomic_store_n(&to->x, packet.x, __ATOMIC_RELEASE);
    __atomic_store_n(&to->y, packet.y, __ATOMIC_RELEASE);
    __atomic_store_n(&to->z, packet.z, __ATOMIC_RELEASE);
    __atomic_store_n(&to->w, packet.w, __ATOMIC_RELEASE);
#endif
}

__device__ __forceinline__ uint4 read(const uint4* from) {
#ifdef __CUDA_ARCH__
    uint4 found;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(found.x), "=r"(found.y), "=r"(found.z), "=r"(found.w)
                 : "l"(from)
                 : "memory");
    return found;
#else
    return {__atomic_load_n(&from->x, __ATOMIC_ACQUIRE), __atomic_load_n(&from->y, __ATOMIC_ACQUIRE),
            __atomic_load_n(&from->z, __ATOMIC_ACQUIRE), __atomic_load_n(&from->w, __ATOMIC_ACQUIRE)};
#endif
}

// Waits for the packets at all places, and clears these. A place that is null has none: its pack stays.
template <int COUNT>
__device__ __forceinline__ void receive(uint4* const (&places)[COUNT], uint4 (&packs)[COUNT]) {
    uint4 found[COUNT];
    bool all_here;
    do {
        all_here = true;
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            if (places[k] != nullptr) found[k] = read(places[k]);
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            all_here &= places[k] == nullptr || (found[k].x && found[k].y && found[k].z && found[k].w);
#ifndef __CUDA_ARCH__
        if (!all_here) sched_yield();  // another process is to send
#endif
    } while (!all_here);
#pragma unroll
    for (int k = 0; k < COUNT; ++k) {
        if (places[k] == nullptr) continue;
        write(places[k], uint4{});
        packs[k] = decoded(found[k]);
    }
}

// One call, as a thread sees it. RANKS = 0: a number known at run time.
template <typename T, int RANKS>
struct Call {
    static constexpr int UNROLL = RANKS > 0 ? 8 / RANKS : 1;  // packs of a round
    static constexpr int GROUP = RANKS > 0 ? RANKS : 1;       // ranks whose packets are read at once

    const T* x;
    T* out;
    Ranks all;
    Packs<T> packs;
    int64_t slot, start;  // packs of a slot; the first byte of this call's half
    uint4* data[GROUP];   // of the rank after 0, 1, ... steps, if RANKS > 0

    __device__ __forceinline__ Call(const T* x, T* out, const Ranks& all, int64_t n, int64_t slot, int64_t start)
        : x(x), out(out), all(all), packs{n}, slot(slot), start(start) {
#pragma unroll
        for (int step = 0; step < GROUP; ++step) data[step] = all.data<uint4>(after(step), start);
    }
    __device__ __forceinline__ int ranks() const { return RANKS > 0 ? RANKS : all.ranks; }
    __device__ __forceinline__ int64_t stride() const { return int64_t(gridDim.x) * THREADS; }
    // The warps of a short vector are spread over all blocks.
    __device__ __forceinline__ int64_t begin() const {
        return (int64_t(threadIdx.x / 32) * gridDim.x + blockIdx.x) * 32 + threadIdx.x % 32;
    }
    __device__ __forceinline__ int after(int step) const {
        return all.rank + step < ranks() ? all.rank + step : all.rank + step - ranks();
    }
    // Pack i of a slot in the memory of the rank after `step`.
    __device__ __forceinline__ uint4* place(int step, int64_t which, int64_t i) const {
        return (RANKS > 0 ? data[step] : all.data<uint4>(after(step), start)) + which * slot + i;
    }
    // Whether the vector has pack i of the share that begins at pack `share`.
    __device__ __forceinline__ bool has(int64_t share, int64_t i) const {
        return i >= 0 && i < slot && (share + i) * Packs<T>::LANES < packs.n;
    }

    // Sends the round at `first` of the share that begins at share(rank) to each rank, into the slot `which`.
    template <typename Share>
    __device__ __forceinline__ void send(int64_t first, int which, Share share) const {
        constexpr int STEPS = RANKS > 0 ? RANKS - 1 : 1;
        for (int step = 1; step < ranks(); step += STEPS) {
            uint4 given[UNROLL * STEPS] = {};
#pragma unroll
            for (int k = 0; k < UNROLL * STEPS; ++k) {
                const int64_t i = first + k / STEPS * stride(), from = share(after(step + k % STEPS));
                if (has(from, i)) given[k] = packs.load(x, from + i);
            }
#pragma unroll
            for (int k = 0; k < UNROLL * STEPS; ++k) {
                const int to = step + k % STEPS;
                const int64_t i = first + k / STEPS * stride();
                if (has(share(after(to)), i)) write(place(to, which, i), encoded(given[k]));
            }
        }
    }

    // Adds the round at `first` of the share that begins at pack `share`, in the order of the ranks, and calls
    // use(i, sum) for its packs. Rank r has sent to slot r.
    template <typename Use>
    __device__ __forceinline__ void add(int64_t first, int64_t share, Use use) const {
        Sum<T> sums[UNROLL];
        for (int rank = 0; rank < ranks(); rank += GROUP) {
            uint4* places[UNROLL * GROUP];
            uint4 given[UNROLL * GROUP] = {};
#pragma unroll
            for (int k = 0; k < UNROLL * GROUP; ++k) {
                const int from = rank + k % GROUP;
                const int64_t i = first + k / GROUP * stride();
                places[k] = has(share, i) && from != all.rank ? place(0, from, i) : nullptr;
                if (has(share, i) && from == all.rank) given[k] = packs.load(x, share + i);
            }
            receive(places, given);
#pragma unroll
            for (int k = 0; k < UNROLL * GROUP; ++k) sums[k / GROUP].add(given[k]);
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (has(share, first + u * stride())) use(first + u * stride(), sums[u].rounded());
    }

    // Stores the round at `first` of the shares of all other ranks. Rank r has sent to slot `which` + r.
    __device__ __forceinline__ void take(int64_t first, int which) const {
        for (int rank = 0; rank < ranks(); rank += GROUP) {
            uint4* places[UNROLL * GROUP];
            uint4 given[UNROLL * GROUP] = {};
#pragma unroll
            for (int k = 0; k < UNROLL * GROUP; ++k) {
                const int from = rank + k % GROUP;
                const int64_t i = first + k / GROUP * stride();
                places[k] = has(from * slot, i) && from != all.rank ? place(0, which + from, i) : nullptr;
            }
            receive(places, given);
#pragma unroll
            for (int k = 0; k < UNROLL * GROUP; ++k)
                if (places[k] != nullptr)
                    packs.store(out, (rank + k % GROUP) * slot + first + k / GROUP * stride(), given[k]);
        }
    }
};
