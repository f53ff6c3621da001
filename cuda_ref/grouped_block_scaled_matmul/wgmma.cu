// out[t, n] = sum over groups g of scale_x[t, g] * scale_weight[e, n / 128, g] * (sum over k in g of
// x[t, k] * weight[e, n, k]), where row t is among the sizes[e] rows of expert e, on Hopper's tensor cores
//
// requires: sm_90a
//
// The persistent kernel of grouped_matmul/wgmma.cu, whose warps find the tiles of their block from the sizes, with the
// products of block_scaled_matmul/products.cuh: a stage holds 128 k of each row, which is a group, and its sums times
// their scales join the others in float32.
//
// Adds to them: the scales of weights are those of the tile's expert. Rows of the next expert in a tile are multiplied
// with scales of their own, and not stored.
//
// Precision: products are exact; the tensor cores keep 14 bits of a group's sum; all else is float32, rounded once.
//
// Source: DeepGEMM (github.com/deepseek-ai/DeepGEMM), its grouped products of contiguous rows.
#include "block_scaled_matmul/products.cuh"
#include "grouped_matmul/loads.cuh"
#include "grouped_matmul/store.cuh"

template <typename C>
__global__ void __launch_bounds__(C::THREADS)
    grouped_block_scaled_wgmma(const __grid_constant__ Maps maps, const ExpertSizes sizes,
                               const __grid_constant__ BlockScales given, int64_t scale_expert,
                               __nv_bfloat16* __restrict__ out, int K, int N) {
    extern __shared__ char raw[];
    char* const stages = raw + (-shared_address(raw) & (BOX_ALIGNMENT - 1));
    const uint32_t shared = shared_address(stages);
    const int consumer = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP, 0), thread = threadIdx.x % WARPGROUP;
    const int steps = ceil_div(K, GROUP);
    if (threadIdx.x == C::PRODUCER) {
        tma_prefetch_descriptor(&maps.x);
        tma_prefetch_descriptor(&maps.weight);
        init_pipeline<C>(shared);
    }
    // The barriers are initialized, in all blocks that may write to them.
    if constexpr (C::CLUSTER > 1) {
        cluster_sync();
    } else {
        __syncthreads();
    }

    if (consumer == C::CONSUMERS) {
        if constexpr (C::CONSUMERS > 1) setmaxnreg_dec<40>();
        if (thread < 32) produce<Float8, false, C>(maps, Tiles<C>(sizes, N), shared, steps);
    } else {
        if constexpr (C::CONSUMERS > 1) setmaxnreg_inc<232>();
        const int boxes = C::EPILOGUE + consumer * C::BOXES * BOX_BYTES;
        ConsumerPipeline<C> pipeline{shared + C::FULL_BARRIERS,
                                     empty_barriers_to_signal<C>(shared + C::EMPTY_BARRIERS, thread), {}, -1};
        Tiles<C> tiles(sizes, N);
        ExpertTile tile;
        for (int index = blockIdx.x / C::CLUSTER; tiles.find(index, tile); index += gridDim.x / C::CLUSTER) {
            const int m = tile.m + cta_rank<C>() * C::BLOCK_M + consumer * 64;
            BlockScales own = given;
            own.b += tile.expert * scale_expert;
            const TileScales<C::BLOCK_N / GROUP> scales(own, m + thread / 32 * 16 + thread % 32 / 4, tile.n / GROUP,
                                                        sizes.rows, N);
            float acc[C::BLOCK_N / 2] = {};
            multiply_scaled<C>(acc, shared, consumer, 0, steps, scales, pipeline);
            if (m >= tile.end) continue;  // all 64 rows belong to the next expert
            store_rows(&maps.out, out, acc, shared + boxes, stages + boxes, consumer, thread, m, tile.n, tile.end, N);
        }
        if (thread == 0) tma_store_wait_group_read<0>();
    }
}

// x[t, k] is at x + t * stride_x + k, weight[e, n, k] at weight + e * stride_we + n * stride_wn + k; strides of scales in
// elements. `tile`: its number in wgmma.py.
extern "C" int grouped_block_scaled_wgmma(const void* x, const void* weight, const void* sizes, void* out, int64_t T,
                                          int64_t E, int64_t K, int64_t N, int64_t stride_x, int64_t stride_wn,
                                          int64_t stride_we, const float* scale_x, const float* scale_weight,
                                          int64_t stride_sxt, int64_t stride_sxk, int64_t stride_swe,
                                          int64_t stride_swn, int64_t stride_swk, int64_t stride_sizes, int64_t tile,
                                          cudaStream_t stream, LaunchRecord* record) {
    const Weights weights{weight, false, stride_wn, stride_we};
    const ExpertSizes rows{static_cast<const int*>(sizes), stride_sizes, int(E), int(T)};
    const BlockScales scales{scale_x, scale_weight, stride_sxt, stride_sxk, stride_swn, stride_swk};
    const auto run = [&](auto config) -> cudaError_t {
        using C = decltype(config);
        Maps maps = {};
        if (!encode_maps<Float8, false, C>(maps, x, stride_x, weights, rows, out, K, N)) return cudaErrorInvalidValue;
        return launch_clusters(C::CLUSTER, grouped_block_scaled_wgmma<C>, grid<C>(rows, N), C::THREADS,
                               C::SHARED_BYTES, stream, record, maps, rows, scales, stride_swe,
                               static_cast<__nv_bfloat16*>(out), int(K), int(N));
    };
    switch (tile) {
        case 0: return run(Small());
        case 1: return run(Large());
        default: return run(Paired());
    }
}
