// out[i] = sum over ranks of x[i], in chunks: a chunk is copied while the one before is read from all ranks
//
// all_reduce.cu first copies all of x, which keeps the device's memory busy, and then reads from the other ranks, which
// keeps NVLink busy. Here the part of a block has up to 8 chunks, and one loop copies chunk c + 1 and reads chunk c. The
// blocks meet once a chunk.
//
// Source: all_reduce.cu, with its loops as a pipeline.
#include <type_traits>

#include "all_reduce/ranks.cuh"

constexpr int CHUNKS = 8;
constexpr int64_t SMALLEST = 2048;  // packs of a chunk: a meeting takes as long as 32 KiB of a block

template <typename T, int RANKS>
__global__ void __launch_bounds__(THREADS)
    overlapped(const T* x, T* out, Ranks all, int64_t n, int64_t packs_of_block, int64_t half, int64_t chunk) {
    struct Both {
        PacksOfAll<T, RANKS> here;
        uint4 next;
    };
    const Packs<T> packs{n};
    const unsigned calls = *all.calls();
    const int64_t start = (calls & 1) * half;
    const int64_t begin = blockIdx.x * packs_of_block, total = ceil_div<int64_t>(n, Packs<T>::LANES);
    const int64_t end = begin + packs_of_block < total ? begin + packs_of_block : total;
    const auto below = [&](int64_t i) { return i < end ? i : end; };
    uint4* mine = all.data<uint4>(all.rank, start);
    for_packs(begin, below(begin + chunk), [&](int64_t i) { return packs.load(x, i); },
              [&](int64_t i, const uint4& pack) { mine[i] = pack; });
    unsigned index = 0;
    for (int64_t first = begin; first < begin + packs_of_block; first += chunk) {
        all.meet(calls, ++index);
        const auto load = [&](int64_t i) {
            Both found;
            found.here = load_of_all<T, RANKS>([&](int peer) { return all.data<const uint4>(peer, start)[i]; });
            if (i + chunk < end) found.next = packs.load(x, i + chunk);
            return found;
        };
        for_packs<(RANKS > 4 ? 1 : 6 / RANKS)>(first, below(first + chunk), load, [&](int64_t i, const Both& found) {
            if (i + chunk < end) mine[i + chunk] = found.next;
            packs.store(out, i, found.here.sum());
        });
    }
    all.leave(calls);
}

extern "C" int all_reduce(const void* x, void* out, const void* addresses, int rank, int ranks, int blocks, int64_t n,
                          int64_t packs_of_block, int64_t half, int64_t buffer_bytes, int64_t dtype,
                          cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(blocks), block(THREADS);
    record->set(grid, block);
    const Ranks all{static_cast<const int64_t*>(addresses), rank, ranks};
    const int64_t eighth = ceil_div<int64_t>(packs_of_block, CHUNKS), chunk = eighth > SMALLEST ? eighth : SMALLEST;
    cudaError_t unknown = cudaSuccess;
    const cudaError_t launched = by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        by_ranks(ranks, [&](auto known) {
            constexpr int RANKS = decltype(known)::value;
            if constexpr (RANKS > 0) {
                overlapped<T, RANKS><<<grid, block, 0, stream>>>(static_cast<const T*>(x), static_cast<T*>(out), all, n,
                                                                 packs_of_block, half, chunk);
            } else {
                unknown = cudaErrorNotSupported;
            }
        });
    });
    return unknown != cudaSuccess ? unknown : launched;
}
