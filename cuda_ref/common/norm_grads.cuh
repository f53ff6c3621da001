// The gradients of rms_norm, and of layer_norm (CENTERED), in one pass over x and dy.
//
//   dx = s (g - a - xhat b), g = dy w, xhat = (x - mean) s, a = mean(g), b = mean(g xhat); a and mean are 0 in rms_norm
//   dweight = sum over rows of dy xhat, dbias = sum over rows of dy
//
// As many blocks as the device holds take the rows in turn. Their next rows are on the way while they compute one. A
// thread has the same columns in each row, so that it adds their dy xhat and dy in registers. The sums of all blocks
// are added by a second launch. Their number depends on the device and on the shape alone, so equal inputs give equal
// bits.
#pragma once

#include <cuda_pipeline.h>

#include "common/column_sums.cuh"
#include "common/rows.cuh"

constexpr int MOST_NORM_THREADS = 512;  // per block, with up to 128 registers each

// The rows that a block takes: first, first + rows, ...
template <typename T>
struct RowsInTurn {
    const T *x, *dy, *weight;
    int64_t m, x_m, dy_m;
    int columns, first, rows;
};

// PACKS packs of x, dy and the weight per thread in registers, and those of the next row.
template <typename T, int PACKS>
struct RowsInRegisters {
    using Row = Registers<T, PACKS, true>;
    const RowsInTurn<T>& of;
    Row w, values, grads, next_values, next_grads;

    static constexpr size_t shared_bytes(dim3) { return 0; }

    __device__ __forceinline__ RowsInRegisters(const RowsInTurn<T>& of) : of(of) {
        w.load({of.weight, of.columns, 1}, 0.0f);
        if (of.first < of.m) load(values, grads, of.first);
    }

    __device__ __forceinline__ void load(Row& to_values, Row& to_grads, int64_t row) const {
        to_values.load({of.x + row * of.x_m, of.columns, 1}, 0.0f);
        to_grads.load({of.dy + row * of.dy_m, of.columns, 1}, 0.0f);
    }

    // Begins to load the row after this one.
    __device__ __forceinline__ void load_ahead(int64_t row) {
        if (row + of.rows < of.m) load(next_values, next_grads, row + of.rows);
    }

    // Calls f(pack, x, dy, weight as packs) for each pack of this thread.
    template <typename F>
    __device__ __forceinline__ void each(F f) {
#pragma unroll
        for (int pack = 0; pack < PACKS; ++pack) f(pack, values.v[pack], grads.v[pack], w.v[pack]);
    }

    // Called before the last pass: see Registers.
    __device__ __forceinline__ void stay_packed() {
        values.stay_packed();
        grads.stay_packed();
    }

    __device__ __forceinline__ void go_on() {
        values = next_values;
        grads = next_grads;
    }
};

// The same in shared memory, for longer rows: packs that no other thread reads, and the next two rows.
template <typename T, int PACKS>
struct RowsInSharedMemory {
    using Row = Registers<T, PACKS, true>;
    static constexpr int STAGES = 3, WEIGHT = 2 * STAGES;
    const RowsInTurn<T>& of;
    int stage = 0;

    static constexpr size_t shared_bytes(dim3 block) {
        return sizeof(uint4) * (2 * STAGES + 1) * PACKS * block.x * block.y;
    }

    // Packs beyond the last column are 0 in all stages.
    __device__ __forceinline__ RowsInSharedMemory(const RowsInTurn<T>& of) : of(of) {
        for (int operand = 0; operand < WEIGHT; ++operand) {
#pragma unroll
            for (int pack = 0; pack < PACKS; ++pack) {
                if (Row::index(pack, 0) >= of.columns) *place(operand, pack) = {0, 0, 0, 0};
            }
        }
#pragma unroll
        for (int pack = 0; pack < PACKS; ++pack) {
            *place(WEIGHT, pack) = Row::load_pack({of.weight, of.columns, 1}, pack, 0.0f);
        }
        for (int i = 0; i < STAGES - 1; ++i) load(i, int64_t(of.first) + i * of.rows);
    }

