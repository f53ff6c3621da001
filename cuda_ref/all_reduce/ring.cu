// out[i] = sum over ranks of x[i], in a ring: each rank reads only from the rank before it
//
// The vector has one share a rank. In step s, rank r adds the share r - s - 1 of the rank before it to its own copy of
// that share; after ranks - 1 steps it has the sum of share r + 1. Then the sums go round in the same way. A rank reads
// 2 (ranks - 1) / ranks n elements, the least possible, always from one neighbour; but it waits 2 (ranks - 1) times, and
// partial sums are rounded to T. Blocks work on parts of their own, and only wait for the same block of other ranks.
//
// Source: P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
#include <type_traits>

#include "all_reduce/ranks.cuh"

template <typename T>
__global__ void __launch_bounds__(THREADS)
    ring(const T* x, T* out, Ranks all, int64_t n, int64_t packs_of_block, int64_t half) {
    const Packs<T> packs{n};
    const unsigned calls = *all.calls();
    const int ranks = all.ranks, before = (all.rank + ranks - 1) % ranks;
    const int64_t begin = blockIdx.x * packs_of_block, total = ceil_div<int64_t>(n, Packs<T>::LANES);
    const int64_t end = begin + packs_of_block < total ? begin + packs_of_block : total;
    const int64_t share = packs_of_block / ranks;
    uint4* mine = all.data<uint4>(all.rank, (calls & 1) * half);
    const uint4* theirs = all.data<const uint4>(before, (calls & 1) * half);
    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS) mine[i] = packs.load(x, i);
    for (int step = 0; step < 2 * (ranks - 1); ++step) {
        all.meet(calls, step + 1);  // the rank before has finished its last step
        const bool adds = step < ranks - 1;
        const int64_t first = begin + (all.rank + 2 * ranks - 1 - step) % ranks * share;
        const int64_t last = first + share < end ? first + share : end;
        for (int64_t i = first + threadIdx.x; i < last; i += THREADS) {
            const uint4 value = theirs[i];
            Sum<T> sum;
            sum.add(mine[i]);
            sum.add(value);
            mine[i] = adds ? sum.rounded() : value;
        }
    }
    __syncthreads();
    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS) packs.store(out, i, mine[i]);
    all.leave(calls);
}

extern "C" int all_reduce(const void* x, void* out, const void* addresses, int rank, int ranks, int blocks, int64_t n,
                          int64_t packs_of_block, int64_t half, int64_t buffer_bytes, int64_t dtype,
                          cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(blocks), block(THREADS);
    record->set(grid, block);
    const Ranks all{static_cast<const int64_t*>(addresses), rank, ranks};
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        ring<T><<<grid, block, 0, stream>>>(static_cast<const T*>(x), static_cast<T*>(out), all, n, packs_of_block,
                                            half);
    });
}
