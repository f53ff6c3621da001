// out[t, n] = sum over k of x[t, k] * weight[e, k, n], where row t is among the sizes[e] rows of expert e, on Hopper's
// tensor cores
//
// requires: sm_90a
//
// Adds tensor cores, TMA and persistent blocks to grouped_matmul.cu; the roles of the warps are those of
// matmul/warp_specialized.cu. Three things differ from one product.
//   - Tiles. Each warp finds the tiles of its block from the sizes (tiles.cuh). The producer's warp looks for the next
//     one while the consumers multiply.
//   - Weights. Their tensor map has a dimension of experts, so that TMA reads zeros beyond the K of an expert, not the
//     weights of the next one: 0 times NaN would be NaN.
//   - The end of an expert. A tile may overhang into rows of the next expert. They are multiplied, and not stored: 64
//     rows are stored by TMA only if all of them belong to the expert, otherwise row by row from shared memory.
//
// Tiles of 128 x 256 with two consumers, or of 64 x 128 with one, if experts have few rows. In clusters of two blocks
// (clusters.py) a tile has 256 rows of one expert; each block loads its rows of x, and half of the weights for both.
//
// Precision: products are exact, sums float32, rounded once.
//
// Source: see matmul/wgmma.cu; tiles over groups found on the device as in CUTLASS's grouped kernels.
#include "grouped_matmul/loads.cuh"
#include "grouped_matmul/store.cuh"
#include "matmul/wgmma_products.cuh"

template <typename T, bool W_MN, typename C>
__global__ void __launch_bounds__(C::THREADS)
    grouped_matmul_wgmma(const __grid_constant__ Maps maps, const ExpertSizes sizes, T* __restrict__ out, int K,
                         int N) {
    extern __shared__ char raw[];
    char* const stages = raw + (-shared_address(raw) & (BOX_ALIGNMENT - 1));
    const uint32_t shared = shared_address(stages);
    const int consumer = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP, 0), thread = threadIdx.x % WARPGROUP;
    const int steps = ceil_div(K, int(ROW_BYTES / sizeof(T)));
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
        if (thread < 32) produce<T, W_MN, C>(maps, Tiles<C>(sizes, N), shared, steps);
    } else {
        if constexpr (C::CONSUMERS > 1) setmaxnreg_inc<232>();
        const int boxes = C::EPILOGUE + consumer * C::BOXES * BOX_BYTES;
        ConsumerPipeline<C> pipeline{shared + C::FULL_BARRIERS,
                                     empty_barriers_to_signal<C>(shared + C::EMPTY_BARRIERS, thread), {}, -1};
        Tiles<C> tiles(sizes, N);
        ExpertTile tile;
        for (int index = blockIdx.x / C::CLUSTER; tiles.find(index, tile); index += gridDim.x / C::CLUSTER) {
            float acc[C::BLOCK_N / 2] = {};
            multiply<T, false, W_MN, C>(acc, shared, consumer, steps, pipeline);
            const int m = tile.m + cta_rank<C>() * C::BLOCK_M + consumer * 64;
            if (m >= tile.end) continue;  // all 64 rows belong to the next expert
            store_rows(&maps.out, out, acc, shared + boxes, stages + boxes, consumer, thread, m, tile.n, tile.end, N);
        }
        if (thread == 0) tma_store_wait_group_read<0>();
    }
}

template <typename T, bool W_MN, typename C>
cudaError_t launch(const void* x, int64_t stride_x, const Weights& weight, const ExpertSizes& sizes, void* out,
                   int64_t K, int64_t N, cudaStream_t stream, LaunchRecord* record) {
    Maps maps = {};
    if (!encode_maps<T, W_MN, C>(maps, x, stride_x, weight, sizes, out, K, N)) return cudaErrorInvalidValue;
    return launch_clusters(C::CLUSTER, grouped_matmul_wgmma<T, W_MN, C>, grid<C>(sizes, N), C::THREADS,
                           C::SHARED_BYTES, stream, record, maps, sizes, static_cast<T*>(out), K, N);
}

template <typename T, bool W_MN>
cudaError_t launch_tile(const void* x, int64_t stride_x, const Weights& weight, const ExpertSizes& sizes, void* out,
                        int64_t K, int64_t N, int64_t tile, cudaStream_t stream, LaunchRecord* record) {
    switch (tile) {
        case 0: return launch<T, W_MN, Small>(x, stride_x, weight, sizes, out, K, N, stream, record);
        case 1: return launch<T, W_MN, Large>(x, stride_x, weight, sizes, out, K, N, stream, record);
        default: return launch<T, W_MN, Paired>(x, stride_x, weight, sizes, out, K, N, stream, record);
    }
}

template <typename T>
cudaError_t launch_layout(const void* x, int64_t stride_x, const Weights& weight, const ExpertSizes& sizes, void* out,
                          int64_t K, int64_t N, int64_t tile, cudaStream_t stream, LaunchRecord* record) {
    if (weight.mn_major) return launch_tile<T, true>(x, stride_x, weight, sizes, out, K, N, tile, stream, record);
    return launch_tile<T, false>(x, stride_x, weight, sizes, out, K, N, tile, stream, record);
}

// x[t, k] is at x + t * stride_x + k. w_mn: weight[e, k, n] is at weight + e * stride_we + k * stride_w + n, otherwise at
// weight + e * stride_we + n * stride_w + k. `tile`: its number in wgmma.py.
extern "C" int grouped_matmul_wgmma(const void* x, const void* weight, const void* sizes, void* out, int64_t T,
                                    int64_t E, int64_t K, int64_t N, int64_t stride_x, int64_t w_mn, int64_t stride_w,
                                    int64_t stride_we, int64_t stride_sizes, int64_t tile, int64_t dtype,
                                    cudaStream_t stream, LaunchRecord* record) {
    const Weights weights{weight, w_mn != 0, stride_w, stride_we};
    const ExpertSizes rows{static_cast<const int*>(sizes), stride_sizes, int(E), int(T)};
    switch (dtype) {
        case FLOAT16: return launch_layout<__half>(x, stride_x, weights, rows, out, K, N, tile, stream, record);
        case BFLOAT16: return launch_layout<__nv_bfloat16>(x, stride_x, weights, rows, out, K, N, tile, stream, record);
        default: return cudaErrorInvalidValue;
    }
}
