// How the kernel of matmul_wgmma.cuh finishes the sums of sigma(x W^T + b), and those of the gradient.
#pragma once

#include "matmul_wgmma.cuh"
#include "sigmoid.cuh"

// The bias of the columns of a tile. A lane keeps, for each 64 columns, the two that its fragment of the sums has in one
// of eight groups of 8 columns, and gets the others from other lanes. Loaded before the sums are computed.
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

// The same in 16 bits by three warps beside the producer, so that the tensor cores need not wait for exponentials. The
// consumers round the sums of a tile, leave them in shared memory, and go on with the next one; the other warps add the
// bias, compute the sigmoid in place, and store. Two barriers for each consumer: its boxes are full, and empty.
template <typename T>
struct BiasSigmoidAside {
    static constexpr bool BOXES_FOR_ALL = true, OTHER_WARPS = true;
    static constexpr int THREADS = 96, BOTH = THREADS + WARPGROUP;
    static constexpr int FULL = 3, EMPTY = 5, ASIDE = 7;  // numbers of barriers, the first two of consumer 0
    static constexpr int CHUNKS = ROW_BYTES / 16, ROWS = THREADS / CHUNKS;
    const T* __restrict__ bias;  // at a multiple of 16 bytes; N is a multiple of 8

    template <typename Out, bool PERMUTED, bool TRANSPOSED, typename C>
    struct Consumer {
        static_assert(sizeof(T) == 2 && !PERMUTED && !TRANSPOSED, "");
        bool is_first = true;

        __device__ Consumer(const BiasSigmoidAside&) {}

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
    template <typename C, typename Tiles>
    __device__ __forceinline__ void run(const CUtensorMap* out, const Tiles& tiles, uint32_t shared, char* boxes,
                                        int N) const {
        const int thread = threadIdx.x - C::PRODUCER - 32, clusters = gridDim.x / C::CLUSTER;
        for (int item = blockIdx.x / C::CLUSTER; item < tiles.count(); item += clusters) {
            const TileCoordinate tile = tiles[item];
            const int m = (tile.m * C::CLUSTER + cta_rank<C>()) * C::BLOCK_M, n = tile.n * C::BLOCK_N;
#pragma unroll 1
            for (int consumer = 0; consumer < C::CONSUMERS; ++consumer) {
                named_barrier_sync(FULL + consumer, BOTH);
#pragma unroll 1
                for (int i = 0; i < C::BOXES && n + i * 64 < N; ++i) {
                    const int offset = (consumer * C::BOXES + i) * BOX_BYTES;
                    finish_box(boxes + offset, n + i * 64, N, thread);
                    fence_proxy_async();
                    named_barrier_sync(ASIDE, THREADS);
                    if (thread == 0) {
                        tma_store(out, shared + offset, n + i * 64, m + consumer * 64);
                        tma_store_commit_group();
                    }
                }
                if (thread == 0) tma_store_wait_group_read<0>();
                if (item + clusters < tiles.count()) {
                    __syncwarp();
                    named_barrier_arrive(EMPTY + consumer, BOTH);
                }
            }
        }
    }

    // 64 rows from column n on. A thread has 8 columns of every ROWS-th row.
    __device__ __forceinline__ void finish_box(char* box, int n, int N, int thread) const {
        const int chunk = thread % CHUNKS;
        Pack<T, 8> b = {};
        if (n + chunk * 8 < N) b = *reinterpret_cast<const Pack<T, 8>*>(bias + n + chunk * 8);
#pragma unroll 2
        for (int row = thread / CHUNKS; row < 64; row += ROWS) {
            auto* const at = reinterpret_cast<Pack<T, 8>*>(box + row * ROW_BYTES + (chunk ^ row % 8) * 16);
            Pack<T, 8> x = *at;
#pragma unroll
            for (int i = 0; i < 8; ++i) x[i] = from_float<T>(sigmoid_for<T>(to_float(x[i]) + to_float(b[i])));
            *at = x;
        }
    }
};

// out = dz = dy s (1 - s), where s = sigma(sum + bias), in 16 bits; and the sums of dz over 16 rows each, of which the
// gradient of the bias is made. TMA copies a tile of dy to the boxes while the products are computed. Each thread reads
// the elements of its fragment there, and writes dz in their place.
template <typename T>
struct SigmoidGradient {
    static constexpr bool BOXES_FOR_ALL = true, OTHER_WARPS = false;
    CUtensorMap dy;
    const T* __restrict__ bias;
    float* __restrict__ sums;  // (ceil(M / 16), N)

