// The persistent matmul kernel on Hopper's tensor cores, and its launch; wgmma.cu explains it.
//
// A type like StoreSums finishes the sums of a tile. The types of other operations add a bias and apply a function
// before the sums are rounded (linear_sigmoid/linear_sigmoid.cuh).
#pragma once

#include "hopper/epilogue.cuh"
#include "hopper/persistent.cuh"
#include "matmul/wgmma_products.cuh"

// The tiles of _tiles.py. If BOXES_FOR_ALL, the boxes of a consumer hold all sums of a 16-bit tile; otherwise two boxes
// alternate.
template <bool BOXES_FOR_ALL>
struct Tiles {
    using Large = TileConfig<2, 256, BOXES_FOR_ALL ? 3 : 4, 2, 8, BOXES_FOR_ALL ? 4 : 2>;
    using Small = TileConfig<1, 128, 6, 1, 4, 2>;
    using Narrow = TileConfig<2, 192, 4, 2, 8, BOXES_FOR_ALL ? 3 : 2>;
    using Square = TileConfig<2, 128, 5, 1, 4, 2>;
    using Slim = TileConfig<1, 64, 12, 1, 16, 2>;  // Slim and Tall are not used in 16 bits
    using Tall = TileConfig<3, 128, 4, 1, 8, 2>;
};

// The boxes of a consumer in shared memory, and out with its sizes M and N.
template <typename Out>
struct Place {
    const CUtensorMap* map;
    Out* __restrict__ out;
    uint32_t shared;  // address of the first box, `boxes`
    const char* boxes;
    int consumer, thread, M, N;
};

// Stores the sums unchanged.
struct StoreSums {
    static constexpr bool BOXES_FOR_ALL = false, OTHER_WARPS = false;

    // Finishes a sum of column n that was computed in parts.
    __device__ __forceinline__ float operator()(float sum, int) const { return sum; }

    template <typename Out, bool PERMUTED, bool TRANSPOSED, typename C>
    struct Consumer {
        __device__ Consumer(const StoreSums&) {}
        // Called before the sums of the 64 rows from (m, n) on are computed.
        __device__ __forceinline__ void start(const Place<Out>&, int, int) {}
        // Called after the sums have been computed.
        __device__ __forceinline__ void store(const Place<Out>& place, float (&acc)[C::BLOCK_N / 2], int m, int n) {
            store_through_shared<Out, PERMUTED, TRANSPOSED>(place.map, place.out, acc, place.shared, place.boxes,
                                                            place.consumer, place.thread, m, n, place.M, place.N);
        }
    };
};

struct TensorMaps {
    CUtensorMap a, b, out;
};

// True if the blocks of a cluster share a tile of b by k, not by columns: a share of an MN-major b must be whole boxes.
template <typename T, bool B_MN, typename C>
constexpr bool shared_by_k = B_MN && C::BLOCK_N / C::CLUSTER * sizeof(T) % ROW_BYTES != 0;

// The producer thread: loads a stage as soon as all consumers that read it, in all blocks of the cluster, have done so.
template <typename T, bool A_MN, bool B_MN, typename C>
struct Producer {
    static constexpr int BLOCK_K = ROW_BYTES / sizeof(T), SHARE = C::BLOCK_N / C::CLUSTER;  // columns of b to load

    const TensorMaps& maps;
    const GroupedTileScheduler<C::GROUP_M>& tiles;
    const Parts& parts;
    uint32_t shared;

    // Loads the first stages. A block without a cluster does so before it runs code that is not yet in the caches.
    // Each block loads all of them itself, since the barriers of the other block may not be initialized.
    __device__ __forceinline__ void load_first() const {
        const Share share = first();
        const TileCoordinate tile = tiles[share.tile];
        for (int stage = 0; stage < alone(share); ++stage) {
            mbarrier_arrive_expect_tx(full(stage), C::STAGE_BYTES);
            load_a(stage, tile, share.begin + stage);
            for (int piece = 0; piece < C::CLUSTER; ++piece) load_b(stage, tile, share.begin + stage, piece, false);
        }
    }

