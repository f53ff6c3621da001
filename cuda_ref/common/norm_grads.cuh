// The gradients of rms_norm, and of layer_norm (CENTERED), in one pass over x and dy.
//
//   dx = s (g - a - xhat b), g = dy w, xhat = (x - mean) s, a = mean(g), b = mean(g xhat); a and mean are 0 in rms_norm
//   dweight = sum over rows of dy xhat, dbias = sum over rows of dy
//
// As many blocks as the device holds take the rows in turn. Their next rows are on the way to shared memory while they
// compute one. A thread has the same columns in each row, so that it adds their dy xhat and dy in registers. The sums
// of all blocks are added by a second launch. Their number depends on the device and on the shape alone, so equal
// inputs give equal bits.
#pragma once

#include <cuda_pipeline.h>

#include "common/column_sums.cuh"
#include "common/rows.cuh"

constexpr int MOST_NORM_THREADS = 512;  // per block, with up to 128 registers each
constexpr int NORM_STAGES = 3;          // rows of a block in shared memory

// Rows of x and dy and the weight in shared memory: PACKS packs of 16 bytes each per thread, which no other thread reads.
template <typename T, int PACKS>
struct RowRing {
    using Row = Registers<T, PACKS, true>;
    const T *x, *dy;
    int64_t m, x_m, dy_m;
    int columns;

    static size_t bytes(dim3 block) { return sizeof(uint4) * (2 * NORM_STAGES + 1) * PACKS * block.x * block.y; }

    // A pack of x (2 stage), dy (2 stage + 1) or the weight (WEIGHT).
    static constexpr int WEIGHT = 2 * NORM_STAGES;

    __device__ __forceinline__ uint4& place(int of, int pack) const {
        extern __shared__ uint4 ring[];
        return ring[(of * PACKS + pack) * blockDim.x * blockDim.y + threadIdx.y * blockDim.x + threadIdx.x];
    }

    // Calls f(pack, x, dy, weight as packs) for each pack of this thread in a row that has arrived.
    template <typename F>
    __device__ __forceinline__ void each(int stage, F f) const {
        __syncwarp();  // keeps the compiler from holding the packs from one call to the next: the sums take its registers
#pragma unroll
        for (int pack = 0; pack < PACKS; ++pack) {
            f(pack, place(2 * stage, pack), place(2 * stage + 1, pack), place(WEIGHT, pack));
        }
    }

    // Begins to load a row. Rows beyond m are not read; columns beyond the last are 0.
    __device__ __forceinline__ void load(int stage, int64_t row) const {
#pragma unroll
        for (int pack = 0; pack < PACKS; ++pack) {
            const int column = Row::index(pack, 0);
            if (row < m && column < columns) {
                __pipeline_memcpy_async(&place(2 * stage, pack), x + row * x_m + column, 16);
                __pipeline_memcpy_async(&place(2 * stage + 1, pack), dy + row * dy_m + column, 16);
            } else {
                place(2 * stage, pack) = place(2 * stage + 1, pack) = {0, 0, 0, 0};
            }
        }
        __pipeline_commit();
    }
};

// Sums of the columns of one warp, and from them those of a row. x and g: sums. squares and projection: sums of c^2 and
// g c, c = x - mean, where mean is that of these columns.
struct NormSums {
    float x, g, squares, projection;
};

__device__ __forceinline__ float sum_of_warp(float value) { return over_warp(value, Addition()); }

// Combines the sums of all warps of a row by one barrier: c of the row is c of the warp plus the difference of the
// means. Successive calls use different `scratch` of WARP places. columns: those of the warp with this lane's number.
template <bool CENTERED>
__device__ __forceinline__ NormSums over_warps(const NormSums& of_warp, float columns, float n, NormSums* scratch) {
    if (blockDim.x == WARP) return of_warp;
    if (threadIdx.x % WARP == 0) scratch[threadIdx.x / WARP] = of_warp;
    __syncthreads();
    const int lane = threadIdx.x % WARP;
    const NormSums own = lane < blockDim.x / WARP ? scratch[lane] : NormSums{0.0f, 0.0f, 0.0f, 0.0f};
    if constexpr (!CENTERED) return {0.0f, 0.0f, sum_of_warp(own.squares), sum_of_warp(own.projection)};
    const float x = sum_of_warp(own.x), moved = columns > 0.0f ? own.x / columns - x / n : 0.0f;
    return {x, sum_of_warp(own.g), sum_of_warp(own.squares + columns * moved * moved),
            sum_of_warp(own.projection + own.g * moved)};
}

