// out[m, n] = sum over k of a[m, k] * b[k, n], 16 bits, any strides, for products that take less time than to load a
// tile
//
// matmul_short: 2^log_lanes neighbouring threads share an element of out. Each adds up every 2^log_lanes-th term, with
// TERMS loads in flight, and shuffles add their sums in a fixed order. There is no shared memory, no barrier and little
// code: the time is that of dependent memory accesses, including those for instructions. For few outputs with long sums
// a block shares an element, and the sums of its warps are added in shared memory.
//
// matmul_short_grid, for many outputs with short sums: a thread computes a grid of elements and loads 2 ROWS factors
// for ROWS^2 products. Neighbouring threads have neighbouring columns.
//
// matmul_short_tile, for still more outputs: a block computes a tile. Its factors pass through shared memory as
// float32; all of their loads are in flight at once. Operands may be at any address, and out is stored 8 aligned bytes
// at a time.
//
// Precision: products of 16 bits are exact, sums float32, rounded once.
#include <algorithm>

#include "common/tiles.cuh"
#include "common/unaligned.cuh"

constexpr int THREADS = 128, TERMS = 8, LONG_LANES = 10;

struct ShortOperand {
    const uint16_t* data;
    int64_t stride, stride_k;
};

template <typename T>
__device__ __forceinline__ float as_float(uint32_t bits) {
    const uint16_t half = uint16_t(bits);
    T x;
    memcpy(&x, &half, 2);
    return to_float(x);
}

// LANES: the logarithm of the most threads that share an element, in one warp or in a block.
template <typename T, int LANES>
__global__ void __launch_bounds__(LANES > 5 ? 1 << LANES : THREADS)
    matmul_short(const ShortOperand a, const ShortOperand b, T* __restrict__ out, int count, const FastDivisor columns,
                 int N, int K, int log_lanes) {
    const int thread = int(blockIdx.x) * int(blockDim.x) + threadIdx.x, lane = thread & ((1 << log_lanes) - 1);
    const int index = thread >> log_lanes, element = min(index, count - 1);
    const int m = columns.quotient(element), n = element - m * N;
    const uint16_t* const row = a.data + m * a.stride;
    const uint16_t* const column = b.data + n * b.stride;
    float sum = 0;
#pragma unroll 1
    for (int first = lane; first < K; first += TERMS << log_lanes) {
        uint32_t left[TERMS], right[TERMS];
#pragma unroll
        for (int i = 0; i < TERMS; ++i) {
            const int64_t k = min(first + (i << log_lanes), K - 1);
            left[i] = load_now(row + k * a.stride_k);
            right[i] = load_now(column + k * b.stride_k);
        }
#pragma unroll
        for (int i = 0; i < TERMS; ++i) {
            if (first + (i << log_lanes) < K) sum = fmaf(as_float<T>(left[i]), as_float<T>(right[i]), sum);
        }
    }
    for (int apart = LANES > 5 ? 16 : 1 << log_lanes >> 1; apart > 0; apart >>= 1) {
        sum += __shfl_xor_sync(0xffffffffu, sum, apart);
    }
    if constexpr (LANES > 5) {
        __shared__ float sums[1 << (LANES - 5)];
        if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
        __syncthreads();
        if (threadIdx.x >= 32) return;
        sum = threadIdx.x < blockDim.x / 32 ? sums[threadIdx.x] : 0;
        for (int apart = 16; apart > 0; apart >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
    }
    if (lane == 0 && index < count) out[index] = from_float<T>(sum);
}

// A warp's threads form a grid, 2^log_across of them along a row. A thread's columns are as far apart as the warp's
// grid is wide, its rows as far apart as the grid is high.
template <typename T, int ROWS, int TERMS>
__global__ void __launch_bounds__(THREADS) matmul_short_grid(const ShortOperand a, const ShortOperand b,
                                                             T* __restrict__ out, int warps, const FastDivisor columns,
                                                             int across, int M, int N, int K, int log_across) {
    const int thread = int(blockIdx.x) * THREADS + threadIdx.x, warp = thread / 32, lane = thread % 32;
    if (warp >= warps) return;
    const int beside = 1 << log_across, below = 32 >> log_across, y = columns.quotient(warp), x = warp - y * across;
    const int m0 = y * ROWS * below + (lane >> log_across), n0 = x * ROWS * beside + (lane & (beside - 1));
    const uint16_t* row[ROWS];
    const uint16_t* column[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        row[i] = a.data + min(m0 + i * below, M - 1) * a.stride;
        column[i] = b.data + min(n0 + i * beside, N - 1) * b.stride;
    }
    float sums[ROWS][ROWS] = {};
#pragma unroll 1
    for (int first = 0; first < K; first += TERMS) {
        uint32_t left[TERMS][ROWS], right[TERMS][ROWS];
#pragma unroll
        for (int t = 0; t < TERMS; ++t) {
            const int64_t k = min(first + t, K - 1);
#pragma unroll
            for (int i = 0; i < ROWS; ++i) {
                left[t][i] = load_now(row[i] + k * a.stride_k);
                right[t][i] = load_now(column[i] + k * b.stride_k);
            }
        }
#pragma unroll
        for (int t = 0; t < TERMS; ++t) {
            if (first + t >= K) continue;
#pragma unroll
            for (int i = 0; i < ROWS; ++i) {
#pragma unroll
                for (int j = 0; j < ROWS; ++j) {
                    sums[i][j] = fmaf(as_float<T>(left[t][i]), as_float<T>(right[t][j]), sums[i][j]);
                }
            }
        }
    }
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
#pragma unroll
        for (int j = 0; j < ROWS; ++j) {
            const int m = m0 + i * below, n = n0 + j * beside;
            if (m < M && n < N) out[int64_t(m) * N + n] = from_float<T>(sums[i][j]);
        }
    }
}

