// out[m, n] = sum over groups g of scale_a[m, g] * scale_b[n / 128, g] * (sum over k in g of a[m, k] * b[n, k])
//
// requires: sm_90a
//
// The persistent kernel of matmul/wgmma.cuh: a producer thread fills a ring of stages by TMA, and consumer warpgroups
// multiply. A stage holds 128 k of each row, which is a group.
//
// Adds to it: a consumer adds the sums of groups times their scales to its own (products.cuh).
//
// Precision: products are exact; the tensor cores keep 14 bits of a group's sum; all else is float32, rounded once.
//
// Source: DeepSeek-V3 Technical Report (2024), section 3.3.2; DeepGEMM (github.com/deepseek-ai/DeepGEMM), its promotion.
#include "block_scaled_matmul/products.cuh"
#include "matmul/wgmma.cuh"

template <typename C>
__global__ void __launch_bounds__(C::THREADS)
    block_scaled_wgmma(const __grid_constant__ TensorMaps maps, const GroupedTileScheduler<C::GROUP_M> tiles,
                       const Parts parts, __nv_bfloat16* __restrict__ out, int M, int N,
                       const __grid_constant__ BlockScales given) {
    using Out = __nv_bfloat16;
    extern __shared__ char raw[];
    char* const stages = raw + (-shared_address(raw) & (BOX_ALIGNMENT - 1));
    const uint32_t shared = shared_address(stages);
    const int consumer = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP, 0), thread = threadIdx.x % WARPGROUP;

    const Producer<Float8, false, false, C> producer{maps, tiles, parts, shared};
    if (threadIdx.x == C::PRODUCER) {
        tma_prefetch_descriptor(&maps.a);
        tma_prefetch_descriptor(&maps.b);
        init_pipeline<C>(shared);
        if constexpr (C::CLUSTER == 1) producer.load_first();
    }
    // No thread may arrive at a barrier of another block before that block has initialized its barriers.
    if constexpr (C::CLUSTER > 1) {
        cluster_arrive_relaxed();
    } else {
        __syncthreads();
    }

    if (consumer == C::CONSUMERS) {
        if constexpr (C::CONSUMERS > 1) setmaxnreg_dec<40>();
        if (threadIdx.x == C::PRODUCER) {
            if constexpr (C::CLUSTER > 1) {
                producer.load_first();
                cluster_wait();
            }
            producer.load_others();
        } else {
            if constexpr (C::CLUSTER > 1) cluster_wait();
        }
    } else {
        if constexpr (C::CONSUMERS > 1) setmaxnreg_inc<232>();
        if constexpr (C::CLUSTER > 1) cluster_wait();
        const int boxes = C::EPILOGUE + consumer * C::BOXES * BOX_BYTES;
        ConsumerPipeline<C> pipeline{shared + C::FULL_BARRIERS,
                                     empty_barriers_to_signal<C>(shared + C::EMPTY_BARRIERS, thread), {}, -1};
        for (int index = blockIdx.x / C::CLUSTER; index < parts.shares(); index += gridDim.x / C::CLUSTER) {
            const Share share = parts.share(index);
            const TileCoordinate tile = tiles[share.tile];
            const int rank = cta_rank<C>();
            const int m = (tile.m * C::CLUSTER + rank) * C::BLOCK_M + consumer * 64, n = tile.n * C::BLOCK_N;
            const TileScales<C::BLOCK_N / GROUP> scales(given, m + thread / 32 * 16 + thread % 32 / 4, n / GROUP, M,
                                                        N);
            float acc[C::BLOCK_N / 2] = {};
            multiply_scaled<C>(acc, shared, consumer, share.begin, share.end - share.begin, scales, pipeline);
            if (parts.count > 1) {
                constexpr int64_t SIZE = C::BLOCK_M * C::BLOCK_N;
                const int64_t at = int64_t(share.part) * parts.tiles + share.tile;
                store_part<false, false, C>(parts.sums + (at * C::CLUSTER + rank) * SIZE, acc, thread, consumer);
                continue;
            }
            store_through_shared<Out, false, false>(&maps.out, out, acc, shared + boxes, stages + boxes, consumer,
                                                    thread, m, n, M, N);
        }
        if (thread == 0) tma_store_wait_group_read<0>();
    }
}

template <typename C>
cudaError_t launch_scaled(const MatrixOperand& a, const MatrixOperand& b, __nv_bfloat16* out, int64_t K,
                          const BlockScales& scales, int64_t count, float* sums, cudaStream_t stream,
                          LaunchRecord* record) {
    const int64_t M = a.rows, N = b.rows;
    TensorMaps maps = {};
    if (!encode_operand_map<Float8>(&maps.a, a, K, C::BLOCK_M) ||
        !encode_operand_map<Float8>(&maps.b, b, K, C::BLOCK_N / C::CLUSTER) ||
        (N % 8 == 0 && !encode_tensor_map(&maps.out, TENSOR_MAP_TYPE<__nv_bfloat16>, 2, out, N, M, N, 64))) {
        return cudaErrorInvalidValue;
    }
    const auto tiles = cluster_tiles<C>(M, N);
    const Parts parts(tiles.count(), int(count), int(ceil_div<int64_t>(K, GROUP)), sums);
    const cudaError_t error = launch_clusters(
        C::CLUSTER, block_scaled_wgmma<C>, persistent_grid<C>(parts.shares(), multiprocessor_count()), C::THREADS,
        C::SHARED_BYTES, stream, record, maps, tiles, parts, out, int(M), int(N), scales);
    if (error != cudaSuccess || parts.count == 1) return error;
    const dim3 grid(unsigned(parts.tiles * AddConfig<C>::BLOCKS));
    record->set(grid, AddConfig<C>::THREADS);
    add_parts<__nv_bfloat16, C, false>
        <<<grid, AddConfig<C>::THREADS, 0, stream>>>(tiles, parts, out, int(M), int(N), StoreSums());
    return cudaGetLastError();
}

// Rows of a and b are contiguous, `a_stride` and `b_stride` apart; strides of scales in elements. `tile`: its number in
// matmul/_tiles.py, 0, 1 or 2. With several `parts` of k the sums go to `sums`: see Parts.
extern "C" int block_scaled_wgmma(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K,
                                  int64_t a_stride, int64_t b_stride, const float* scale_a, const float* scale_b,
                                  int64_t scale_a_row, int64_t scale_a_group, int64_t scale_b_block,
                                  int64_t scale_b_group, int64_t tile, int64_t parts, float* sums, cudaStream_t stream,
                                  LaunchRecord* record) {
    const MatrixOperand left{a, false, M, a_stride}, right{b, false, N, b_stride};
    const BlockScales scales{scale_a, scale_b, scale_a_row, scale_a_group, scale_b_block, scale_b_group};
    const auto run = [&](auto config) {
        return launch_scaled<decltype(config)>(left, right, static_cast<__nv_bfloat16*>(out), K, scales, parts, sums,
                                               stream, record);
    };
    using Shapes = Tiles<false>;
    if (tile == 0) return run(Shapes::Small());
    if (tile == 1) return run(Shapes::Large());
    return tile == 2 ? run(Shapes::Square()) : cudaErrorNotSupported;
}
