// out[i] = sum over ranks of x[i], sent in packets that carry the number of the call
//
// all_reduce.cu meets the other ranks before it reads their data: a flag and a read cross NVLink one after the other.
// Here a rank stores its data to the memory of the others, each 4 bytes beside the number of the call. A store of 8
// bytes arrives as a whole, so the reader needs no other flag: it reads until the number is there. Twice the bytes, one
// crossing: for short vectors.
//
// Calls use the halves of the memory in turns. A rank sends packets of call c + 1 after it has left call c, and leaves
// c + 1 after it has packets of all ranks. So when a rank begins call c + 2, no rank still reads that half.
//
// Source: the LL protocol of NCCL.
#include <sched.h>

#include <type_traits>

#include "all_reduce/ranks.cuh"

// Two words of data, each beside the number of the call.
__device__ __forceinline__ void send(uint4* to, unsigned x, unsigned y, unsigned call) {
#ifdef __CUDA_ARCH__
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %3, %2, %3};" ::"l"(to), "r"(x), "r"(y), "r"(call) : "memory");
#else
    uint64_t* words = reinterpret_cast<uint64_t*>(to);
    __atomic_store_n(words, uint64_t(call) << 32 | x, __ATOMIC_RELAXED);
    __atomic_store_n(words + 1, uint64_t(call) << 32 | y, __ATOMIC_RELAXED);
#endif
}

__device__ __forceinline__ uint2 receive(const uint4* from, unsigned call) {
    uint4 found;
    do {
#ifdef __CUDA_ARCH__
        asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(found.x), "=r"(found.y), "=r"(found.z), "=r"(found.w)
                     : "l"(from)
                     : "memory");
#else
        const uint64_t* words = reinterpret_cast<const uint64_t*>(from);
        const uint64_t one = __atomic_load_n(words, __ATOMIC_RELAXED);
        const uint64_t two = __atomic_load_n(words + 1, __ATOMIC_RELAXED);
        found = {unsigned(one), unsigned(one >> 32), unsigned(two), unsigned(two >> 32)};
        if (found.y != call || found.w != call) sched_yield();  // another process is to send
#endif
    } while (found.y != call || found.w != call);
    return {found.x, found.z};
}

template <typename T, int RANKS>
__global__ void __launch_bounds__(THREADS)
    packets(const T* x, T* out, Ranks all, int64_t n, int64_t packs_of_block, int64_t half) {
    constexpr int LANES = Packs<T>::LANES, UNROLL = RANKS > 0 ? 2 : 1;  // packs in flight
    constexpr int PEERS = RANKS > 0 ? RANKS : 1;
    using P = typename Packs<T>::P;
    union Words {
        uint4 words;
        P pack;
        __device__ Words() : words{} {}
    };
    const Packs<T> packs{n};
    const int ranks = RANKS > 0 ? RANKS : all.ranks;
    const unsigned call = unsigned(*all.turn()) + 1;
    const int64_t start = (call & 1) * half;
    const int64_t begin = blockIdx.x * packs_of_block, total = ceil_div<int64_t>(n, LANES);
    const int64_t end = begin + packs_of_block < total ? begin + packs_of_block : total;
    // Two packets for each pack of each rank.
    const auto place = [&](int of, int from, int64_t i) { return all.data<uint4>(of, start) + 2 * (from * total + i); };
    for (int64_t first = begin + threadIdx.x; first < end; first += THREADS * UNROLL) {
        Words mine[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (first + u * THREADS < end) mine[u].pack = packs.load(x, first + u * THREADS);
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            if (first + u * THREADS >= end) break;
#pragma unroll PEERS
            for (int step = 1; step < ranks; ++step) {
                const int to = all.rank + step < ranks ? all.rank + step : all.rank + step - ranks;
                uint4* at = place(to, all.rank, first + u * THREADS);
                send(at, mine[u].words.x, mine[u].words.y, call);
                send(at + 1, mine[u].words.z, mine[u].words.w, call);
            }
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            if (first + u * THREADS >= end) break;
            float acc[LANES] = {};
#pragma unroll PEERS
            for (int peer = 0; peer < ranks; ++peer) {
                Words given = mine[u];
                if (peer != all.rank) {
                    const uint4* at = place(all.rank, peer, first + u * THREADS);
                    const uint2 one = receive(at, call), two = receive(at + 1, call);
                    given.words = {one.x, one.y, two.x, two.y};
                }
#pragma unroll
                for (int lane = 0; lane < LANES; ++lane) acc[lane] += to_float(given.pack[lane]);
            }
            P sum;
#pragma unroll
            for (int lane = 0; lane < LANES; ++lane) sum[lane] = from_float<T>(acc[lane]);
            packs.store(out, first + u * THREADS, sum);
        }
    }
    __syncthreads();  // all threads have read the number of the call
    if (threadIdx.x == 0) *all.turn() = int(call);
}

extern "C" int all_reduce(const void* x, void* out, const void* addresses, int rank, int ranks, int blocks, int64_t n,
                          int64_t packs_of_block, int64_t half, int64_t buffer_bytes, int64_t dtype,
                          cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(blocks), block(THREADS);
    record->set(grid, block);
    const Ranks all{static_cast<const int64_t*>(addresses), rank, ranks};
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        by_ranks(ranks, [&](auto known) {
            packets<T, decltype(known)::value><<<grid, block, 0, stream>>>(
                static_cast<const T*>(x), static_cast<T*>(out), all, n, packs_of_block, half);
        });
    });
}
