// The loads of products over groups of rows on Hopper: sizes of tiles, maps for TMA, and the producer's warp.
#pragma once

#include <algorithm>

#include "grouped_matmul/tiles.cuh"
#include "hopper/persistent.cuh"
#include "hopper/wgmma.cuh"

struct Maps {
    CUtensorMap x, weight, out;
};

using Large = TileConfig<2, 256, 4, 1, 8, 2>;
using Small = TileConfig<1, 128, 6, 1, 4, 2>;
using Paired = TileConfig<2, 256, 4, 2, 8, 2>;

// The tiles of a cluster, which computes CLUSTER tiles one below the other.
template <typename C>
using Tiles = ExpertTiles<C::BLOCK_M * C::CLUSTER, C::BLOCK_N, C::GROUP_M>;

// The producer's warp: its first lane loads all steps of all tiles of the block, each as soon as its stage is free.
template <typename T, bool W_MN, typename C>
__device__ __forceinline__ void produce(const Maps& maps, Tiles<C> tiles, uint32_t shared, int steps) {
    constexpr int BLOCK_K = ROW_BYTES / sizeof(T), SHARE = C::BLOCK_N / C::CLUSTER;  // columns of weights to load
    const int rank = cta_rank<C>(), empty = shared + C::EMPTY_BARRIERS;
    PipelineState<C::STAGES> state;
    ExpertTile tile;
    for (int index = blockIdx.x / C::CLUSTER; tiles.find(index, tile); index += gridDim.x / C::CLUSTER) {
        if (threadIdx.x == C::PRODUCER) {
#pragma unroll 1
            for (int step = 0; step < steps; ++step) {
                const uint32_t x = shared + state.stage * C::STAGE_BYTES, weight = x + C::A_BYTES;
                const uint32_t full = shared + C::FULL_BARRIERS + state.stage * MBARRIER_BYTES;
                mbarrier_wait_parity(empty + state.stage * MBARRIER_BYTES, state.phase ^ 1);
                mbarrier_arrive_expect_tx(full, C::STAGE_BYTES);
                tma_load(x, &maps.x, step * BLOCK_K, tile.m + rank * C::BLOCK_M, full);
                const auto load = [&](uint32_t to, int inner, int outer) {
                    if constexpr (C::CLUSTER > 1) {
                        tma_load_multicast(to, &maps.weight, inner, outer, tile.expert, full, (1 << C::CLUSTER) - 1);
                    } else {
                        tma_load(to, &maps.weight, inner, outer, tile.expert, full);
                    }
                };
                load_operand<T, W_MN, SHARE>(weight + rank * SHARE * ROW_BYTES, tile.n + rank * SHARE, step * BLOCK_K,
                                             load);
                state.advance();
            }
        }
        __syncwarp();
    }
    if (threadIdx.x == C::PRODUCER) drain_pipeline<C>(empty, state);
}

struct Weights {
    const void* data;
    bool mn_major;            // contiguous along n, otherwise along k
    int64_t stride, expert;  // strides of the other dimension and of the experts, in elements
};

// T is the type of x and weight; W_MN: weight is contiguous along n.
template <typename T, bool W_MN, typename C>
bool encode_maps(Maps& maps, const void* x, int64_t stride_x, const Weights& weight, const ExpertSizes& sizes,
                 void* out, int64_t K, int64_t N) {
    using Out = Output<T>;
    constexpr auto TYPE = TENSOR_MAP_TYPE<T>;
    constexpr int BLOCK_K = ROW_BYTES / sizeof(T);
    const int64_t rows = sizes.rows, experts = sizes.experts;
    return encode_tensor_map<2>(&maps.x, TYPE, sizeof(T), x, {K, rows}, {stride_x}, {C::BLOCK_M}) &&
           encode_tensor_map<3>(&maps.weight, TYPE, sizeof(T), weight.data, {W_MN ? N : K, W_MN ? K : N, experts},
                                {weight.stride, weight.expert}, {W_MN ? BLOCK_K : C::BLOCK_N / C::CLUSTER, 1}) &&
           (N % (16 / sizeof(Out)) != 0 || encode_tensor_map<2>(&maps.out, TENSOR_MAP_TYPE<Out>, sizeof(Out), out,
                                                                {N, rows}, {N}, {64}));
}

// About one block for each multiprocessor; fewer if there are fewer tiles.
template <typename C>
dim3 grid(const ExpertSizes& sizes, int64_t N) {
    // At most: full tiles, and one for each expert that is not full.
    const int64_t rows = sizes.rows, tiles = rows / (C::BLOCK_M * C::CLUSTER) + std::min<int64_t>(rows, sizes.experts);
    const int64_t clusters = std::min<int64_t>(tiles * ceil_div<int64_t>(N, C::BLOCK_N),
                                               std::max(1, multiprocessor_count() / C::CLUSTER));
    return dim3(unsigned(clusters * C::CLUSTER));
}