// The number of columns of warp `warp`, of PACKS packs of LANES elements per thread; 0 if the row has fewer warps.
template <int PACKS, int LANES>
__device__ __forceinline__ float columns_of_warp(int warp, int columns) {
    int count = 0;
    if (warp * WARP >= blockDim.x) return 0.0f;
#pragma unroll
    for (int pack = 0; pack < PACKS; ++pack) {
        count += min(max(columns - (pack * int(blockDim.x) + warp * WARP) * LANES, 0), WARP * LANES);
    }
    return float(count);
}

// partial: (gridDim.x blockDim.y, n) for dweight, and as much again for dbias.
template <typename T, int PACKS, bool CENTERED>
__global__ void __launch_bounds__(MOST_NORM_THREADS, 1)
    norm_grad_rows(RowRing<T, PACKS> ring, const T* __restrict__ weight, T* __restrict__ dx,
                   float* __restrict__ partial, int64_t m, int64_t n, float eps) {
    using Row = Registers<T, PACKS, true>;
    constexpr int LANES = Row::LANES;
    __shared__ NormSums scratch[NORM_STAGES][WARP];
    const int rows = gridDim.x * blockDim.y, first = blockIdx.x * blockDim.y + threadIdx.y;  // int: few blocks are resident
    const int columns = int(n);
    const float of_row = float(columns);
    const float of_lane = columns_of_warp<PACKS, LANES>(threadIdx.x % WARP, columns);
    float dweight[PACKS][LANES] = {}, dbias[CENTERED ? PACKS : 1][LANES] = {};
#pragma unroll
    for (int pack = 0; pack < PACKS; ++pack) {
        ring.place(ring.WEIGHT, pack) = Row::load_pack({weight, columns, 1}, pack, 0.0f);
    }
    for (int stage = 0; stage < NORM_STAGES - 1; ++stage) ring.load(stage, int64_t(first) + stage * rows);
    int stage = 0;
    for (int64_t row = first; row < m; row += rows, stage = stage == NORM_STAGES - 1 ? 0 : stage + 1) {
        ring.load(stage == 0 ? NORM_STAGES - 1 : stage - 1, row + (NORM_STAGES - 1) * rows);
        __pipeline_wait_prior(NORM_STAGES - 1);
        NormSums sums = {0.0f, 0.0f, 0.0f, 0.0f};
        float mean = 0.0f, a = 0.0f;
        if constexpr (CENTERED) {
            ring.each(stage, [&](int, uint4 values, uint4 grads, uint4 w) {
#pragma unroll
                for (int lane = 0; lane < LANES; ++lane) {
                    sums.x += element<T>(values, lane);
                    sums.g += element<T>(grads, lane) * element<T>(w, lane);
                }
            });
            sums.x = sum_of_warp(sums.x);
            sums.g = sum_of_warp(sums.g);
            const float of_warp = __shfl_sync(0xffffffffu, of_lane, threadIdx.x / WARP);
            mean = of_warp > 0.0f ? sums.x / of_warp : 0.0f;
        }
        ring.each(stage, [&](int pack, uint4 values, uint4 grads, uint4 w) {
            const bool within = Row::index(pack, 0) < columns;  // beyond, x - mean is not 0
#pragma unroll
            for (int lane = 0; lane < LANES; ++lane) {
                const float c = within ? element<T>(values, lane) - mean : 0.0f;
                sums.squares += c * c;
                sums.projection += element<T>(grads, lane) * element<T>(w, lane) * c;
            }
        });
        sums.squares = sum_of_warp(sums.squares);
        sums.projection = sum_of_warp(sums.projection);
        sums = over_warps<CENTERED>(sums, of_lane, of_row, scratch[stage]);
        if constexpr (CENTERED) {
            mean = sums.x / of_row;
            a = sums.g / of_row;
        }
        const float s = rsqrtf(sums.squares / of_row + eps), b = sums.projection / of_row * s;
        ring.each(stage, [&](int pack, uint4 values, uint4 grads, uint4 w) {
            if (Row::index(pack, 0) >= columns) return;
            Pack<T, LANES> result;
#pragma unroll
            for (int lane = 0; lane < LANES; ++lane) {
                const float of_y = element<T>(grads, lane);
                const float normed = (element<T>(values, lane) - mean) * s;
                result[lane] = from_float<T>(s * (of_y * element<T>(w, lane) - a - normed * b));
                dweight[pack][lane] += of_y * normed;
                if constexpr (CENTERED) dbias[pack][lane] += of_y;
            }
            uint4 words;
            memcpy(&words, &result, sizeof(words));
            *reinterpret_cast<uint4*>(dx + row * n + Row::index(pack, 0)) = words;
        });
    }
#pragma unroll
    for (int pack = 0; pack < PACKS; ++pack) {
        if (Row::index(pack, 0) >= columns) break;
        float* to = partial + int64_t(first) * n + Row::index(pack, 0);
#pragma unroll
        for (int lane = 0; lane < LANES; ++lane) {
            to[lane] = dweight[pack][lane];
            if constexpr (CENTERED) to[rows * n + lane] = dbias[pack][lane];
        }
    }
}

