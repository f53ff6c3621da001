// The gradients of rms_norm, and of layer_norm (CENTERED), in one pass over x and dy.
//
//   dx = s (g - a - xhat b), g = dy w, xhat = (x - mean) s, a = mean(g), b = mean(g xhat); a and mean are 0 in rms_norm
//   dweight = sum over rows of dy xhat, dbias = sum over rows of dy
//
// As many blocks as the device holds take the rows in turn, and load the next row while they compute one. A thread has
// the same columns in each row, so that it adds their dy xhat and dy in registers. The sums of all blocks are added by
// a second launch. Their number depends on the device and on the shape alone, so equal inputs give equal bits.
#pragma once

#include "common/column_sums.cuh"
#include "common/rows.cuh"

constexpr int MOST_NORM_THREADS = 512;  // per block, with up to 128 registers each

struct float2Sum {
    float x, y;
};

// Adds two numbers over the threads of a row, in a fixed order. Calls alternate between two `scratch` of WARP places.
__device__ __forceinline__ float2Sum sums_over_block(float x, float y, float2Sum* scratch) {
    x = over_warp(x, Addition());
    y = over_warp(y, Addition());
    if (blockDim.x == WARP) return {x, y};
    if (threadIdx.x % WARP == 0) scratch[threadIdx.x / WARP] = {x, y};
    __syncthreads();
    const int lane = threadIdx.x % WARP;
    const bool within = lane < blockDim.x / WARP;
    return {over_warp(within ? scratch[lane].x : 0.0f, Addition()),
            over_warp(within ? scratch[lane].y : 0.0f, Addition())};
}

// partial: (gridDim.x blockDim.y, n) for dweight, and as much again for dbias.
template <typename T, int PACKS, bool CENTERED>
__global__ void __launch_bounds__(MOST_NORM_THREADS)
    norm_grad_rows(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ dy,
                   T* __restrict__ dx, float* __restrict__ partial, int64_t m, int64_t n, int64_t x_m, int64_t dy_m,
                   float eps) {
    using Row = Registers<T, PACKS, true>;
    constexpr int LANES = Row::LANES;
    constexpr bool AHEAD = PACKS <= 2;  // more packs leave no registers for the next row
    __shared__ float2Sum scratch[2][WARP];
    int turn = 0;
    const auto sums = [&](float x, float y) { return sums_over_block(x, y, scratch[turn ^= 1]); };
    const int64_t rows = int64_t(gridDim.x) * blockDim.y, first = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
    const int columns = int(n);
    float dweight[PACKS][LANES] = {}, dbias[CENTERED ? PACKS : 1][LANES] = {};
    Row w, values, grads, next_values, next_grads;
    w.load(Part<const T>{weight, columns, 1}, 0.0f);
    const auto load = [&](Row& to_values, Row& to_grads, int64_t row) {
        to_values.load(Part<const T>{x + row * x_m, columns, 1}, 0.0f);
        to_grads.load(Part<const T>{dy + row * dy_m, columns, 1}, 0.0f);
    };
    if (first < m) load(values, grads, first);
    for (int64_t row = first; row < m; row += rows) {
        if (AHEAD && row + rows < m) load(next_values, next_grads, row + rows);
        float mean = 0.0f, a = 0.0f, squares = 0.0f, projection = 0.0f;
        if constexpr (CENTERED) {
            float sum = 0.0f, of_g = 0.0f;
#pragma unroll
            for (int pack = 0; pack < PACKS; ++pack) {
#pragma unroll
                for (int lane = 0; lane < LANES; ++lane) {
                    sum += element<T>(values.v[pack], lane);
                    of_g += element<T>(grads.v[pack], lane) * element<T>(w.v[pack], lane);
                }
            }
            const float2Sum both = sums(sum, of_g);
            mean = both.x / n;
            a = both.y / n;
        }
#pragma unroll
        for (int pack = 0; pack < PACKS; ++pack) {
            const bool within = Row::index(pack, 0) < columns;  // beyond, x - mean is not 0
#pragma unroll
            for (int lane = 0; lane < LANES; ++lane) {
                const float c = within ? element<T>(values.v[pack], lane) - mean : 0.0f;
                squares += c * c;
                projection += element<T>(grads.v[pack], lane) * element<T>(w.v[pack], lane) * c;
            }
        }
        const float2Sum both = sums(squares, projection);
        const float s = rsqrtf(both.x / n + eps), b = both.y / n * s;
        values.stay_packed();
        grads.stay_packed();
#pragma unroll
        for (int pack = 0; pack < PACKS; ++pack) {
            if (Row::index(pack, 0) >= columns) break;
            Pack<T, LANES> result;
#pragma unroll
            for (int lane = 0; lane < LANES; ++lane) {
                const float of_y = element<T>(grads.v[pack], lane);
                const float normed = (element<T>(values.v[pack], lane) - mean) * s;
                result[lane] = from_float<T>(s * (of_y * element<T>(w.v[pack], lane) - a - normed * b));
                dweight[pack][lane] += of_y * normed;
                if constexpr (CENTERED) dbias[pack][lane] += of_y;
            }
            uint4 words;
            memcpy(&words, &result, sizeof(words));
            *reinterpret_cast<uint4*>(dx + row * n + Row::index(pack, 0)) = words;
        }
        if constexpr (AHEAD) {
            values = next_values;
            grads = next_grads;
        } else if (row + rows < m) {
            load(values, grads, row + rows);
        }
    }
#pragma unroll
    for (int pack = 0; pack < PACKS; ++pack) {
        if (Row::index(pack, 0) >= columns) break;
        float* to = partial + first * n + Row::index(pack, 0);
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
            record->set(dim3(unsigned(blocks)), division.block);
            const auto kernel = norm_grad_rows<T, packs(), CENTERED>;
            kernel<<<dim3(unsigned(blocks)), division.block, 0, stream>>>(
                static_cast<const T*>(x), static_cast<const T*>(weight), static_cast<const T*>(dy),
                static_cast<T*>(dx), partial, m, n, x_m, dy_m, eps);
        };
        switch (division.packs) {
            case 1: launch(std::integral_constant<int, 1>()); break;
            case 2: launch(std::integral_constant<int, 2>()); break;
            case 4: launch(std::integral_constant<int, 4>()); break;
            default: return;
        }
        const int64_t parts = blocks * division.block.y;
        launch_column_sums(partial, static_cast<T*>(dweight), parts, n, stream, record);
        if (CENTERED) launch_column_sums(partial + parts * n, static_cast<T*>(dbias), parts, n, stream, record);
    });
    return is_held ? launched : cudaErrorInvalidValue;
}
