// How the kernel of matmul_wgmma.cuh finishes the sums of sigma(x W^T + b), and those of the gradient.
#pragma once

#include "matmul_wgmma.cuh"
#include "sigmoid.cuh"

// The bias of the columns of a tile. A lane keeps, for each 64 columns, the two that its fragment of the sums has in
// one of eight groups of 8 columns, and gets the others from other lanes. Loaded before the sums are computed.
template <typename C>
struct TileBias {
    float kept[C::BLOCK_N / 32];

    template <typename T>
    __device__ __forceinline__ void load(const T* __restrict__ bias, int n, int N) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < C::BLOCK_N / 32; ++i) {
            const int column = n + i / 2 * 64 + lane / 4 * 8 + lane % 4 * 2 + i % 2;
            kept[i] = column < N ? to_float(bias[column]) : 0.0f;
        }
    }

    // Of column 8 j + lane % 4 * 2 + i of the tile; by all lanes of a warp.
    __device__ __forceinline__ float at(int j, int i) const {
        return __shfl_sync(0xffffffffu, kept[j / 8 * 2 + i], j % 8 * 4 + threadIdx.x % 4);
    }
};

// out = sigma(sum + bias), by the threads that hold the sums
template <typename T>
struct BiasSigmoid {
    static constexpr bool BOXES_FOR_ALL = false, OTHER_WARPS = false;
    const T* __restrict__ bias;

    __device__ __forceinline__ float operator()(float sum, int n) const {
        return sigmoid_for<T>(sum + to_float(bias[n]));
    }

    template <typename Out, bool PERMUTED, bool TRANSPOSED, typename C>
    struct Consumer {
        const T* __restrict__ bias;
        TileBias<C> of_tile;

        __device__ Consumer(const BiasSigmoid& finish) : bias(finish.bias) {}

        __device__ __forceinline__ void start(const Place<Out>& place, int, int n) { of_tile.load(bias, n, place.N); }

        __device__ __forceinline__ void store(const Place<Out>& place, float (&acc)[C::BLOCK_N / 2], int m, int n) {
#pragma unroll
            for (int i = 0; i < C::BLOCK_N / 2; i += 4) {
                const float left = of_tile.at(i / 4, 0), right = of_tile.at(i / 4, 1);
                acc[i] = sigmoid_for<T>(acc[i] + left), acc[i + 1] = sigmoid_for<T>(acc[i + 1] + right);
                acc[i + 2] = sigmoid_for<T>(acc[i + 2] + left), acc[i + 3] = sigmoid_for<T>(acc[i + 3] + right);
            }
            store_through_shared<Out, PERMUTED, TRANSPOSED>(place.map, place.out, acc, place.shared, place.boxes,
                                                            place.consumer, place.thread, m, n, place.M, place.N);
        }
    };
};

// The warps that finish the sums of 16 bits beside the producer, so that the tensor cores need not wait. The consumers
// round the sums of a tile, leave them in shared memory, and go on with the next one; three other warps finish them in
// place, and store. Two barriers for each consumer: its boxes are full, and empty.
//
// Work says what is done with a box, of 64 rows and columns. A thread has 8 columns of every ROWS-th row.
//   work.load(m, n, M, N)                  what it needs from global memory, two boxes ahead; (m, n): its first element
//   work.finish(loaded, box, row, result)  computes them, from `row` of the box on
//   work.store(result, m, n, M, N)         stores what else came of it; m: the first row of the box
// The fence between the writes to a box and TMA waits for all loads and stores of the thread: they begin after it.
constexpr int ASIDE_THREADS = 96, CHUNKS = ROW_BYTES / 16, ROWS = ASIDE_THREADS / CHUNKS;

template <typename T, typename Work>
struct Aside {
    static constexpr bool BOXES_FOR_ALL = true, OTHER_WARPS = true;
    static constexpr int BOTH = ASIDE_THREADS + WARPGROUP;
    static constexpr int FULL = 3, EMPTY = 5, ASIDE = 7;  // numbers of barriers, the first two of consumer 0
    Work work;

    template <typename Out, bool PERMUTED, bool TRANSPOSED, typename C>
    struct Consumer {
        static_assert(sizeof(T) == 2 && !PERMUTED && !TRANSPOSED && C::CONSUMERS == 2, "");
        bool is_first = true;

        __device__ Consumer(const Aside&) {}

        __device__ __forceinline__ void start(const Place<Out>&, int, int) {}

        __device__ __forceinline__ void store(const Place<Out>& place, float (&acc)[C::BLOCK_N / 2], int, int) {
            if (!is_first) named_barrier_sync(EMPTY + place.consumer, BOTH);
            is_first = false;
#pragma unroll
            for (int box = 0; box < C::BOXES; ++box) {
                write_box<Out, false>(place.shared + box * BOX_BYTES, acc, box * 8, place.thread);
            }
            named_barrier_arrive(FULL + place.consumer, BOTH);
        }
    };

