// y[i, j] = sum over k <= j of x[i, k], for few long rows that begin and end at multiples of 16 bytes
//
// Adds blocks for the parts of a row to registers.cu. x is read once: a block keeps its part in shared memory,
// publishes the sum of it, and looks back for the sum of all parts before. In registers, as floats, parts would leave
// room for two blocks on a multiprocessor; here there are four. Blocks take parts by a ticket, so that a block waits
// only for blocks that run already. Sums are added in one order, whichever block is first, so equal inputs give equal
// bits.
//
// Source: D. Merrill and M. Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back", 2016. There a block
// takes the latest total that it finds. Here it takes the total of the last group of 32 parts, and the sums of the
// parts after this group.
#include <cuda_pipeline.h>

#include "common/rows.cuh"
#include "cumsum/prefix.cuh"

constexpr int THREADS = 512, PACKS = 4, WARPS = THREADS / WARP;
constexpr int BLOCKS = 4;  // of a multiprocessor
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

// words: a ticket, the sums of m x parts parts, and the totals of m x ceil(parts / 32) groups; zeros before the call.
template <typename T>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    cumsum_lookback(const T* __restrict__ x, T* __restrict__ y, Word* words, int64_t m, int64_t n, int64_t stride_m, int64_t parts) {
    constexpr int LANES = 16 / sizeof(T), SIZE = THREADS * PACKS * LANES;
    __shared__ uint4 part[PACKS][THREADS];
    __shared__ Word ticket;
    __shared__ float of_warps[PACKS][WARPS], sum_of_parts_before;
    if (threadIdx.x == 0) ticket = atomicAdd(words, Word(1));
    __syncthreads();
    const int64_t row = int64_t(ticket) % m, number = int64_t(ticket) / m;  // part 0 of all rows, then part 1
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, rest = int(min(n - number * SIZE, int64_t(SIZE)));
    const auto in_registers = [](const uint4& words) {
        Registers<T, 1, true> pack = {{words}};
        pack.stay_packed();  // or the compiler loads 16-bit elements one by one
        return pack;
    };
    x += row * stride_m + number * SIZE;
#pragma unroll
    for (int pack = 0; pack < PACKS; ++pack) {
        uint4& to = part[pack][threadIdx.x];  // no other thread reads it
        const int at = (pack * THREADS + int(threadIdx.x)) * LANES;
        if (at < rest) {
            __pipeline_memcpy_async(&to, x + at, sizeof(to));
        } else {
            to = {0, 0, 0, 0};
        }
    }
    __pipeline_commit();
    __pipeline_wait_prior(0);

    float sums[PACKS];  // for each pack: the sum over the threads of this warp up to this one
#pragma unroll
    for (int pack = 0; pack < PACKS; ++pack) {
        float sum = 0.0f;
        in_registers(part[pack][threadIdx.x]).each([&](float value) { sum += value; });
        sums[pack] = prefix_sum(sum);
        if (lane == WARP - 1) of_warps[pack][warp] = sums[pack];
    }
    __syncthreads();
    float total = 0.0f, starts[PACKS];  // the sum of the part up to each pack of this thread
#pragma unroll
    for (int pack = 0; pack < PACKS; ++pack) {
        const float prefix = prefix_sum(lane < WARPS ? of_warps[pack][lane] : 0.0f);
        const float of_others = __shfl_sync(0xffffffffu, prefix, warp == 0 ? 0 : warp - 1);
        starts[pack] = total + (warp == 0 ? 0.0f : of_others) + sum_before(sums[pack]);
        total += __shfl_sync(0xffffffffu, prefix, WARP - 1);
    }
    if (warp == 0) {
        Word *sums_of_row = words + 1 + row * parts, *totals = words + 1 + m * parts + row * ceil_div<int64_t>(parts, WARP);
        const float before = look_back(sums_of_row, totals, number, total);
        if (lane == 0) sum_of_parts_before = before;
    }
    __syncthreads();
#pragma unroll
    for (int pack = 0; pack < PACKS; ++pack) {
        float running = sum_of_parts_before + starts[pack];
        Pack<T, LANES> out;
        int i = 0;
        in_registers(part[pack][threadIdx.x]).each([&](float value) { out[i++] = from_float<T>(running += value); });
        uint4 words;
        memcpy(&words, &out, sizeof(words));
        const int at = (pack * THREADS + int(threadIdx.x)) * LANES;
        // Without __stcg the compiler makes four stores of 4 bytes.
        if (at < rest) __stcg(reinterpret_cast<uint4*>(y + row * n + number * SIZE + at), words);
    }
}

// parts: the number of parts of a row, each with 32 KiB of x.
extern "C" int cumsum_lookback(const void* x, void* y, void* words, int64_t m, int64_t n, int64_t stride_m, int64_t parts,
                               int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    Word* of_parts = static_cast<Word*>(words);
    const int64_t count = 1 + m * (parts + ceil_div<int64_t>(parts, WARP));
    const cudaError_t cleared = cudaMemsetAsync(of_parts, 0, sizeof(Word) * count, stream);
    if (cleared != cudaSuccess) return cleared;  // a first ticket that is not 0 names no part
    const dim3 grid(unsigned(m * parts)), block(THREADS);
    record->set(grid, block);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        cumsum_lookback<T><<<grid, block, 0, stream>>>(static_cast<const T*>(x), static_cast<T*>(y), of_parts, m, n, stride_m,
                                                       parts);
    });
}