    template <typename Out, bool PERMUTED, bool TRANSPOSED, typename C>
    struct Consumer {
        static_assert(sizeof(T) == 2 && !PERMUTED && !TRANSPOSED, "");
        const SigmoidGradient& finish;
        TileBias<C> of_tile;
        uint32_t phase = 0;

        __device__ Consumer(const SigmoidGradient& finish) : finish(finish) {}

        __device__ __forceinline__ void start(const Place<Out>& place, int m, int n) {
            if (place.thread == 0) {
                tma_store_wait_group_read<0>();  // the boxes may be overwritten
                mbarrier_arrive_expect_tx(place.barrier, C::BOXES * BOX_BYTES);
                for (int box = 0; box < C::BOXES; ++box) {
                    tma_load(place.shared + box * BOX_BYTES, &finish.dy, n + box * 64, m, place.barrier);
                }
            }
            of_tile.load(finish.bias, n, place.N);
        }

        __device__ __forceinline__ void store(const Place<Out>& place, float (&acc)[C::BLOCK_N / 2], int m, int n) {
            static_assert(C::BOXES * 64 == C::BLOCK_N, "");
            mbarrier_wait_parity(place.barrier, phase);
            phase ^= 1;
#pragma unroll
            for (int box = 0; box < C::BOXES; ++box) {
                float columns[16];
                const uint32_t shared = place.shared + box * BOX_BYTES;
                multiply_dy(shared, acc, box * 8, place.thread, columns);
                write_box<Out, false>(shared, acc, box * 8, place.thread);
                fence_proxy_async();
                named_barrier_sync(1 + place.consumer, WARPGROUP);
                store_box(place.map, place.out, shared, place.boxes + box * BOX_BYTES, place.thread, m, n + box * 64,
                          place.M, place.N);
                if (place.thread == 0) tma_store_commit_group();
                store_columns(columns, m + place.thread / 32 * 16, n + box * 64, place.M, place.N);
            }
        }

        // Makes dz of the sums from column 8 j on. columns: of each thread's two rows, added.
        __device__ __forceinline__ void multiply_dy(uint32_t box, float (&acc)[C::BLOCK_N / 2], int j, int thread,
                                                    float (&columns)[16]) const {
            const int lane = thread % 32, row = thread / 32 * 16 + lane % 16, chunk = lane / 16;
#pragma unroll
            for (int i = 0; i < 8; i += 2) {
                uint32_t x[4];
                ldmatrix_x4(x, box + row * ROW_BYTES + ((i + chunk) ^ row % 8) * 16);
#pragma unroll
                for (int matrix = 0; matrix < 4; ++matrix) {
                    Pack<T, 2> pair;
                    memcpy(&pair, &x[matrix], 4);
#pragma unroll
                    for (int c = 0; c < 2; ++c) {
                        float& sum = acc[(j + i) * 4 + matrix * 2 + c];
                        const float s = sigmoid_for<T>(sum + of_tile.at(j + i + matrix / 2, c));
                        sum = to_float(pair[c]) * (s * (1.0f - s));
                    }
                }
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    const float* const group = &acc[(j + i + c / 2) * 4 + c % 2];
                    columns[i * 2 + c] = group[0] + group[2];
                }
            }
        }

        // Adds columns[2 g + c] over the eight lanes that have the same column, and stores the 64 sums of the warp: in
        // each of three steps a lane keeps half of the groups, and leaves the other half to its partner.
        __device__ __forceinline__ void store_columns(const float (&columns)[16], int m, int n, int M, int N) const {
            const int lane = threadIdx.x % 32;
            float eight[8], four[4], two[2];
            halve(eight, columns, lane, 16);
            halve(four, eight, lane, 8);
            halve(two, four, lane, 4);
            const int column = n + lane / 4 * 8 + lane % 4 * 2;
            if (m >= M || column >= N) return;
            *reinterpret_cast<float2*>(finish.sums + int64_t(m / 16) * N + column) = make_float2(two[0], two[1]);
        }

        template <int COUNT>
        static __device__ __forceinline__ void halve(float (&half)[COUNT], const float (&all)[COUNT * 2], int lane,
                                                     int partner) {
            const bool upper = lane & partner;
#pragma unroll
            for (int i = 0; i < COUNT; ++i) {
                const float left = __shfl_xor_sync(0xffffffffu, upper ? all[i] : all[i + COUNT], partner);
                half[i] = (upper ? all[i + COUNT] : all[i]) + left;
            }
        }
    };
};
