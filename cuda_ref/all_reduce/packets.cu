// out[i] = sum over ranks of x[i], sent in packets whose words are never 0 (packets.cuh)
//
// all_reduce.cu meets the other ranks before it reads their data: a flag and a read cross NVLink one after the other.
// Here a rank stores its data to the memory of the others, and its own words say when they have arrived.
//
// one_step: every rank sends its vector to all others and adds all vectors. two_steps: every rank sends each other rank
// the share that the receiver adds, and then its sums to all others. It sends 2 (ranks - 1) / ranks n elements in place
// of (ranks - 1) n, and data cross NVLink twice.
#include "all_reduce/packets.cuh"

template <typename T, int RANKS>
__global__ void __launch_bounds__(THREADS)
    one_step(const T* x, T* out, Ranks all, int64_t n, int64_t slot, int64_t half) {
    const unsigned calls = *all.calls();
    const Call<T, RANKS> call(x, out, all, n, slot, (calls & 1) * half);
    const int64_t round = call.UNROLL * call.stride();
    for (int64_t first = call.begin(); first < slot + round; first += round) {
        call.send(first, all.rank, [](int) { return int64_t(0); });
        call.add(first - round, 0, [&](int64_t i, const uint4& sum) { call.packs.store(out, i, sum); });
    }
    all.leave(calls);
}

template <typename T, int RANKS>
__global__ void __launch_bounds__(THREADS)
    two_steps(const T* x, T* out, Ranks all, int64_t n, int64_t slot, int64_t half) {
    const unsigned calls = *all.calls();
    const Call<T, RANKS> call(x, out, all, n, slot, (calls & 1) * half);
    const int64_t round = call.UNROLL * call.stride(), share = all.rank * slot;
    for (int64_t first = call.begin(); first < slot + 2 * round; first += round) {
        call.send(first, all.rank, [&](int to) { return to * slot; });
        call.add(first - round, share, [&](int64_t i, const uint4& sum) {
            const uint4 packet = encoded(sum);
#pragma unroll
            for (int step = 1; step < call.ranks(); ++step) write(call.place(step, call.ranks() + all.rank, i), packet);
            call.packs.store(out, share + i, decoded(packet));  // the same bits on all ranks
        });
        call.take(first - 2 * round, call.ranks());
    }
    all.leave(calls);
}

// steps: 1 or 2. slot: packs of a vector, or of a share in two steps; a multiple of 8, so that slots are whole lines.
extern "C" int all_reduce(const void* x, void* out, const void* addresses, int rank, int ranks, int blocks, int64_t n,
                          int64_t slot, int64_t half, int steps, int64_t dtype, cudaStream_t stream,
                          LaunchRecord* record) {
    const dim3 grid(blocks), block(THREADS);
    record->set(grid, block);
    const Ranks all{static_cast<const int64_t*>(addresses), rank, ranks};
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        by_ranks(ranks, [&](auto known) {
            const auto kernel = steps == 1 ? one_step<T, decltype(known)::value> : two_steps<T, decltype(known)::value>;
            kernel<<<grid, block, 0, stream>>>(static_cast<const T*>(x), static_cast<T*>(out), all, n, slot, half);
        });
    });
}
