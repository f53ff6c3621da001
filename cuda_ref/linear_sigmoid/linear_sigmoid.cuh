// Epilogues for the kernel of matmul/wgmma.cuh: sigma(x W^T + b), and its gradient.
#pragma once

#include "matmul/wgmma.cuh"
#include "common/sigmoid.cuh"

// The bias of the columns of a tile, loaded before the sums are computed. For each 64 columns a lane keeps the two that
// its fragment of the sums has in one of eight groups of 8 columns, and gets the others from other lanes.
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

    // The bias of column 8 j + lane % 4 * 2 + i of the tile; called by all lanes of a warp.
    __device__ __forceinline__ float at(int j, int i) const {
        return __shfl_sync(0xffffffffu, kept[j / 8 * 2 + i], j % 8 * 4 + threadIdx.x % 4);
    }
};

// out = sigma(sum + bias), computed by the threads that hold the sums
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

// Three warps beside the producer finish 16-bit sums, so that the tensor cores need not wait. The consumers round the
// sums of a tile, leave them in shared memory, and continue with the next tile. The three warps finish the sums in
// place, and store them. Each consumer has two barriers: for full boxes, and for empty ones. After a block's last tile
// there are no products to overlap with: the consumers, which have more threads, finish it themselves.
//
// Work defines the work of a group of threads on a box of 64 rows and columns. A thread has 8 columns of every ROWS-th
// row.
//   work.load<G>(m, n, M, N)               loads inputs from global memory, two boxes ahead; (m, n): its first element
//   work.finish<G>(loaded, box, row, result)        computes the results, from `row` of the box on
//   work.store<G>(result, thread, m, n, M, N)       stores other results; m: the first row of the box
// The fence between the writes to a box and TMA waits for all loads and stores of the thread, so they begin after it.
template <int THREADS_>
struct Group {
    static constexpr int THREADS = THREADS_, ROWS = THREADS / (ROW_BYTES / 16), EACH = (64 + ROWS - 1) / ROWS;
};
using ThreeWarps = Group<96>;
constexpr int CHUNKS = ROW_BYTES / 16;

template <typename T, typename Work>
struct Aside {
    static constexpr bool BOXES_FOR_ALL = true, OTHER_WARPS = true;
    static constexpr int BOTH = ThreeWarps::THREADS + WARPGROUP;
    static constexpr int OWN = 1, FULL = 3, EMPTY = 5, ASIDE = 7;  // barriers; the first three are those of consumer 0
    Work work;
    int tiles;  // tiles of the product, in units of a cluster

    // Finishes the boxes of a consumer, for the 64 rows from m on. Calls `begin` after the first loads have started.
    template <typename G, typename C, typename Begin>
    __device__ __forceinline__ static void finish_rows(const Work& work, const CUtensorMap* out, uint32_t shared,
                                                       char* boxes, int barrier, int thread, int m, int n, int M, int N,
                                                       Begin begin) {
        const int row = thread / CHUNKS, column = n + thread % CHUNKS * 8;
        auto loaded = work.template load<G>(m + row, column, M, N);
        auto next = work.template load<G>(m + row, column + 64, M, N);
        begin();
#pragma unroll 1
        for (int i = 0; i < C::BOXES && n + i * 64 < N; ++i) {
            typename Work::Result result;
            work.template finish<G>(loaded, boxes + i * BOX_BYTES, row, result);
            fence_proxy_async();
            named_barrier_sync(barrier, G::THREADS);
            if (thread == 0) {
                tma_store(out, shared + i * BOX_BYTES, n + i * 64, m);
                tma_store_commit_group();
            }
            work.template store<G>(result, thread, m, column + i * 64, M, N);
            loaded = next;
            next = work.template load<G>(m + row, column + (i + 2) * 64, M, N);
        }
    }

    template <typename Out, bool PERMUTED, bool TRANSPOSED, typename C>
    struct Consumer {
        static_assert(sizeof(T) == 2 && !PERMUTED && !TRANSPOSED && C::CONSUMERS == 2, "");
        const Work& work;
        bool is_first = true;
        int left;  // number of tiles of this block