    // A pack of x (2 stage), dy (2 stage + 1) or the weight (WEIGHT).
    __device__ __forceinline__ uint4* place(int operand, int pack) const {
        extern __shared__ uint4 ring[];
        const int threads = blockDim.x * blockDim.y;
        return ring + operand * PACKS * threads + threadIdx.y * blockDim.x + threadIdx.x + pack * threads;
    }

    __device__ __forceinline__ void load(int to, int64_t row) const {
        if (row < of.m) {
            const T *x = of.x + row * of.x_m + Row::index(0, 0), *dy = of.dy + row * of.dy_m + Row::index(0, 0);
#pragma unroll
            for (int pack = 0; pack < PACKS; ++pack) {
                if (Row::index(pack, 0) >= of.columns) break;
                const int beyond = Row::index(pack, 0) - Row::index(0, 0);
                __pipeline_memcpy_async(place(2 * to, pack), x + beyond, 16);
                __pipeline_memcpy_async(place(2 * to + 1, pack), dy + beyond, 16);
            }
        }
        __pipeline_commit();
    }

    __device__ __forceinline__ void load_ahead(int64_t row) const {
        load(stage == 0 ? STAGES - 1 : stage - 1, row + (STAGES - 1) * of.rows);
        __pipeline_wait_prior(STAGES - 1);
    }

    template <typename F>
    __device__ __forceinline__ void each(F f) const {
#pragma unroll
        for (int pack = 0; pack < PACKS; ++pack) {
            f(pack, *place(2 * stage, pack), *place(2 * stage + 1, pack), *place(WEIGHT, pack));
        }
    }

    // Called before the last pass: keeps the compiler from holding the packs, whose registers the sums take.
    __device__ __forceinline__ void stay_packed() const { __syncwarp(); }

    __device__ __forceinline__ void go_on() { stage = stage == STAGES - 1 ? 0 : stage + 1; }
};

// Sums of the columns of one warp, and from them those of a row. x and g: sums. squares and projection: sums of c^2 and
// g c, c = x - mean, where mean is that of these columns.
struct NormSums {
    float x, g, squares, projection;
};

__device__ __forceinline__ float sum_of_warp(float value) { return over_warp(value, Addition()); }

