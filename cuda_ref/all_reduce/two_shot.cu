// out[i] = sum over ranks of x[i], in two steps: every rank adds one share, then reads the shares of all others
//
// A block copies its part of x to its rank's memory. Once the same block of every rank has done so, it adds its rank's
// share of that part over all ranks. Once all have added, it reads the shares of all ranks. A rank reads
// 2 (ranks - 1) / ranks n elements of the others, where all_reduce.cu reads (ranks - 1) n, but it waits twice.
// Calls use the halves of the memory in turns; each has a buffer of copies, and one of sums.
//
// Source: two-shot all-reduce of TensorRT-LLM and of PyTorch's symmetric memory.
#include <type_traits>

#include "all_reduce/ranks.cuh"

template <typename T, int RANKS>
__global__ void __launch_bounds__(THREADS)
    two_shot(const T* x, T* out, Ranks all, int64_t n, int64_t packs_of_block, int64_t half,
             int64_t buffer_bytes) {
    using P = typename Packs<T>::P;
    const Packs<T> packs{n};
    const int turn = *all.turn();
    const int64_t copies = turn * half, sums = copies + buffer_bytes;
    const int64_t begin = blockIdx.x * packs_of_block, total = ceil_div<int64_t>(n, Packs<T>::LANES);
    const int64_t end = begin + packs_of_block < total ? begin + packs_of_block : total;
    const int64_t share = packs_of_block / all.ranks;
    const auto end_of = [&](int rank) { return begin + (rank + 1) * share < end ? begin + (rank + 1) * share : end; };
    P *copy = all.data<P>(all.rank, copies), *sum = all.data<P>(all.rank, sums);
    for_packs(begin, end, [&](int64_t i) { return packs.load(x, i); }, [&](int64_t i, const P& pack) { copy[i] = pack; });
    all.meet();
    for_sums<T, RANKS>(all, copies, begin + all.rank * share, end_of(all.rank),
                       [&](int64_t i, const P& found) { sum[i] = found; });
    all.meet();
    for (int peer = 0; peer < all.ranks; ++peer) {
        const P* theirs = all.data<const P>(peer, sums);
        for_packs(begin + peer * share, end_of(peer), [&](int64_t i) { return theirs[i]; },
                  [&](int64_t i, const P& found) { packs.store(out, i, found); });
    }
    if (threadIdx.x == 0) *all.turn() = 1 - turn;
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
            two_shot<T, decltype(known)::value><<<grid, block, 0, stream>>>(
                static_cast<const T*>(x), static_cast<T*>(out), all, n, packs_of_block, half, buffer_bytes);
        });
    });
}
