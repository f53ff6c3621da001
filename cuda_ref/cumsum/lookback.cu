// y[i, j] = sum over k <= j of x[i, k], for few long rows that begin and end at multiples of 16 bytes
//
// Adds blocks for the parts of a row to registers.cu. x is read once: a block keeps its part in shared memory,
// publishes the sum of it, and looks back for the sum of all parts before. Blocks stay on the device and take parts by
// a ticket, so that a block waits only for parts that running blocks hold. While a block computes a part, its next part
// is on the way. Sums are added in one order, whichever block is first, so equal inputs give equal bits.
//
// Source: D. Merrill and M. Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back", 2016. There a block
// takes the latest total that it finds. Here it takes the total of the last group of 32 parts, and the sums of the
// parts after this group.
#include <cuda_pipeline.h>

#include "common/rows.cuh"
#include "cumsum/prefix.cuh"

constexpr int THREADS = 256, PACKS = 4, WARPS = THREADS / WARP;
constexpr int STAGES = 2;    // parts of a block in shared memory
constexpr int RESIDENT = 4;  // blocks per multiprocessor
using Word = unsigned long long;  // a float32 in its lower half; the upper half is 0 until the number is known

__device__ __forceinline__ void publish(Word* to, float value) {
    atomicExch(to, Word(1) << 32 | __float_as_uint(value));
}

__device__ __forceinline__ float awaited(const Word* from) {
    Word word;
    do {
        word = *static_cast<const volatile Word*>(from);
    } while (word >> 32 == 0);
    return __uint_as_float(unsigned(word));
}

// One warp publishes the sum of part `number`, and returns the sum of all parts before it. sums: a word for each part of
// the row. totals: one for each 32 parts, the sum of all parts up to their last.
__device__ __forceinline__ float look_back(Word* sums, Word* totals, int64_t number, float sum) {
    const int lane = threadIdx.x % WARP, place = int(number % WARP);
    if (lane == 0) publish(sums + number, sum);
    const float of_lane = lane < place ? awaited(sums + number - place + lane) : 0.0f;
    const float of_group = __shfl_sync(0xffffffffu, prefix_sum(of_lane), WARP - 1);
    const float before = number < WARP ? of_group : awaited(totals + number / WARP - 1) + of_group;
    if (lane == 0 && place == WARP - 1) publish(totals + number / WARP, before + sum);
    return before;
}

// A part of a row. Blocks take part 0 of all rows, then part 1; after the last, `number` is the number of parts or more.
struct Place {
    int64_t row, number;
};

__device__ __forceinline__ Place take_part(Word* ticket, int64_t m) {
    const int64_t taken = int64_t(atomicAdd(ticket, Word(1)));
    return {taken % m, taken / m};
}

// words: a ticket, the sums of m x parts parts, and the totals of m x ceil(parts / 32) groups; zeros before the call.
template <typename T>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    cumsum_lookback(const T* __restrict__ x, T* __restrict__ y, Word* words, int64_t m, int64_t n, int64_t stride_m, int64_t parts) {
    constexpr int LANES = 16 / sizeof(T), SIZE = THREADS * PACKS * LANES;
    __shared__ uint4 packs[STAGES][THREADS * PACKS];
    __shared__ Place places[STAGES];
    __shared__ float of_warps[WARPS], sum_of_parts_before;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int first = warp * PACKS * WARP + lane;  // packs of a thread are WARP apart; no other thread reads them
    const auto load = [&](int stage) {
        const Place place = places[stage];
        const int64_t rest = place.number < parts ? n - place.number * SIZE : 0;
        const T* from = x + place.row * stride_m + place.number * SIZE;
#pragma unroll
        for (int pack = 0; pack < PACKS; ++pack) {
            const int at = first + pack * WARP;
            if (at * LANES < rest) {
                __pipeline_memcpy_async(&packs[stage][at], from + at * LANES, 16);
            } else {
                packs[stage][at] = {0, 0, 0, 0};
            }
        }
        __pipeline_commit();
    };
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) places[stage] = take_part(words, m);
    }
    __syncthreads();
    for (int stage = 0; stage < STAGES - 1; ++stage) load(stage);

    for (int stage = 0;; stage = (stage + 1) % STAGES) {
        const Place place = places[stage];
        if (place.number >= parts) break;  // so are all later parts of this block
        load((stage + STAGES - 1) % STAGES);
        Place next;
        if (threadIdx.x == THREADS - 1) next = take_part(words, m);  // of the last warp: the first looks back
        __pipeline_wait_prior(STAGES - 1);

        float starts[PACKS], of_warp = 0.0f;  // the sum of this warp's numbers before each pack of this thread
#pragma unroll
        for (int pack = 0; pack < PACKS; ++pack) {
            float sum = 0.0f;
#pragma unroll
            for (int i = 0; i < LANES; ++i) sum += element<T>(packs[stage][first + pack * WARP], i);
            const float prefix = prefix_sum(sum);
            starts[pack] = of_warp + sum_before(prefix);
            of_warp += __shfl_sync(0xffffffffu, prefix, WARP - 1);
        }
        if (lane == 0) of_warps[warp] = of_warp;
        __syncthreads();
        if (threadIdx.x == THREADS - 1) places[stage] = next;
        const float prefix = prefix_sum(lane < WARPS ? of_warps[lane] : 0.0f);
        const float of_others = __shfl_sync(0xffffffffu, prefix, warp == 0 ? 0 : warp - 1);
        if (warp == 0) {
            const float total = __shfl_sync(0xffffffffu, prefix, WARP - 1);
            const int64_t groups = ceil_div<int64_t>(parts, WARP);
            Word *sums_of_row = words + 1 + place.row * parts, *totals = words + 1 + m * parts + place.row * groups;
            const float before = look_back(sums_of_row, totals, place.number, total);
            if (lane == 0) sum_of_parts_before = before;
        }
        __syncthreads();
        const int64_t rest = n - place.number * SIZE;
        const float before = sum_of_parts_before + (warp == 0 ? 0.0f : of_others);
        T* to = y + place.row * n + place.number * SIZE;
#pragma unroll
        for (int pack = 0; pack < PACKS; ++pack) {
            const int at = first + pack * WARP;
            float running = before + starts[pack];
            Pack<T, LANES> out;
#pragma unroll
            for (int i = 0; i < LANES; ++i) {
                running += element<T>(packs[stage][at], i);
                out[i] = from_float<T>(running);
            }
            if (at * LANES < rest) *reinterpret_cast<Pack<T, LANES>*>(to + at * LANES) = out;
        }
    }
}

// parts: the number of parts of a row, each with 16 KiB of x.
extern "C" int cumsum_lookback(const void* x, void* y, void* words, int64_t m, int64_t n, int64_t stride_m, int64_t parts,
                               int64_t multiprocessors, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    Word* of_parts = static_cast<Word*>(words);
    const int64_t count = 1 + m * (parts + ceil_div<int64_t>(parts, WARP));
    const cudaError_t cleared = cudaMemsetAsync(of_parts, 0, sizeof(Word) * count, stream);
    if (cleared != cudaSuccess) return cleared;  // a ticket that is not 0 at first is a part that does not exist
    const dim3 grid(unsigned(min(m * parts, multiprocessors * RESIDENT))), block(THREADS);
    record->set(grid, block);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        cumsum_lookback<T><<<grid, block, 0, stream>>>(static_cast<const T*>(x), static_cast<T*>(y), of_parts, m, n, stride_m,
                                                       parts);
    });
}