// Combines the sums of all warps of a row by one barrier: c of the row is c of the warp plus the difference of the
// means. `scratch`: WARP places, others in the next call. columns: of each warp.
template <bool CENTERED>
__device__ __forceinline__ NormSums over_warps(const NormSums& of_warp, const float* columns, float inverse,
                                                   NormSums* scratch) {
    if (blockDim.x == WARP) return of_warp;
    if (threadIdx.x % WARP == 0) scratch[threadIdx.x / WARP] = of_warp;
    __syncthreads();
    const int lane = threadIdx.x % WARP;
    const NormSums own = lane < blockDim.x / WARP ? scratch[lane] : NormSums{0.0f, 0.0f, 0.0f, 0.0f};
    if constexpr (!CENTERED) return {0.0f, 0.0f, sum_of_warp(own.squares), sum_of_warp(own.projection)};
    const float x = sum_of_warp(own.x), count = columns[lane];
    const float moved = count > 0.0f ? __fdividef(own.x, count) - x * inverse : 0.0f;
    return {x, sum_of_warp(own.g), sum_of_warp(own.squares + count * moved * moved),
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

template <typename T, int PACKS>
using RowSource = std::conditional_t<PACKS <= 2, RowsInRegisters<T, PACKS>, RowsInSharedMemory<T, PACKS>>;

// partial: (gridDim.x blockDim.y, n) for dweight, and as much again for dbias.
template <typename T, int PACKS, bool CENTERED>
__global__ void __launch_bounds__(MOST_NORM_THREADS, 1)
    norm_grad_rows(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ dy,
                   T* __restrict__ dx, float* __restrict__ partial, int64_t m, int64_t n, int64_t x_m, int64_t dy_m,
                   float eps) {
    using Row = Registers<T, PACKS, true>;
    constexpr int LANES = Row::LANES;
    __shared__ NormSums scratch[2][WARP];
    const int columns = int(n), rows = gridDim.x * blockDim.y, first = blockIdx.x * blockDim.y + threadIdx.y;
    const float inverse = 1.0f / columns;
    __shared__ float of_warps[WARP];  // columns of each warp: in shared memory, since the sums take the registers
    if (CENTERED && threadIdx.x < WARP && threadIdx.y == 0) {
        of_warps[threadIdx.x] = columns_of_warp<PACKS, LANES>(threadIdx.x, columns);
    }
    __syncthreads();
    float dweight[PACKS][LANES] = {}, dbias[CENTERED ? PACKS : 1][LANES] = {};
    const RowsInTurn<T> in_turn = {x, dy, weight, m, x_m, dy_m, columns, first, rows};
    RowSource<T, PACKS> source(in_turn);
    int turn = 0;
    for (int64_t row = first; row < m; row += rows, source.go_on()) {
        source.load_ahead(row);
        NormSums sums = {0.0f, 0.0f, 0.0f, 0.0f};
        float mean = 0.0f, a = 0.0f;
        if constexpr (CENTERED) {
            source.each([&](int, uint4 values, uint4 grads, uint4 w) {
#pragma unroll
                for (int lane = 0; lane < LANES; ++lane) {
                    sums.x += element<T>(values, lane);
                    sums.g += element<T>(grads, lane) * element<T>(w, lane);
                }
            });
            sums.x = sum_of_warp(sums.x);
            sums.g = sum_of_warp(sums.g);
            const float of_warp = of_warps[threadIdx.x / WARP];
            mean = of_warp > 0.0f ? __fdividef(sums.x, of_warp) : 0.0f;
            source.stay_packed();
        }
        source.each([&](int pack, uint4 values, uint4 grads, uint4 w) {
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
        sums = over_warps<CENTERED>(sums, of_warps, inverse, scratch[turn ^= 1]);
        if constexpr (CENTERED) {
            mean = sums.x * inverse;
            a = sums.g * inverse;
        }
        const float s = rsqrtf(sums.squares * inverse + eps), b = sums.projection * inverse * s;
        source.stay_packed();
        source.each([&](int pack, uint4 values, uint4 grads, uint4 w) {
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

constexpr size_t SCRATCH_BYTES = (sizeof(NormSums) * 2 + sizeof(float)) * WARP;  // static shared memory of the kernel

// Returns cudaErrorNotSupported if the rows need more shared memory than a block has.
// dbias: null unless CENTERED. partial: (blocks blockDim.y, n) floats for each of dweight and dbias.
template <bool CENTERED>
cudaError_t norm_grads(const void* x, const void* weight, const void* dy, void* dx, void* dweight, void* dbias,
                       float* partial, int64_t m, int64_t n, int64_t x_m, int64_t dy_m, float eps, int64_t blocks,
                       int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    cudaError_t error = cudaSuccess;
    const cudaError_t launched = by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const NormDivision division = divide_norm_rows(n * int64_t(sizeof(T)) / 16);
        const auto launch = [&](auto packs) {
            const auto kernel = norm_grad_rows<T, packs(), CENTERED>;
            const dim3 grid{unsigned(blocks)};
            const size_t bytes = RowSource<T, packs()>::shared_bytes(division.block);
            const size_t most = most_shared_bytes() - SCRATCH_BYTES;
            if (bytes > most) {
                error = cudaErrorNotSupported;
                return;
            }
            // The limit belongs to the kernel: a lower one could make the launch of another thread fail.
            if (bytes > 0) cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(most));
            record->set(grid, division.block, bytes);
            kernel<<<grid, division.block, bytes, stream>>>(
                static_cast<const T*>(x), static_cast<const T*>(weight), static_cast<const T*>(dy),
                static_cast<T*>(dx), partial, m, n, x_m, dy_m, eps);
        };
        switch (division.packs) {
            case 1: launch(std::integral_constant<int, 1>()); break;
            case 2: launch(std::integral_constant<int, 2>()); break;
            case 4: launch(std::integral_constant<int, 4>()); break;
            default: error = cudaErrorInvalidValue;
        }
        if (error != cudaSuccess) return;
        const int64_t parts = blocks * division.block.y;
        T *of_weight = static_cast<T*>(dweight), *of_bias = static_cast<T*>(dbias);
        launch_column_sums(partial, of_weight, of_bias, parts, n, stream, record);
    });
    return error != cudaSuccess ? error : launched;
}