        __device__ Consumer(const Aside& finish) : work(finish.work) {
            left = (finish.tiles - 1 - int(blockIdx.x) / C::CLUSTER) / (int(gridDim.x) / C::CLUSTER);
        }

        __device__ __forceinline__ void start(const Place<Out>&, int, int) {}

        __device__ __forceinline__ void store(const Place<Out>& place, float (&acc)[C::BLOCK_N / 2], int m, int n) {
            if (!is_first) named_barrier_sync(EMPTY + place.consumer, BOTH);
            is_first = false;
#pragma unroll
            for (int box = 0; box < C::BOXES; ++box) {
                write_box<Out, false>(place.shared + box * BOX_BYTES, acc, box * 8, place.thread);
            }
            if (left-- > 0) {
                named_barrier_arrive(FULL + place.consumer, BOTH);
                return;
            }
            named_barrier_sync(OWN + place.consumer, WARPGROUP);
            finish_rows<Group<WARPGROUP>, C>(work, place.map, place.shared, const_cast<char*>(place.boxes),
                                             OWN + place.consumer, place.thread, m, n, place.M, place.N, [] {});
        }
    };

    // Called by the three warps: finishes all tiles of the block but the last one.
    template <typename C, typename Scheduler>
    __device__ __forceinline__ void run(const CUtensorMap* out, const Scheduler& tiles, uint32_t shared, char* boxes,
                                        int M, int N) const {
        const int thread = threadIdx.x - C::PRODUCER - 32, clusters = gridDim.x / C::CLUSTER;
        for (int item = blockIdx.x / C::CLUSTER; item + clusters < tiles.count(); item += clusters) {
            const TileCoordinate tile = tiles[item];
            const int tile_m = (tile.m * C::CLUSTER + cta_rank<C>()) * C::BLOCK_M, n = tile.n * C::BLOCK_N;
#pragma unroll 1
            for (int consumer = 0; consumer < C::CONSUMERS; ++consumer) {
                const int offset = consumer * C::BOXES * BOX_BYTES;
                finish_rows<ThreeWarps, C>(work, out, shared + offset, boxes + offset, ASIDE, thread,
                                           tile_m + consumer * 64, n, M, N,
                                           [&] { named_barrier_sync(FULL + consumer, BOTH); });
                if (thread == 0) tma_store_wait_group_read<0>();
                __syncwarp();
                named_barrier_arrive(EMPTY + consumer, BOTH);
            }
        }
    }
};

// The 16 bytes of a box that hold the thread's 8 columns of a row.
__device__ __forceinline__ uint4& chunk_of(char* box, int row) {
    return *reinterpret_cast<uint4*>(box + row * ROW_BYTES + (threadIdx.x % CHUNKS ^ row % 8) * 16);
}

// Loads 8 elements from a multiple of 16 bytes, or gives zeros. The result is four words, because the compiler would
// take a pack apart at once, and so wait for each load before the next.
template <typename T>
__device__ __forceinline__ uint4 load_if(bool inside, const T* __restrict__ at) {
    uint4 x = make_uint4(0, 0, 0, 0);
    if (inside) x = *reinterpret_cast<const uint4*>(at);
    return x;
}

template <typename T>
__device__ __forceinline__ Pack<T, 8> unpacked(uint4 x) {
    Pack<T, 8> pack;
    memcpy(&pack, &x, 16);
    return pack;
}

template <typename T>
__device__ __forceinline__ uint4 packed(const Pack<T, 8>& pack) {
    uint4 x;
    memcpy(&x, &pack, 16);
    return x;
}

// out = sigma(sum + bias). The bias begins at a multiple of 16 bytes, and N is a multiple of 8.
template <typename T>
struct SigmoidAside {
    const T* __restrict__ bias;

    struct Result {};

