// dw[e, k, n] = sum over the sizes[e] rows t of expert e of x[t, k] * dy[t, n], on Hopper's tensor cores; zeros for an
// expert without rows
//
// requires: sm_90a
//
// Adds tensor cores, TMA and persistent blocks to grouped_matmul_grad.cu; the roles of the warps are those of
// matmul/warp_specialized.cu. The sums go over rows, while the elements of a row are contiguous in x and dy, so both
// operands are MN-major. Each expert has the same tiles, but another number of steps, which warps find from the sizes.
//
// The last step of an expert may overhang into rows of the next one. They must not be added, and multiplying one of the
// factors by zero is not enough, since the other may be NaN. Rows of a stage are lines of 128 bytes in shared memory,
// so the consumers set those beyond the end to zero in both operands before they multiply. This happens once in a tile.
//
// Precision: products are exact, sums float32, rounded once.
//
// Source: see matmul/wgmma.cu.
#include <algorithm>

#include "grouped_matmul/store.cuh"
#include "grouped_matmul/tiles.cuh"
#include "matmul/wgmma_products.cuh"

struct Maps {
    CUtensorMap x, dy, dw;
};

constexpr int STEP = 64;  // rows of a stage

using Config = TileConfig<2, 256, 4, 1, 8, 2>;

struct GradientTiles {
    GroupedTileScheduler<Config::GROUP_M> tiles;  // of an expert
    FastDivisor of_expert;
    int experts;

    GradientTiles(int64_t K, int64_t N, int experts)
        : tiles(ceil_div<int64_t>(K, Config::BLOCK_M), ceil_div<int64_t>(N, Config::BLOCK_N)),
          of_expert(uint32_t(tiles.count())),
          experts(experts) {}

    __host__ __device__ __forceinline__ int count() const { return tiles.count() * experts; }
};

// A tile of an expert, from row m (of K) and column n on, and the rows over which it sums.
struct GradientTile {
    int expert, m, n, begin, end;
};

__device__ __forceinline__ GradientTile find_tile(const GradientTiles& tiles, ExpertRows& rows, int index) {
    GradientTile found;
    found.expert = tiles.of_expert.quotient(index);
    const TileCoordinate tile = tiles.tiles[index - found.expert * tiles.tiles.count()];
    found.m = tile.m * Config::BLOCK_M;
    found.n = tile.n * Config::BLOCK_N;
    rows.find(found.expert, found.begin, found.end);
    return found;
}

// The producer's warp: its first lane loads all steps of all tiles of the block, each as soon as its stage is free.
template <typename T>
__device__ __forceinline__ void produce(const Maps& maps, const GradientTiles& tiles, ExpertRows rows,
                                        uint32_t shared) {
    using C = Config;
    PipelineState<C::STAGES> state;
    for (int index = blockIdx.x; index < tiles.count(); index += gridDim.x) {
        const GradientTile tile = find_tile(tiles, rows, index);
        if (threadIdx.x == C::PRODUCER) {
#pragma unroll 1
            for (int t = tile.begin; t < tile.end; t += STEP) {
                const uint32_t x = shared + state.stage * C::STAGE_BYTES, dy = x + C::A_BYTES;
                const uint32_t full = shared + C::FULL_BARRIERS + state.stage * MBARRIER_BYTES;
                mbarrier_wait_parity(shared + C::EMPTY_BARRIERS + state.stage * MBARRIER_BYTES, state.phase ^ 1);
                mbarrier_arrive_expect_tx(full, C::STAGE_BYTES);
                load_operand<T, true, C::BLOCK_M>(
                    x, tile.m, t, [&](uint32_t to, int column, int row) { tma_load(to, &maps.x, column, row, full); });
                load_operand<T, true, C::BLOCK_N>(
                    dy, tile.n, t, [&](uint32_t to, int column, int row) { tma_load(to, &maps.dy, column, row, full); });
                state.advance();
            }
        }
        __syncwarp();
    }
}

// Sets the rows of a stage from `rows` on to zero, in all boxes of 64 rows. Each consumer does its half.
__device__ __forceinline__ void clear_rows(uint32_t stage, int rows, int consumer, int thread) {
    constexpr int BOXES = Config::STAGE_BYTES / BOX_BYTES, LINE = ROW_BYTES / 16;
    static_assert(BOXES % Config::CONSUMERS == 0, "");
    const int count = (STEP - rows) * LINE;
    for (int box = consumer; box < BOXES; box += Config::CONSUMERS) {
        for (int i = thread; i < count; i += WARPGROUP) {
            store_shared(stage + box * BOX_BYTES + rows * ROW_BYTES + i * 16, make_float4(0.0f, 0.0f, 0.0f, 0.0f));
        }
    }
    fence_proxy_async();
    named_barrier_sync(1 + Config::CONSUMERS, Config::CONSUMERS * WARPGROUP);
}