// Arguments as for matmul_short. `rows`: rows of a thread's grid, 4 or 8.
extern "C" int matmul_short_grid(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K,
                                 int64_t stride_am, int64_t stride_ak, int64_t stride_bk, int64_t stride_bn,
                                 int64_t rows, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const ShortOperand left{static_cast<const uint16_t*>(a), stride_am, stride_ak};
    const ShortOperand right{static_cast<const uint16_t*>(b), stride_bn, stride_bk};
    int log_across = 0;
    while (log_across < 5 && rows << log_across < N) ++log_across;
    const int across = int(ceil_div<int64_t>(N, rows << log_across));
    const int warps = across * int(ceil_div<int64_t>(M, rows * (32 >> log_across)));
    const dim3 grid(unsigned(ceil_div(warps, THREADS / 32)));
    record->set(grid, THREADS);
    const auto run = [&](auto zero) {
        using T = decltype(zero);
        const auto kernel = rows == 4 ? matmul_short_grid<T, 4, 4> : matmul_short_grid<T, 8, 2>;
        kernel<<<grid, THREADS, 0, stream>>>(left, right, static_cast<T*>(out), warps, FastDivisor(uint32_t(across)),
                                             across, int(M), int(N), int(K), log_across);
        return cudaGetLastError();
    };
    switch (dtype) {
        case FLOAT16: return run(__half());
        case BFLOAT16: return run(__nv_bfloat16());
        default: return cudaErrorInvalidValue;
    }
}

// Stores elements `first` ... `last` - 1 of a group of four to 8 aligned bytes.
template <typename T>
__device__ __forceinline__ void store_four(T* to, uint64_t four, int first, int last) {
    if (first <= 0 && last >= 4) {
        *reinterpret_cast<uint64_t*>(to) = four;
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const uint16_t bits = uint16_t(four >> 16 * i);
        if (i >= first && i < last) memcpy(to + i, &bits, 2);
    }
}