    template <typename G>
    __device__ __forceinline__ uint4 load(int, int n, int, int N) const {
        return load_if(n < N, bias + n);
    }

    template <typename G>
    __device__ __forceinline__ void finish(uint4 loaded, char* box, int row, Result&) const {
        const Pack<T, 8> b = unpacked<T>(loaded);
#pragma unroll 2
        for (; row < 64; row += G::ROWS) {
            uint4& chunk = chunk_of(box, row);
            Pack<T, 8> x = unpacked<T>(chunk);
#pragma unroll
            for (int i = 0; i < 8; ++i) x[i] = from_float<T>(sigmoid_for<T>(to_float(x[i]) + to_float(b[i])));
            chunk = packed(x);
        }
    }

    template <typename G>
    __device__ __forceinline__ void store(const Result&, int, int, int, int, int) const {}
};

// out = dz = dy s (1 - s), where s = sigma(sum + bias). Each warp also computes the sums over its rows of a box, from
// which the gradient of the bias is made. The rows of dy must begin at multiples of 16 bytes too.
template <typename T>
struct SigmoidGradientAside {
    static constexpr int SUMS = 4;  // sums per box
    const T* __restrict__ bias;
    const T* __restrict__ dy;
    int64_t dy_stride;
    float* __restrict__ sums;  // (ceil(M / 64) SUMS, N)

    template <typename G>
    struct Loaded {
        uint4 bias, dy[G::EACH];
    };

    template <typename G>
    __device__ __forceinline__ Loaded<G> load(int m, int n, int M, int N) const {
        Loaded<G> x;
        x.bias = load_if(n < N, bias + n);
#pragma unroll
        for (int i = 0; i < G::EACH; ++i) {
            const int row = m + i * G::ROWS;
            x.dy[i] = load_if(row < M && n < N, dy + row * dy_stride + n);
        }
        return x;
    }

    struct Result {
        float columns[8];
    };

    template <typename G>
    __device__ __forceinline__ void finish(const Loaded<G>& loaded, char* box, int row, Result& result) const {
        float(&columns)[8] = result.columns;
        const Pack<T, 8> b = unpacked<T>(loaded.bias);
#pragma unroll
        for (int i = 0; i < 8; ++i) columns[i] = 0.0f;
#pragma unroll
        for (int each = 0; each < G::EACH; ++each, row += G::ROWS) {
            if (row >= 64) continue;
            uint4& chunk = chunk_of(box, row);
            Pack<T, 8> x = unpacked<T>(chunk);
            const Pack<T, 8> dy_of_row = unpacked<T>(loaded.dy[each]);
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const float s = sigmoid_for<T>(to_float(x[i]) + to_float(b[i]));
                const float dz = to_float(dy_of_row[i]) * (s * (1.0f - s));
                columns[i] += dz;
                x[i] = from_float<T>(dz);
            }
            chunk = packed(x);
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) {  // adds over the lanes with the same columns
            columns[i] += __shfl_xor_sync(0xffffffffu, columns[i], 8);
            columns[i] += __shfl_xor_sync(0xffffffffu, columns[i], 16);
        }
    }

    // With three warps the fourth sum stays 0.
    template <typename G>
    __device__ __forceinline__ void store(const Result& result, int thread, int m, int n, int M, int N) const {
        constexpr int WARPS = G::THREADS / 32;
        const bool is_rest = WARPS < SUMS && thread / CHUNKS == 1;
        if (thread % 32 >= CHUNKS && !is_rest || m >= M || n >= N) return;
        const int at = is_rest ? WARPS : thread / 32;
        const float(&x)[8] = result.columns;
        float4* const to = reinterpret_cast<float4*>(sums + int64_t(m / 64 * SUMS + at) * N + n);
        to[0] = is_rest ? make_float4(0, 0, 0, 0) : make_float4(x[0], x[1], x[2], x[3]);
        to[1] = is_rest ? make_float4(0, 0, 0, 0) : make_float4(x[4], x[5], x[6], x[7]);
    }
};