    // Loads all other stages. It recomputes the values of load_first in uniform registers.
    __device__ __forceinline__ void load_others() const {
        const uint32_t empty = shared + C::EMPTY_BARRIERS;
        const int rank = cta_rank<C>();
        Share share = first();
        int stage = alone(share) % C::STAGES, k = share.begin + alone(share);
        uint32_t phase = alone(share) / C::STAGES;
        TileCoordinate tile = tiles[share.tile];
        const int clusters = gridDim.x / C::CLUSTER;
        for (int index = blockIdx.x / C::CLUSTER; index < parts.shares(); index += clusters) {
            if (index >= clusters) {
                share = parts.share(index);
                tile = tiles[share.tile];
                k = share.begin;
            }
#pragma unroll 1
            for (; k < share.end; ++k) {
                mbarrier_wait_parity(empty + stage * MBARRIER_BYTES, phase ^ 1);
                mbarrier_arrive_expect_tx(full(stage), C::STAGE_BYTES);
                load_a(stage, tile, k);
                load_b(stage, tile, k, rank, C::CLUSTER > 1);
                if (++stage == C::STAGES) stage = 0, phase ^= 1;
            }
        }
        drain_pipeline<C>(empty, {stage, phase});
    }

private:
    __device__ __forceinline__ Share first() const { return parts.share(blockIdx.x / C::CLUSTER); }
    __device__ __forceinline__ static int alone(const Share& share) { return min(share.end - share.begin, C::STAGES); }
    __device__ __forceinline__ uint32_t full(int stage) const {
        return shared + C::FULL_BARRIERS + stage * MBARRIER_BYTES;
    }

    __device__ __forceinline__ void load_a(int stage, TileCoordinate tile, int k) const {
        const int row = (tile.m * C::CLUSTER + cta_rank<C>()) * C::BLOCK_M;
        load_operand<T, A_MN, C::BLOCK_M>(shared + stage * C::STAGE_BYTES, row, k * BLOCK_K,
                                          [&](uint32_t to, int x, int y) { tma_load(to, &maps.a, x, y, full(stage)); });
    }

    __device__ __forceinline__ void load_b(int stage, TileCoordinate tile, int k, int piece, bool multicast) const {
        const uint32_t b = shared + stage * C::STAGE_BYTES + C::A_BYTES;
        const int column = tile.n * C::BLOCK_N;
        const auto load = [&](uint32_t box, int x, int y) {
            if (multicast) {
                tma_load_multicast(box, &maps.b, x, y, full(stage), (1 << C::CLUSTER) - 1);
            } else {
                tma_load(box, &maps.b, x, y, full(stage));
            }
        };
        if constexpr (shared_by_k<T, B_MN, C>) {
            constexpr int SHARE_K = BLOCK_K / C::CLUSTER;
            load_operand<T, B_MN, C::BLOCK_N>(b + piece * SHARE_K * ROW_BYTES, column, k * BLOCK_K + piece * SHARE_K,
                                              load);
        } else {
            load_operand<T, B_MN, SHARE>(b + piece * SHARE * ROW_BYTES, column + piece * SHARE, k * BLOCK_K, load);
        }
    }
};

// True if k may be divided, and all tiles between the smallest and the largest are compiled.
template <typename T, typename Finish>
constexpr bool DIVISIBLE = sizeof(T) == 2 || std::is_same_v<Finish, StoreSums>;

// Writes a consumer's sums to its rows of `tile`, which is stored by rows, or by columns if TRANSPOSED, like out.
template <bool PERMUTED, bool TRANSPOSED, typename C>
__device__ __forceinline__ void store_part(float* __restrict__ tile, const float (&acc)[C::BLOCK_N / 2], int thread,
                                           int consumer) {
    if constexpr (!PERMUTED && !TRANSPOSED) {
        store_from_registers(tile, acc, thread, consumer * 64, 0, C::BLOCK_M, C::BLOCK_N);
    } else {
#pragma unroll
        for (int i = 0; i < C::BLOCK_N / 2; ++i) {
            const int r = thread / 32 * 16 + thread % 32 / 4 + i % 4 / 2 * 8,
                      column = i / 4 * 8 + thread % 4 * 2 + i % 2;
            const int row = consumer * 64 + (PERMUTED ? permuted_row(r) : r);
            tile[TRANSPOSED ? column * C::BLOCK_M + row : row * C::BLOCK_N + column] = acc[i];
        }
    }
}