template <typename T>
__global__ void __launch_bounds__(Config::THREADS)
    grouped_matmul_grad_wgmma(const __grid_constant__ Maps maps, const GradientTiles tiles, const ExpertSizes sizes,
                              T* __restrict__ dw, int K, int N) {
    using C = Config;
    extern __shared__ char raw[];
    char* const stages = raw + (-shared_address(raw) & (BOX_ALIGNMENT - 1));
    const uint32_t shared = shared_address(stages);
    const int consumer = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP, 0), thread = threadIdx.x % WARPGROUP;
    if (threadIdx.x == C::PRODUCER) {
        tma_prefetch_descriptor(&maps.x);
        tma_prefetch_descriptor(&maps.dy);
        init_pipeline<C>(shared);
    }
    __syncthreads();  // the barriers are initialized

    if (consumer == C::CONSUMERS) {
        setmaxnreg_dec<40>();
        if (thread < 32) produce<T>(maps, tiles, ExpertRows(sizes), shared);
    } else {
        setmaxnreg_inc<232>();
        const int boxes = C::EPILOGUE + consumer * C::BOXES * BOX_BYTES;
        ConsumerPipeline<C> pipeline{shared + C::FULL_BARRIERS,
                                     empty_barriers_to_signal<C>(shared + C::EMPTY_BARRIERS, thread), {}, -1};
        ExpertRows rows(sizes);
        for (int index = blockIdx.x; index < tiles.count(); index += gridDim.x) {
            const GradientTile tile = find_tile(tiles, rows, index);
            const int count = tile.end - tile.begin;
            float acc[C::BLOCK_N / 2] = {};
            multiply<T, true, true, C>(acc, shared, consumer, count / STEP, pipeline);
            if (count % STEP != 0) {
                pipeline.wait();
                clear_rows(shared + pipeline.state.stage * C::STAGE_BYTES, count % STEP, consumer, thread);
                multiply<T, true, true, C>(acc, shared, consumer, 1, pipeline);
            }
            const int end = (tile.expert + 1) * K, m = tile.expert * K + tile.m + consumer * 64;
            if (m >= end) continue;
            store_rows(&maps.dw, dw, acc, shared + boxes, stages + boxes, consumer, thread, m, tile.n, end, N);
        }
        if (thread == 0) tma_store_wait_group_read<0>();
    }
}

template <typename T>
cudaError_t launch(const void* x, int64_t stride_x, const void* dy, int64_t stride_dy, const ExpertSizes& sizes,
                   void* dw, int64_t K, int64_t N, cudaStream_t stream, LaunchRecord* record) {
    using C = Config;
    constexpr auto TYPE = TENSOR_MAP_TYPE<T>;
    const int64_t rows = sizes.rows, all_k = sizes.experts * K;
    Maps maps = {};
    if (!encode_tensor_map<2>(&maps.x, TYPE, sizeof(T), x, {K, rows}, {stride_x}, {STEP}) ||
        !encode_tensor_map<2>(&maps.dy, TYPE, sizeof(T), dy, {N, rows}, {stride_dy}, {STEP}) ||
        (N % (16 / sizeof(T)) == 0 &&
         !encode_tensor_map<2>(&maps.dw, TYPE, sizeof(T), dw, {N, all_k}, {N}, {64}))) {
        return cudaErrorInvalidValue;
    }
    const GradientTiles tiles(K, N, sizes.experts);
    const dim3 grid(unsigned(std::min(tiles.count(), multiprocessor_count())));
    return launch_clusters(1, grouped_matmul_grad_wgmma<T>, grid, C::THREADS, C::SHARED_BYTES, stream, record, maps,
                           tiles, sizes, static_cast<T*>(dw), K, N);
}

// x[t, k] is at x + t * stride_x + k, dy[t, n] at dy + t * stride_dy + n.
extern "C" int grouped_matmul_grad_wgmma(const void* x, const void* dy, const void* sizes, void* dw, int64_t T,
                                         int64_t E, int64_t K, int64_t N, int64_t stride_x, int64_t stride_dy,
                                         int64_t stride_sizes, int64_t dtype, cudaStream_t stream,
                                         LaunchRecord* record) {
    const ExpertSizes rows{static_cast<const int*>(sizes), stride_sizes, int(E), int(T)};
    switch (dtype) {
        case FLOAT16: return launch<__half>(x, stride_x, dy, stride_dy, rows, dw, K, N, stream, record);
        case BFLOAT16: return launch<__nv_bfloat16>(x, stride_x, dy, stride_dy, rows, dw, K, N, stream, record);
        default: return cudaErrorInvalidValue;
    }
}