    // By the three warps: all tiles of the block.
    template <typename C, typename Scheduler>
    __device__ __forceinline__ void run(const CUtensorMap* out, const Scheduler& tiles, uint32_t shared, char* boxes,
                                        int M, int N) const {
        const int thread = threadIdx.x - C::PRODUCER - 32, clusters = gridDim.x / C::CLUSTER;
        const int row = thread / CHUNKS, column = thread % CHUNKS * 8;
        for (int item = blockIdx.x / C::CLUSTER; item < tiles.count(); item += clusters) {
            const TileCoordinate tile = tiles[item];
            const int tile_m = (tile.m * C::CLUSTER + cta_rank<C>()) * C::BLOCK_M, n = tile.n * C::BLOCK_N;
#pragma unroll 1
            for (int consumer = 0; consumer < C::CONSUMERS; ++consumer) {
                const int m = tile_m + consumer * 64;
                auto loaded = work.load(m + row, n + column, M, N);
                auto next = work.load(m + row, n + 64 + column, M, N);
                named_barrier_sync(FULL + consumer, BOTH);
#pragma unroll 1
                for (int i = 0; i < C::BOXES && n + i * 64 < N; ++i) {
                    const int offset = (consumer * C::BOXES + i) * BOX_BYTES;
                    typename Work::Result result;
                    work.finish(loaded, boxes + offset, row, result);
                    fence_proxy_async();
                    named_barrier_sync(ASIDE, ASIDE_THREADS);
                    if (thread == 0) {
                        tma_store(out, shared + offset, n + i * 64, m);
                        tma_store_commit_group();
                    }
                    work.store(result, m, n + i * 64 + column, M, N);
                    loaded = next;
                    next = work.load(m + row, n + (i + 2) * 64 + column, M, N);
                }
                if (thread == 0) tma_store_wait_group_read<0>();
                if (item + clusters < tiles.count()) {
                    __syncwarp();
                    named_barrier_arrive(EMPTY + consumer, BOTH);
                }
            }
        }
    }
};

// The 16 bytes of a box that hold the thread's 8 columns of a row.
__device__ __forceinline__ uint4& chunk_of(char* box, int row) {
    return *reinterpret_cast<uint4*>(box + row * ROW_BYTES + (threadIdx.x % CHUNKS ^ row % 8) * 16);
}

// 8 elements at a multiple of 16 bytes, or zeros.
template <typename T>
__device__ __forceinline__ Pack<T, 8> load_if(bool inside, const T* __restrict__ at) {
    Pack<T, 8> x = {};
    if (inside) x = *reinterpret_cast<const Pack<T, 8>*>(at);
    return x;
}

// out = sigma(sum + bias). The bias is at a multiple of 16 bytes, and N a multiple of 8.
template <typename T>
struct SigmoidAside {
    const T* __restrict__ bias;

    struct Result {};

    __device__ __forceinline__ Pack<T, 8> load(int, int n, int, int N) const { return load_if(n < N, bias + n); }

    __device__ __forceinline__ void finish(const Pack<T, 8>& b, char* box, int row, Result&) const {
#pragma unroll 2
        for (; row < 64; row += ROWS) {
            uint4& chunk = chunk_of(box, row);
            const uint4 rounded = chunk;
            Pack<T, 8> x;
            memcpy(&x, &rounded, 16);
#pragma unroll
            for (int i = 0; i < 8; ++i) x[i] = from_float<T>(sigmoid_for<T>(to_float(x[i]) + to_float(b[i])));
            uint4 y;
            memcpy(&y, &x, 16);
            chunk = y;
        }
    }

    __device__ __forceinline__ void store(const Result&, int, int, int, int) const {}
};

// out = dz = dy s (1 - s), where s = sigma(sum + bias), and for each warp the sums over its rows of a box, of which the
// gradient of the bias is made. Also the rows of dy are at multiples of 16 bytes.
template <typename T>
struct SigmoidGradientAside {
    static constexpr int WARPS = ASIDE_THREADS / 32, EACH = (64 + ROWS - 1) / ROWS;  // rows of a thread, at most
    const T* __restrict__ bias;
    const T* __restrict__ dy;
    int64_t dy_stride;
    float* __restrict__ sums;  // (ceil(M / 64) WARPS, N)

    struct Loaded {
        Pack<T, 8> bias, dy[EACH];
    };

    __device__ __forceinline__ Loaded load(int m, int n, int M, int N) const {
        Loaded x;
        x.bias = load_if(n < N, bias + n);
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            const int row = m + i * ROWS;
            x.dy[i] = load_if(row < M && n < N, dy + row * dy_stride + n);
        }
        return x;
    }

    struct Result {
        float columns[8];
    };

    __device__ __forceinline__ void finish(const Loaded& loaded, char* box, int row, Result& result) const {
        float(&columns)[8] = result.columns;
#pragma unroll
        for (int i = 0; i < 8; ++i) columns[i] = 0.0f;
#pragma unroll
        for (int each = 0; each < EACH; ++each, row += ROWS) {
            if (row >= 64) continue;
            uint4& chunk = chunk_of(box, row);
            const uint4 rounded = chunk;
            Pack<T, 8> x;
            memcpy(&x, &rounded, 16);
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const float s = sigmoid_for<T>(to_float(x[i]) + to_float(loaded.bias[i]));
                const float dz = to_float(loaded.dy[each][i]) * (s * (1.0f - s));
                columns[i] += dz;
                x[i] = from_float<T>(dz);
            }
            uint4 y;
            memcpy(&y, &x, 16);
            chunk = y;
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) {  // over the lanes with the same columns
            columns[i] += __shfl_xor_sync(0xffffffffu, columns[i], 8);
            columns[i] += __shfl_xor_sync(0xffffffffu, columns[i], 16);
        }
    }

    __device__ __forceinline__ void store(const Result& result, int m, int n, int M, int N) const {
        if (threadIdx.x % 32 >= CHUNKS || m >= M || n >= N) return;
        const float(&x)[8] = result.columns;
        float4* const at = reinterpret_cast<float4*>(sums + int64_t(m / 64 * WARPS + threadIdx.x / 32 % 4 - 1) * N + n);
        at[0] = make_float4(x[0], x[1], x[2], x[3]);
        at[1] = make_float4(x[4], x[5], x[6], x[7]);
    }
};
