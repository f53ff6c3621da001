// A reduce-scatter and an all-gather of shares, in packets whose words are never 0 (packets.cuh)
//
// add_share: x has a share for each rank; out = sum over ranks of this rank's share. It is the first half of two_steps
// in packets.cu. gather: x is a share; out has those of all ranks. A share fills whole packs.
#include "all_reduce/packets.cuh"

template <typename T, int RANKS>
__global__ void __launch_bounds__(THREADS)
    add_share(const T* x, T* out, Ranks all, int64_t n, int64_t slot, int64_t half) {
    const unsigned calls = *all.calls();
    const Call<T, RANKS> call(x, out, all, n, slot, (calls & 1) * half);
    const int64_t round = call.UNROLL * call.stride();
    for (int64_t first = call.begin(); first < slot + round; first += round) {
        call.send(first, all.rank, [&](int to) { return to * slot; });
        call.add(first - round, all.rank * slot, [&](int64_t i, const uint4& sum) { call.packs.store(out, i, sum); });
    }
    all.leave(calls);
}

template <typename T, int RANKS>
__global__ void __launch_bounds__(THREADS)
    gather(const T* x, T* out, Ranks all, int64_t n, int64_t slot, int64_t half) {
    const unsigned calls = *all.calls();
    const Call<T, RANKS> call(x, out, all, n, slot, (calls & 1) * half);
    const int64_t round = call.UNROLL * call.stride();
    for (int64_t first = call.begin(); first < slot + round; first += round) {
        call.send(first, all.rank, [](int) { return int64_t(0); });
        for (int64_t i = first; i < first + round && i < slot; i += call.stride())
            call.packs.store(out, all.rank * slot + i, call.packs.load(x, i));
        call.take(first - round, 0);
    }
    all.leave(calls);
}

// n: elements of all shares. slot: packs of a share.
template <bool SUM>
static int launch(const void* x, void* out, const void* addresses, int rank, int ranks, int blocks, int64_t n,
                  int64_t slot, int64_t half, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(blocks), block(THREADS);
    record->set(grid, block);
    const Ranks all{static_cast<const int64_t*>(addresses), rank, ranks};
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        by_ranks(ranks, [&](auto known) {
            const auto kernel = SUM ? add_share<T, decltype(known)::value> : gather<T, decltype(known)::value>;
            kernel<<<grid, block, 0, stream>>>(static_cast<const T*>(x), static_cast<T*>(out), all, n, slot, half);
        });
    });
}

extern "C" int reduce_scatter(const void* x, void* out, const void* addresses, int rank, int ranks, int blocks,
                              int64_t n, int64_t slot, int64_t half, int64_t dtype, cudaStream_t stream,
                              LaunchRecord* record) {
    return launch<true>(x, out, addresses, rank, ranks, blocks, n, slot, half, dtype, stream, record);
}

extern "C" int all_gather(const void* x, void* out, const void* addresses, int rank, int ranks, int blocks, int64_t n,
                          int64_t slot, int64_t half, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    return launch<false>(x, out, addresses, rank, ranks, blocks, n, slot, half, dtype, stream, record);
}
