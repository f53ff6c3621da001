// y[i, j] = sum over k <= j of x[i, k], rows that begin and end at multiples of 16 bytes
//
// Adds blocks and 16-byte accesses to cumsum.cu: a row is read and written once. A thread adds the numbers of each of
// its packs, a warp these sums by shuffles, and the warps' sums go through shared memory, with one barrier for all
// packs of the threads. The order of all additions is fixed, so equal inputs give equal bits.
#include "common/rows.cuh"
#include "cumsum/prefix.cuh"

// A block per row, or a warp per short row. Rows longer than its registers are added part by part.
template <typename T, int PACKS>
__global__ void __launch_bounds__(MAX_THREADS)
    cumsum_rows(const T* __restrict__ x, T* __restrict__ y, int64_t m, int64_t n, int64_t stride_m) {
    constexpr int LANES = 16 / sizeof(T);
    __shared__ float scratch[2][PACKS][WARP];  // sums of warps, for even and odd parts: saves a second barrier
    const int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
    if (row >= m) return;  // true for all lanes of a warp; blocks with several rows have no barriers
    const int warp = threadIdx.x / WARP, warps = blockDim.x / WARP, lane = threadIdx.x % WARP;
    const int64_t step = int64_t(PACKS) * blockDim.x * LANES;
    Registers<T, PACKS, true> part;
    float before = 0.0f;  // the sum of all parts before
    for (int64_t start = 0, number = 0; start < n; start += step, ++number) {
        const int rest = int(min(n - start, step));
        part.load({x + row * stride_m + start, rest, 1}, 0.0f);
        float sums[PACKS];  // for each pack: the sum over the threads of this warp up to this one
#pragma unroll
        for (int pack = 0; pack < PACKS; ++pack) {
            float sum = 0.0f;
#pragma unroll
            for (int i = 0; i < LANES; ++i) sum += element<T>(part.v[pack], i);
            sums[pack] = prefix_sum(sum);
        }
        float(&of_warps)[PACKS][WARP] = scratch[number % 2];
        if (warps > 1) {
            if (lane == WARP - 1) {
#pragma unroll
                for (int pack = 0; pack < PACKS; ++pack) of_warps[pack][warp] = sums[pack];
            }
            __syncthreads();
        }
#pragma unroll
        for (int pack = 0; pack < PACKS; ++pack) {
            float running = before + sum_before(sums[pack]);
            if (warps > 1) {
                const float prefix = prefix_sum(lane < warps ? of_warps[pack][lane] : 0.0f);
                if (warp > 0) running = before + __shfl_sync(0xffffffffu, prefix, warp - 1) + sum_before(sums[pack]);
                before += __shfl_sync(0xffffffffu, prefix, WARP - 1);
            } else {
                before += __shfl_sync(0xffffffffu, sums[pack], WARP - 1);
            }
            Pack<T, LANES> out;
#pragma unroll
            for (int i = 0; i < LANES; ++i) {
                running += element<T>(part.v[pack], i);
                out[i] = from_float<T>(running);
            }
            const int at = part.index(pack, 0);
            if (at < rest) *reinterpret_cast<Pack<T, LANES>*>(y + row * n + start + at) = out;
        }
    }
}

extern "C" int cumsum_registers(const void* x, void* y, int64_t m, int64_t n, int64_t stride_m, int64_t dtype,
                                cudaStream_t stream, LaunchRecord* record) {
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const T* from = static_cast<const T*>(x);
        T* to = static_cast<T*>(y);
        const Division division = divide_rows(from, m, n, stride_m, 1, to);
        const dim3 grid = division.grid(m), block = division.block;
        record->set(grid, block);
        by_division(division, [&](auto packs, auto packed) {
            if constexpr (packed()) {
                constexpr int SOME = packs() < BLOCK_PACKS ? packs() : BLOCK_PACKS;  // more sums do not fit into registers
                cumsum_rows<T, SOME><<<grid, block, 0, stream>>>(from, to, m, n, stride_m);
            }
        });
    });
}