// setmaxnreg divides the registers. With two consumers 3 x 168 become 40 for the producer and 2 x 232 for the
// consumers. With three 4 x 128 become 32 and 3 x 160, unless the producer's other three warps finish the sums.
template <typename T, bool A_MN, bool B_MN, bool TRANSPOSED, bool PROMOTED, typename C, typename Finish>
__global__ void __launch_bounds__(C::THREADS)
    matmul_wgmma(const __grid_constant__ TensorMaps maps, const GroupedTileScheduler<C::GROUP_M> tiles,
                 const Parts parts, Output<T>* __restrict__ out, int M, int N,
                 const float* __restrict__ a_scale, const float* __restrict__ b_scale,
                 const __grid_constant__ Finish finish) {
    constexpr bool FROM_REGISTERS = A_MN && sizeof(T) == 4;
    extern __shared__ char raw[];
    char* const stages = raw + (-shared_address(raw) & (BOX_ALIGNMENT - 1));
    const uint32_t shared = shared_address(stages);
    const int consumer = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP, 0), thread = threadIdx.x % WARPGROUP;
    const int out_rows = TRANSPOSED ? N : M, out_columns = TRANSPOSED ? M : N;

    const Producer<T, A_MN, B_MN, C> producer{maps, tiles, parts, shared};
    if (threadIdx.x == C::PRODUCER) {
        tma_prefetch_descriptor(&maps.a);
        tma_prefetch_descriptor(&maps.b);
        init_pipeline<C>(shared);
        if constexpr (C::CLUSTER == 1) producer.load_first();
    }
    if (threadIdx.x == 0 && out_columns % (16 / sizeof(*out)) == 0) tma_prefetch_descriptor(&maps.out);
    // No thread may arrive at a barrier of another block, or write there, before that block has initialized its
    // barriers.
    if constexpr (C::CLUSTER > 1) {
        cluster_arrive_relaxed();
    } else {
        __syncthreads();
    }

    if (consumer == C::CONSUMERS) {
        if constexpr (C::CONSUMERS > 1 && !Finish::OTHER_WARPS) setmaxnreg_dec<(C::CONSUMERS == 2 ? 40 : 32)>();
        if (threadIdx.x == C::PRODUCER) {
            if constexpr (C::CLUSTER > 1) {
                producer.load_first();
                cluster_wait();
            }
            producer.load_others();
        } else {
            if constexpr (C::CLUSTER > 1) cluster_wait();
            if constexpr (Finish::OTHER_WARPS) {
                const int boxes = C::EPILOGUE;
                if (thread >= 32) finish.template run<C>(&maps.out, tiles, shared + boxes, stages + boxes, M, N);
            }
        }
    } else {
        if constexpr (C::CONSUMERS > 1 && !Finish::OTHER_WARPS) setmaxnreg_inc<(C::CONSUMERS == 2 ? 232 : 160)>();
        if constexpr (C::CLUSTER > 1) cluster_wait();
        float scale = 1;
        if constexpr (std::is_same_v<T, Float8>) scale = *a_scale * *b_scale;
        const int rank = cta_rank<C>(), boxes = C::EPILOGUE + consumer * C::BOXES * BOX_BYTES;
        const Place<Output<T>> place = {&maps.out, out,    shared + boxes, stages + boxes,
                                        consumer,  thread, out_rows,       out_columns};
        typename Finish::template Consumer<Output<T>, FROM_REGISTERS, TRANSPOSED, C> finisher(finish);
        ConsumerPipeline<C> pipeline{shared + C::FULL_BARRIERS,
                                     empty_barriers_to_signal<C>(shared + C::EMPTY_BARRIERS, thread), {}, -1};
        for (int index = blockIdx.x / C::CLUSTER; index < parts.shares(); index += gridDim.x / C::CLUSTER) {
            const Share share = parts.share(index);
            const TileCoordinate tile = tiles[share.tile];
            int count = share.end - share.begin;
            int m = (tile.m * C::CLUSTER + rank) * C::BLOCK_M + consumer * 64, n = tile.n * C::BLOCK_N;
            asm volatile("" : "+r"(m), "+r"(n), "+r"(count));  // computed here, while the first stage is loaded
            finisher.start(place, m, n);
            float acc[C::BLOCK_N / 2] = {};
            if constexpr (FROM_REGISTERS) {
                multiply_from_registers<C>(acc, shared, stages, consumer, thread, count, pipeline);
            } else if constexpr (PROMOTED) {
                multiply_promoted<C>(acc, shared, consumer, count, pipeline);
            } else {
                multiply<T, A_MN, B_MN, C>(acc, shared, consumer, count, pipeline);
            }
            if constexpr (std::is_same_v<T, Float8>) {
#pragma unroll
                for (int i = 0; i < C::BLOCK_N / 2; ++i) acc[i] *= scale;
            }
            if constexpr (DIVISIBLE<T, Finish>) {
                if (parts.count > 1) {
                    constexpr int64_t SIZE = C::BLOCK_M * C::BLOCK_N;
                    const int64_t at = int64_t(share.part) * parts.tiles + share.tile;
                    store_part<FROM_REGISTERS, TRANSPOSED, C>(parts.sums + (at * C::CLUSTER + rank) * SIZE, acc, thread,
                                                              consumer);
                    continue;
                }
            }
            finisher.store(place, acc, m, n);
        }
        if (thread == 0) tma_store_wait_group_read<0>();
    }
}

