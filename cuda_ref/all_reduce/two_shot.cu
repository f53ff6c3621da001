// out[i] = sum over ranks of x[i], in two steps: every rank adds one share, then sends its sums to all others
//
// A block cuts its part into a share for each rank, stores each share to the memory of its rank, and waits for the same
// block of every rank. It adds its own share over all ranks, stores the sums to the memory of all, and waits again. A
// rank sends 2 (ranks - 1) / ranks n elements, where in all_reduce.cu it reads (ranks - 1) n. A store does not wait for
// the one before. Every rank begins with the rank after it, so that no rank receives from all others at once.
//
// Shares have up to 8 chunks. Between two meetings a block sends a chunk, adds the chunk before, and copies the sums of
// the chunk before that to out: link and memory are busy together.
// Calls use the halves of the memory in turns; each has a buffer of shares, and one of sums.
//
// Source: two-shot all-reduce of TensorRT-LLM and of PyTorch's symmetric memory, with stores in place of reads.
#include <type_traits>

#include "all_reduce/ranks.cuh"

constexpr int CHUNKS = 8;
constexpr int64_t SMALLEST = 1024;  // packs of a chunk: a meeting takes as long as 16 KiB of a block

template <typename T, int RANKS>
__global__ void __launch_bounds__(THREADS)
    two_shot(const T* x, T* out, Ranks all, int64_t n, int64_t packs_of_block, int64_t half, int64_t buffer_bytes,
             int64_t chunk) {
    const Packs<T> packs{n};
    const int ranks = RANKS > 0 ? RANKS : all.ranks;
    const unsigned calls = *all.calls();
    const int64_t shares = (calls & 1) * half, sums = shares + buffer_bytes;
    const int64_t begin = blockIdx.x * packs_of_block, share = packs_of_block / ranks;
    const int64_t total = ceil_div<int64_t>(n, Packs<T>::LANES), chunks = ceil_div(share, chunk);
    const auto after = [&](int step) { return all.rank + step < ranks ? all.rank + step : all.rank + step - ranks; };
    // This block's part of the share of `of` that `from` has sent.
    const auto sent = [&](int of, int from) {
        return all.data<uint4>(of, shares) + (int64_t(from) * gridDim.x + blockIdx.x) * share;
    };
    // Calls f(first, last) with the packs of x in a chunk of a rank's share.
    const auto in_chunk = [&](int64_t which, int rank, auto f) {
        const int64_t first = begin + rank * share + which * chunk, of_chunk = share - which * chunk;
        const int64_t last = first + (chunk < of_chunk ? chunk : of_chunk);
        f(first, last < total ? last : total);
    };
    for (int64_t step = 0; step < chunks + 2; ++step) {
        if (step > 0) all.meet(calls, unsigned(step));
        for (int to = 1; step < chunks && to < ranks; ++to) {
            uint4* theirs = sent(after(to), all.rank) - (begin + after(to) * share);
            in_chunk(step, after(to), [&](int64_t first, int64_t last) {
                for_packs(first, last, [&](int64_t i) { return packs.load(x, i); },
                          [&](int64_t i, const uint4& pack) { theirs[i] = pack; });
            });
        }
        if (step > 0 && step <= chunks) {
            const int64_t mine = begin + all.rank * share;
            in_chunk(step - 1, all.rank, [&](int64_t first, int64_t last) {
                for_sums<T, RANKS>(
                    all, first, last,
                    [&](int rank, int64_t i) {
                        return rank == all.rank ? packs.load(x, i) : sent(all.rank, rank)[i - mine];
                    },
                    [&](int64_t i, const uint4& sum) {
                        packs.store(out, i, sum);
                        for (int to = 1; to < ranks; ++to) all.data<uint4>(after(to), sums)[i] = sum;
                    });
            });
        }
        for (int from = 1; step > 1 && from < ranks; ++from) {
            const uint4* found = all.data<const uint4>(all.rank, sums);
            in_chunk(step - 2, after(from), [&](int64_t first, int64_t last) {
                for_packs(first, last, [&](int64_t i) { return found[i]; },
                          [&](int64_t i, const uint4& sum) { packs.store(out, i, sum); });
            });
        }
    }
    all.leave(calls);
}

extern "C" int all_reduce(const void* x, void* out, const void* addresses, int rank, int ranks, int blocks, int64_t n,
                          int64_t packs_of_block, int64_t half, int64_t buffer_bytes, int64_t dtype,
                          cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(blocks), block(THREADS);
    record->set(grid, block);
    const Ranks all{static_cast<const int64_t*>(addresses), rank, ranks};
    const int64_t eighth = ceil_div<int64_t>(packs_of_block / ranks, CHUNKS);
    const int64_t chunk = eighth > SMALLEST ? eighth : SMALLEST;
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        by_ranks(ranks, [&](auto known) {
            two_shot<T, decltype(known)::value><<<grid, block, 0, stream>>>(
                static_cast<const T*>(x), static_cast<T*>(out), all, n, packs_of_block, half, buffer_bytes, chunk);
        });
    });
}
