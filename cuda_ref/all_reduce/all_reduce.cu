// out[i] = sum over ranks of x[i], in one step: every rank reads the vectors of all others (one-shot)
//
// A block copies its part of x to its rank's memory, waits for the same block of every rank, and adds their copies of
// that part in float32, in the order of the ranks. There is one meeting a call; for short vectors it takes most of the
// time. Calls use the halves of the memory in turns. A rank that waits in a call has finished the call before, so no
// rank still reads the half of that one.
//
// A rank reads (ranks - 1) n elements of the others; two_shot.cu reads 2 (ranks - 1) / ranks n.
//
// Source: one-shot all-reduce of TensorRT-LLM and of PyTorch's symmetric memory.
#include <type_traits>

#include "all_reduce/ranks.cuh"

template <typename T, int RANKS>
__global__ void __launch_bounds__(THREADS)
    one_shot(const T* x, T* out, Ranks all, int64_t n, int64_t packs_of_block, int64_t half) {
    const Packs<T> packs{n};
    const unsigned calls = *all.calls();
    const int64_t start = (calls & 1) * half;
    const int64_t begin = blockIdx.x * packs_of_block, total = ceil_div<int64_t>(n, Packs<T>::LANES);
    const int64_t end = begin + packs_of_block < total ? begin + packs_of_block : total;
    uint4* mine = all.data<uint4>(all.rank, start);
    for_packs(begin, end, [&](int64_t i) { return packs.load(x, i); },
              [&](int64_t i, const uint4& pack) { mine[i] = pack; });
    all.meet(calls, 1);
    for_sums<T, RANKS>(all, begin, end, [&](int peer, int64_t i) { return all.data<const uint4>(peer, start)[i]; },
                       [&](int64_t i, const uint4& sum) { packs.store(out, i, sum); });
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
        by_ranks(ranks, [&](auto known) {
            one_shot<T, decltype(known)::value><<<grid, block, 0, stream>>>(
                static_cast<const T*>(x), static_cast<T*>(out), all, n, packs_of_block, half);
        });
    });
}