struct Scales {  // scales of float8, otherwise null
    const float *a, *b;
};

struct Plan {
    int64_t tile, parts;
    float* sums;
};

template <typename T, bool A_MN, bool B_MN, bool TRANSPOSED, bool PROMOTED, typename C, typename Finish>
cudaError_t launch(const MatrixOperand& a, const MatrixOperand& b, void* out, int64_t K, Scales scales, Plan plan,
                   const Finish& finish, cudaStream_t stream, LaunchRecord* record) {
    using Out = Output<T>;
    constexpr int BLOCK_K = ROW_BYTES / sizeof(T), BOX_K = BLOCK_K / (shared_by_k<T, B_MN, C> ? C::CLUSTER : 1);
    const auto out_type = sizeof(T) == 4 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : TENSOR_MAP_TYPE<Out>;
    const int64_t M = a.rows, N = b.rows, out_rows = TRANSPOSED ? N : M, out_columns = TRANSPOSED ? M : N;
    const bool out_by_tma = out_columns % (16 / sizeof(Out)) == 0;
    TensorMaps maps = {};
    if (!encode_operand_map<T>(&maps.a, a, K, C::BLOCK_M) ||
        !encode_operand_map<T>(&maps.b, b, K, C::BLOCK_N / C::CLUSTER, BOX_K) ||
        (out_by_tma &&
         !encode_tensor_map(&maps.out, out_type, sizeof(Out), out, out_columns, out_rows, out_columns, 64))) {
        return cudaErrorInvalidValue;
    }
    const auto tiles = cluster_tiles<C>(M, N);
    const Parts parts(tiles.count(), int(plan.parts), int(ceil_div<int64_t>(K, BLOCK_K)), plan.sums);
    const cudaError_t error = launch_clusters(
        C::CLUSTER, matmul_wgmma<T, A_MN, B_MN, TRANSPOSED, PROMOTED, C, Finish>,
        persistent_grid<C>(parts.shares(), multiprocessor_count()), C::THREADS, C::SHARED_BYTES, stream, record, maps,
        tiles, parts, static_cast<Out*>(out), M, N, scales.a, scales.b, finish);
    if (error != cudaSuccess || parts.count == 1) return error;
    if constexpr (DIVISIBLE<T, Finish> && !Finish::OTHER_WARPS) {
        const dim3 grid(unsigned(parts.tiles * AddConfig<C>::BLOCKS));
        record->set(grid, AddConfig<C>::THREADS);
        add_parts<Out, C, TRANSPOSED><<<grid, AddConfig<C>::THREADS, 0, stream>>>(
            tiles, parts, static_cast<Out*>(out), int(out_rows), int(out_columns), finish);
    }
    return cudaGetLastError();
}

template <typename T, bool A_MN, bool B_MN, bool TRANSPOSED = false, bool PROMOTED = false, typename Finish = StoreSums>
cudaError_t launch(const MatrixOperand& a, const MatrixOperand& b, void* out, int64_t K, Scales scales, Plan plan,
                   const Finish& finish, cudaStream_t stream, LaunchRecord* record) {
    using Shapes = Tiles<Finish::BOXES_FOR_ALL>;
    const auto run = [&](auto config) {
        return launch<T, A_MN, B_MN, TRANSPOSED, PROMOTED, decltype(config)>(a, b, out, K, scales, plan, finish, stream,
                                                                             record);
    };
    if constexpr (DIVISIBLE<T, Finish>) {
        if (plan.tile == 2) return run(typename Shapes::Square());
        if constexpr (!PROMOTED) {
            if (plan.tile == 3) return run(typename Shapes::Narrow());
        }
        if constexpr (sizeof(T) != 2) {
            if (plan.tile == 4) return run(typename Shapes::Tall());
            if constexpr (!PROMOTED) {
                if (plan.tile == 5) return run(typename Shapes::Slim());
            }
        }
    } else if (plan.parts != 1) {
        return cudaErrorNotSupported;
    }
    if (plan.tile > 1) return cudaErrorNotSupported;
    return plan.tile == 0 ? run(typename Shapes::Small()) : run(typename Shapes::Large());
}