// The division of rows among threads: packs per thread, threads per row, rows per block.
struct NormDivision {
    int packs;
    dim3 block;
};

// A warp per short row, a block per longer one. packs is 0 for rows that no block holds.
inline NormDivision divide_norm_rows(int64_t packs) {
    constexpr int ROWS = 4;
    if (packs <= 2 * WARP) return {packs <= WARP ? 1 : 2, dim3(WARP, ROWS)};
    const int each = packs <= 2 * MOST_NORM_THREADS ? 2 : 4;
    const int64_t threads = ceil_div<int64_t>(packs, WARP * each) * WARP;
    return threads <= MOST_NORM_THREADS ? NormDivision{each, dim3(unsigned(threads))} : NormDivision{0, dim3(1)};
}

// dbias: null unless CENTERED. partial: (blocks blockDim.y, n) floats for each of dweight and dbias.
template <bool CENTERED>
cudaError_t norm_grads(const void* x, const void* weight, const void* dy, void* dx, void* dweight, void* dbias,
                       float* partial, int64_t m, int64_t n, int64_t x_m, int64_t dy_m, float eps, int64_t blocks,
                       int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    bool is_held = true;
    const cudaError_t launched = by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const NormDivision division = divide_norm_rows(n * int64_t(sizeof(T)) / 16);
        is_held = division.packs > 0;
        const auto launch = [&](auto packs) {
            using Ring = RowRing<T, packs()>;
            const auto kernel = norm_grad_rows<T, packs(), CENTERED>;
            const Ring ring{static_cast<const T*>(x), static_cast<const T*>(dy), m, x_m, dy_m, int(n)};
            const dim3 grid{unsigned(blocks)};
            const size_t bytes = Ring::bytes(division.block);
            const size_t most = Ring::bytes(MOST_NORM_THREADS);  // the limit belongs to the kernel, not to a launch
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(most));
            record->set(grid, division.block, bytes);
            kernel<<<grid, division.block, bytes, stream>>>(ring, static_cast<const T*>(weight), static_cast<T*>(dx),
                                                            partial, m, n, eps);
        };
        switch (division.packs) {
            case 1: launch(std::integral_constant<int, 1>()); break;
            case 2: launch(std::integral_constant<int, 2>()); break;
            case 4: launch(std::integral_constant<int, 4>()); break;
            default: return;
        }
        const int64_t parts = blocks * division.block.y;
        T *of_weight = static_cast<T*>(dweight), *of_bias = static_cast<T*>(dbias);
        launch_column_sums(partial, of_weight, of_bias, parts, n, stream, record);
    });
    return is_held ? launched : cudaErrorInvalidValue;
}