// A block computes a tile. A warp's threads form a grid, ACROSS of them along a row. Each thread has 4 rows and 4
// columns.
template <int ACROSS>
struct ShortTile {
    static constexpr int THREADS = 256, WARPS = THREADS / 32, BELOW = 32 / ACROSS;
    static constexpr int LOG_COLUMNS = ACROSS == 16 ? 6 : 5, LOG_ROWS = 12 - LOG_COLUMNS;
    static constexpr int ROWS = 1 << LOG_ROWS, COLUMNS = 1 << LOG_COLUMNS;
    static_assert(COLUMNS == 4 * ACROSS && ROWS == 4 * BELOW * WARPS, "");
    static constexpr int LEFT_WARPS = WARPS * ROWS / (ROWS + COLUMNS);  // warps that load a; the others load b
    static constexpr int LEFT_PITCH = ROWS + 4, RIGHT_PITCH = COLUMNS + 4;
    static constexpr int TERM_BYTES = 4 * (LEFT_PITCH + RIGHT_PITCH);
};

template <typename T, int ACROSS>
__global__ void __launch_bounds__(ShortTile<ACROSS>::THREADS)
    matmul_short_tile(const ShortOperand a, const ShortOperand b, T* __restrict__ out, const FastDivisor columns,
                      int across, const FastDivisor terms, int M, int N, int K) {
    using C = ShortTile<ACROSS>;
    constexpr int LOADS = 16;
    extern __shared__ __align__(16) char shared[];
    float* const left = reinterpret_cast<float*>(shared);
    float* const right = left + K * C::LEFT_PITCH;
    const int tile_y = columns.quotient(blockIdx.x), tile_x = blockIdx.x - tile_y * across;
    const int m0 = tile_y * C::ROWS, n0 = tile_x * C::COLUMNS, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    {
        const bool is_left = warp < C::LEFT_WARPS;
        const ShortOperand x = is_left ? a : b;
        const int size = is_left ? C::ROWS : C::COLUMNS, pitch = is_left ? C::LEFT_PITCH : C::RIGHT_PITCH;
        const int first = is_left ? m0 : n0, last = (is_left ? M : N) - 1;
        const int threads = is_left ? C::LEFT_WARPS * 32 : C::THREADS - C::LEFT_WARPS * 32;
        const int thread = is_left ? threadIdx.x : threadIdx.x - C::LEFT_WARPS * 32;
        const int log_size = is_left ? C::LOG_ROWS : C::LOG_COLUMNS;
        float* const to = is_left ? left : right;
#pragma unroll 1
        for (int begin = thread; begin < size * K; begin += threads * LOADS) {
            uint32_t values[LOADS];
            int at[LOADS];
#pragma unroll
            for (int i = 0; i < LOADS; ++i) {
                const int e = min(begin + i * threads, size * K - 1);
                const int k = x.stride_k == 1 ? e - terms.quotient(e) * K : e >> log_size;
                const int r = x.stride_k == 1 ? terms.quotient(e) : e & (size - 1);
                at[i] = k * pitch + r;
                values[i] = load_now(x.data + min(first + r, last) * x.stride + k * x.stride_k);
            }
#pragma unroll
            for (int i = 0; i < LOADS; ++i) to[at[i]] = as_float<T>(values[i]);
        }
    }
    __syncthreads();
    const int row = (warp * C::BELOW + lane / ACROSS) * 4, beside = lane % ACROSS;
    float sums[4][4] = {};
#pragma unroll 2
    for (int k = 0; k < K; ++k) {
        const Pack<float, 4> x = *reinterpret_cast<const Pack<float, 4>*>(left + k * C::LEFT_PITCH + row);
        const Pack<float, 4> y = *reinterpret_cast<const Pack<float, 4>*>(right + k * C::RIGHT_PITCH + beside * 4);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
            for (int j = 0; j < 4; ++j) sums[i][j] = fmaf(x[i], y[j], sums[i][j]);
        }
    }
    // A thread stores 8 aligned bytes: its own elements after the last ones of its neighbour.
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int m = m0 + row + i;
        T* const begin = out + int64_t(m) * N + n0;
        const int behind = int(reinterpret_cast<uintptr_t>(begin) / 2 % 4);
        const Pack<T, 4> rounded = {from_float<T>(sums[i][0]), from_float<T>(sums[i][1]), from_float<T>(sums[i][2]),
                                    from_float<T>(sums[i][3])};
        uint64_t own;
        memcpy(&own, &rounded, 8);
        const uint32_t low = __shfl_up_sync(0xffffffffu, uint32_t(own), 1);
        const uint32_t high = __shfl_up_sync(0xffffffffu, uint32_t(own >> 32), 1);
        if (m >= M) continue;
        const uint64_t before = uint64_t(high) << 32 | low;
        const uint64_t four = behind == 0 ? own : own << 16 * behind | before >> (64 - 16 * behind);
        const int column = beside * 4 - behind, columns_left = min(C::COLUMNS, N - n0);
        store_four(begin + column, four, beside == 0 ? behind : 0, columns_left - column);
        if (beside == ACROSS - 1 && behind > 0) {
            store_four(begin + column + 4, own >> (64 - 16 * behind), 0, columns_left - column - 4);
        }
    }
}

