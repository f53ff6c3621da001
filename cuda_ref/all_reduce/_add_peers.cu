// out[i] = sum over ranks r of x_r[i], where x_r lies in the memory of rank r, in float32 and in the order of the ranks
//
// A kernel before this one has written x_r. A block waits for the same block of every rank, then reads its part of all
// of them: one meeting, and no copies.
//
// Source: one-shot all-reduce of TensorRT-LLM and of PyTorch's symmetric memory.
#include <type_traits>

#include "all_reduce/ranks.cuh"

template <typename T, int RANKS>
__global__ void __launch_bounds__(THREADS)
    add_of_all(T* out, Ranks all, int64_t n, int64_t packs_of_block, int64_t start) {
    const Packs<T> packs{n};
    const int64_t begin = blockIdx.x * packs_of_block, total = ceil_div<int64_t>(n, Packs<T>::LANES);
    const int64_t end = begin + packs_of_block < total ? begin + packs_of_block : total;
    const unsigned calls = *all.calls();
    all.meet(calls, 1);
    for_sums<T, RANKS>(all, begin, end, [&](int peer, int64_t i) { return all.data<const uint4>(peer, start)[i]; },
                       [&](int64_t i, const uint4& sum) { packs.store(out, i, sum); });
    all.leave(calls);
}

// start: where x_r begins in each rank's data, in bytes, a multiple of 16.
extern "C" int add_peers(void* out, const void* addresses, int rank, int ranks, int blocks, int64_t n,
                         int64_t packs_of_block, int64_t start, int64_t dtype, cudaStream_t stream,
                         LaunchRecord* record) {
    const dim3 grid(blocks), block(THREADS);
    record->set(grid, block);
    const Ranks all{static_cast<const int64_t*>(addresses), rank, ranks};
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        by_ranks(ranks, [&](auto known) {
            add_of_all<T, decltype(known)::value>
                <<<grid, block, 0, stream>>>(static_cast<T*>(out), all, n, packs_of_block, start);
        });
    });
}