// Arguments as for matmul_short, with K up to 64. `across`: ACROSS of ShortTile, 8 or 16.
extern "C" int matmul_short_tile(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K,
                                 int64_t stride_am, int64_t stride_ak, int64_t stride_bk, int64_t stride_bn,
                                 int64_t across, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const ShortOperand left{static_cast<const uint16_t*>(a), stride_am, stride_ak};
    const ShortOperand right{static_cast<const uint16_t*>(b), stride_bn, stride_bk};
    const auto run_tile = [&](auto zero, auto config, auto kernel) {
        using T = decltype(zero);
        using C = decltype(config);
        const int tiles = int(ceil_div<int64_t>(N, C::COLUMNS));
        const dim3 grid(unsigned(tiles * ceil_div<int64_t>(M, C::ROWS)));
        const size_t bytes = K * C::TERM_BYTES;
        record->set(grid, C::THREADS, bytes);
        kernel<<<grid, C::THREADS, bytes, stream>>>(left, right, static_cast<T*>(out), FastDivisor(uint32_t(tiles)),
                                                    tiles, FastDivisor(uint32_t(K)), int(M), int(N), int(K));
        return cudaGetLastError();
    };
    const auto run = [&](auto zero) {
        using T = decltype(zero);
        switch (across) {
            case 8: return run_tile(zero, ShortTile<8>(), matmul_short_tile<T, 8>);
            case 16: return run_tile(zero, ShortTile<16>(), matmul_short_tile<T, 16>);
            default: return cudaErrorInvalidValue;
        }
    };
    switch (dtype) {
        case FLOAT16: return run(__half());
        case BFLOAT16: return run(__nv_bfloat16());
        default: return cudaErrorInvalidValue;
    }
}

// out has fewer than 2^31 / 2^log_lanes elements. log_lanes: at most 5 within a warp, or 7 to LONG_LANES within a
// block.
extern "C" int matmul_short(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K,
                            int64_t stride_am, int64_t stride_ak, int64_t stride_bk, int64_t stride_bn,
                            int64_t log_lanes, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const ShortOperand left{static_cast<const uint16_t*>(a), stride_am, stride_ak};
    const ShortOperand right{static_cast<const uint16_t*>(b), stride_bn, stride_bk};
    const int count = int(M * N), threads = std::max(THREADS, 1 << log_lanes);
    const dim3 grid(unsigned(ceil_div<int64_t>(M * N << log_lanes, threads)));
    record->set(grid, threads);
    const auto run = [&](auto zero) {
        using T = decltype(zero);
        const auto kernel = log_lanes > 5 ? matmul_short<T, LONG_LANES> : matmul_short<T, 5>;
        kernel<<<grid, threads, 0, stream>>>(left, right, static_cast<T*>(out), count, FastDivisor(uint32_t(N)),
                                             int(N), int(K), int(log_lanes));
        return cudaGetLastError();
    };
    switch (dtype) {
        case FLOAT16: return run(__half());
        case BFLOAT16: return run(__nv_bfloat16());
        default: return cudaErrorInvalidValue;
    }
}
