// out[n, p, q, k] = sum over r, s, c of x[n, p stride + r - padding, q stride + s - padding, c] * weight[k, r, s, c],
// on Hopper's tensor cores
//
// requires: sm_90a
//
// This is an implicit matrix product: rows are output pixels (n, p, q), columns are k, and the sum goes over taps (r,
// s) and channels c, 128 bytes of channels per step. matmul/wgmma.cu explains the kernel: persistent blocks in clusters
// of two, a producer thread that loads by TMA, consumer warpgroups that multiply by wgmma, rounded sums stored by TMA.
//
// Adds to matmul a left operand that is never stored. TMA's im2col mode reads successive output pixels at one tap,
// across ends of rows and images, and writes zeros for the padding. A tile thus has any 128 or 256 successive pixels,
// whatever the size of the images.
//
// Tiles. The more pixels and outputs a tile has, the fewer bytes a product needs from the L2 cache, which limits
// convolutions with few output channels. The tiles are 256 x 64, 256 x 128, 128 x 256, and 192 x 128 with three
// consumers, where that gives fuller waves. Sums of one or two steps, as in 1 x 1 windows, are limited by memory: for
// them, blocks outside of clusters keep their weights in shared memory, and wait for no other block. wgmma.py chooses.
//
// Precision. 16 bits: products are exact, sums float32. float32: `tf32` only; TMA rounds the factors as it copies them.
//
// Source: PTX ISA, "Im2col mode"; CUTLASS 3's implicit GEMM for Hopper.
#include "hopper/epilogue.cuh"
#include "hopper/persistent.cuh"
#include "hopper/wgmma.cuh"

constexpr int EPILOGUE_BOXES = 2;

using Wide = TileConfig<2, 256, 4, 2, 8, EPILOGUE_BOXES>;
using Tall = TileConfig<2, 128, 4, 2, 8, EPILOGUE_BOXES, 128>;
using Trio = TileConfig<3, 128, 4, 2, 8, EPILOGUE_BOXES>;
using Thin = TileConfig<2, 64, 4, 2, 8, EPILOGUE_BOXES, 128>;

// Tiles of 128 x 256 for blocks outside of clusters. They keep their weights, of at most STEPS steps, in shared memory;
// the stages hold only pixels.
struct Alone {
    static constexpr int CONSUMERS = 2, ROWS = 64, BLOCK_M = CONSUMERS * ROWS, BLOCK_N = 256, CLUSTER = 1;
    static constexpr int STEPS = 2, STAGES = 6, BOXES = BLOCK_N * 2 / ROW_BYTES;
    static constexpr int PRODUCER = CONSUMERS * WARPGROUP, THREADS = PRODUCER + WARPGROUP;
    static constexpr int STAGE_BYTES = BLOCK_M * ROW_BYTES, WEIGHT_BYTES = BLOCK_N * ROW_BYTES;
    static constexpr int WEIGHTS = STAGES * STAGE_BYTES, EPILOGUE = WEIGHTS + STEPS * WEIGHT_BYTES;
    static constexpr int FULL_BARRIERS = EPILOGUE + CONSUMERS * BOXES * BOX_BYTES;
    static constexpr int EMPTY_BARRIERS = FULL_BARRIERS + STAGES * MBARRIER_BYTES;
    static constexpr int WEIGHTS_BARRIER = EMPTY_BARRIERS + STAGES * MBARRIER_BYTES;
    static constexpr int SHARED_BYTES = BOX_ALIGNMENT + WEIGHTS_BARRIER + MBARRIER_BYTES;
    static_assert(SHARED_BYTES <= MAX_SHARED_BYTES, "");
};

struct ConvMaps {
    CUtensorMap x, weight, out;
};

struct Window {
    int R, S, channel_steps;
    int P, Q, K, pixels;  // sizes of the output; pixels of all images
    int stride_x, stride_y, lower_x, lower_y;

    __host__ __device__ __forceinline__ int steps() const { return R * S * channel_steps; }
};

// Position of the first pixel of a tile, at the first tap.
struct Base {
    int x, y, image;

    __device__ __forceinline__ Base(const Window& window, int pixel) {
        const int row = pixel / window.Q;
        image = row / window.P;
        x = (pixel - row * window.Q) * window.stride_x + window.lower_x;
        y = (row - image * window.P) * window.stride_y + window.lower_y;
    }
};

// The producer thread: for each tile all taps, and for each tap all channels.
template <typename T, typename C>
__device__ __forceinline__ void produce(const ConvMaps& maps, const GroupedTileScheduler<C::GROUP_M>& tiles,
                                        const Window& window, uint32_t shared) {
    constexpr int SHARE = C::BLOCK_N / C::CLUSTER, CHANNELS = ROW_BYTES / sizeof(T);
    const int rank = cta_rank<C>();
    const uint32_t full = shared + C::FULL_BARRIERS, empty = shared + C::EMPTY_BARRIERS;
    PipelineState<C::STAGES> state;
    for (int item = blockIdx.x / C::CLUSTER; item < tiles.count(); item += gridDim.x / C::CLUSTER) {
        const TileCoordinate tile = tiles[item];
        const int first = (tile.m * C::CLUSTER + rank) * C::BLOCK_M, column = tile.n * C::BLOCK_N + rank * SHARE;
        const Base base(window, first);
        for (int r = 0, tap = 0; r < window.R; ++r) {
            for (int s = 0; s < window.S; ++s, ++tap) {
#pragma unroll 1
                for (int step = 0; step < window.channel_steps; ++step) {
                    const int channel = step * CHANNELS;
                    const uint32_t pixels = shared + state.stage * C::STAGE_BYTES;
                    const uint32_t weights = pixels + C::A_BYTES + rank * SHARE * ROW_BYTES;
                    const uint32_t barrier = full + state.stage * MBARRIER_BYTES;
                    mbarrier_wait_parity(empty + state.stage * MBARRIER_BYTES, state.phase ^ 1);
                    mbarrier_arrive_expect_tx(barrier, C::STAGE_BYTES);
                    tma_load_im2col(pixels, &maps.x, channel, base.x, base.y, base.image, uint16_t(s), uint16_t(r),
                                    barrier);
                    if constexpr (C::CLUSTER > 1) {
                        constexpr uint16_t ALL = (1 << C::CLUSTER) - 1;
                        tma_load_multicast(weights, &maps.weight, channel, tap, column, barrier, ALL);
                    } else {
                        tma_load(weights, &maps.weight, channel, tap, column, barrier);
                    }
                    state.advance();
                }
            }
        }
    }
    drain_pipeline<C>(empty, state);
}

// A consumer: sums of its rows of a tile, in blocks of 64. A stage is released one step late, when the products that
// read it have ended.
template <typename T, typename C>
__device__ __forceinline__ void consume(float (&acc)[C::ROWS / 64][C::BLOCK_N / 2], uint32_t shared, int consumer,
                                        int steps, uint32_t to_signal, PipelineState<C::STAGES>& state) {
    int previous = -1;
    const auto release = [&] {
        if (to_signal != 0 && previous >= 0) signal_empty<C>(to_signal + previous * MBARRIER_BYTES);
    };
#pragma unroll 1
    for (int i = 0; i < steps; ++i) {
        const uint32_t tile = shared + state.stage * C::STAGE_BYTES;
        const uint64_t a = wgmma_descriptor(tile + consumer * C::ROWS * ROW_BYTES, 0);
        const uint64_t b = wgmma_descriptor(tile + C::A_BYTES, 0);
        mbarrier_wait_parity(shared + C::FULL_BARRIERS + state.stage * MBARRIER_BYTES, state.phase);
        wgmma_fence();
#pragma unroll
        for (int block = 0; block < C::ROWS / 64; ++block) {
            wgmma_stage<T, false, false>(acc[block], a + block * (BOX_BYTES >> 4), b);
        }
        wgmma_commit_group();
        wgmma_wait_group<1>();
        release();
        previous = state.stage;
        state.advance();
    }
    wgmma_wait_group<0>();
#pragma unroll
    for (int block = 0; block < C::ROWS / 64; ++block) warpgroup_fence_operand(acc[block]);
    release();
}

template <typename T, typename C>
__global__ void __launch_bounds__(C::THREADS)
    conv2d_wgmma(const __grid_constant__ ConvMaps maps, const GroupedTileScheduler<C::GROUP_M> tiles,
                 const Window window, T* __restrict__ out) {
    extern __shared__ char raw[];
    char* const stages = raw + (-shared_address(raw) & (BOX_ALIGNMENT - 1));
    const uint32_t shared = shared_address(stages);
    const int consumer = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP, 0), thread = threadIdx.x % WARPGROUP;

    if (threadIdx.x == C::PRODUCER) {
        tma_prefetch_descriptor(&maps.x);
        tma_prefetch_descriptor(&maps.weight);
        init_pipeline<C>(shared);
    }
    // No thread may arrive at a barrier of another block, or write there, before that block has initialized its
    // barriers.
    cluster_sync();

    if (consumer == C::CONSUMERS) {
        setmaxnreg_dec<C::CONSUMERS == 3 ? 32 : 40>();
        if (threadIdx.x == C::PRODUCER) produce<T, C>(maps, tiles, window, shared);
    } else {
        setmaxnreg_inc<C::CONSUMERS == 3 ? 160 : 232>();
        const int rank = cta_rank<C>(), boxes = C::EPILOGUE + consumer * EPILOGUE_BOXES * BOX_BYTES;
        const uint32_t to_signal = empty_barriers_to_signal<C>(shared + C::EMPTY_BARRIERS, thread);
        PipelineState<C::STAGES> state;
        for (int item = blockIdx.x / C::CLUSTER; item < tiles.count(); item += gridDim.x / C::CLUSTER) {
            const TileCoordinate tile = tiles[item];
            const int m = (tile.m * C::CLUSTER + rank) * C::BLOCK_M + consumer * C::ROWS, n = tile.n * C::BLOCK_N;
            float acc[C::ROWS / 64][C::BLOCK_N / 2] = {};
            consume<T, C>(acc, shared, consumer, window.steps(), to_signal, state);
#pragma unroll
            for (int block = 0; block < C::ROWS / 64; ++block) {
                store_through_shared<T, false, false>(&maps.out, out, acc[block], shared + boxes, stages + boxes,
                                                      consumer, thread, m + block * 64, n, window.pixels, window.K);
            }
        }
        if (thread == 0) tma_store_wait_group_read<0>();
    }
}

// The kernel with weights kept in shared memory. A block computes every gridDim.x / columns-th tile of a column of
// tiles.
template <typename T>
__global__ void __launch_bounds__(Alone::THREADS)
    conv2d_wgmma_alone(const __grid_constant__ ConvMaps maps, const Window window, int rows, int columns,
                 T* __restrict__ out) {
    using C = Alone;
    constexpr int CHANNELS = ROW_BYTES / sizeof(T);
    extern __shared__ char raw[];
    char* const stages = raw + (-shared_address(raw) & (BOX_ALIGNMENT - 1));
    const uint32_t shared = shared_address(stages), full = shared + C::FULL_BARRIERS;
    const uint32_t empty = shared + C::EMPTY_BARRIERS, weights_barrier = shared + C::WEIGHTS_BARRIER;
    const int consumer = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP, 0), thread = threadIdx.x % WARPGROUP;
    const int n = blockIdx.x % columns * C::BLOCK_N, first = blockIdx.x / columns, apart = gridDim.x / columns;
    const int steps = window.steps();

    if (threadIdx.x == C::PRODUCER) {
        tma_prefetch_descriptor(&maps.x);
        init_pipeline<C>(shared);
        mbarrier_init(weights_barrier, 1);
        mbarrier_fence_init();
    }
    __syncthreads();

    PipelineState<C::STAGES> state;
    if (consumer == C::CONSUMERS) {
        setmaxnreg_dec<40>();
        if (threadIdx.x != C::PRODUCER) return;
        mbarrier_arrive_expect_tx(weights_barrier, steps * C::WEIGHT_BYTES);
        for (int i = 0; i < steps; ++i) {
            tma_load(shared + C::WEIGHTS + i * C::WEIGHT_BYTES, &maps.weight, i % window.channel_steps * CHANNELS,
                     i / window.channel_steps, n, weights_barrier);
        }
        for (int tile = first; tile < rows; tile += apart) {
            const Base base(window, tile * C::BLOCK_M);
            for (int i = 0; i < steps; ++i) {
                const int tap = i / window.channel_steps, r = tap / window.S;
                mbarrier_wait_parity(empty + state.stage * MBARRIER_BYTES, state.phase ^ 1);
                mbarrier_arrive_expect_tx(full + state.stage * MBARRIER_BYTES, C::STAGE_BYTES);
                tma_load_im2col(shared + state.stage * C::STAGE_BYTES, &maps.x, i % window.channel_steps * CHANNELS,
                                base.x, base.y, base.image, uint16_t(tap - r * window.S), uint16_t(r),
                                full + state.stage * MBARRIER_BYTES);
                state.advance();
            }
        }
        return;
    }
    setmaxnreg_inc<232>();
    const int boxes = C::EPILOGUE + consumer * C::BOXES * BOX_BYTES;
    mbarrier_wait_parity(weights_barrier, 0);
    for (int tile = first; tile < rows; tile += apart) {
        float acc[C::BLOCK_N / 2] = {};
        auto next = state;
        for (int i = 0; i < steps; ++i) {
            const uint32_t pixels = shared + next.stage * C::STAGE_BYTES + consumer * C::ROWS * ROW_BYTES;
            mbarrier_wait_parity(full + next.stage * MBARRIER_BYTES, next.phase);
            wgmma_fence();
            wgmma_stage<T, false, false>(acc, wgmma_descriptor(pixels, 0),
                                         wgmma_descriptor(shared + C::WEIGHTS + i * C::WEIGHT_BYTES, 0));
            wgmma_commit_group();
            next.advance();
        }
        wgmma_wait_group<0>();
        warpgroup_fence_operand(acc);
        for (int i = 0; i < steps; ++i) {
            if (thread == 0) mbarrier_arrive(empty + state.stage * MBARRIER_BYTES);
            state.advance();
        }
        const int m = tile * C::BLOCK_M + consumer * C::ROWS;
        store_boxes<C::BOXES>(&maps.out, out, acc, shared + boxes, stages + boxes, consumer, thread, m, n,
                              window.pixels, window.K);
    }
    if (thread == 0) tma_store_wait_group_read<0>();
}

struct Weights {
    const void* data;
    int64_t channels, taps, K, pitch_tap, pitch_k;
};

template <typename T, typename C>
bool encode(ConvMaps* maps, const Images& x, const Weights& weight, const Window& window, void* out) {
    const auto out_type = sizeof(T) == 4 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : TENSOR_MAP_TYPE<T>;
    const bool out_by_tma = window.K % (16 / sizeof(T)) == 0;
    return encode_im2col_map(&maps->x, TENSOR_MAP_TYPE<T>, sizeof(T), x, C::BLOCK_M) &&
           encode_tensor_map<3>(&maps->weight, TENSOR_MAP_TYPE<T>, sizeof(T), weight.data,
                                {weight.channels, weight.taps, weight.K}, {weight.pitch_tap, weight.pitch_k},
                                {1, C::BLOCK_N / C::CLUSTER}) &&
           (!out_by_tma ||
            encode_tensor_map(&maps->out, out_type, sizeof(T), out, window.K, window.pixels, window.K, 64));
}

template <typename T>
cudaError_t launch_alone(const Images& x, const Weights& weight, const Window& window, void* out, cudaStream_t stream,
                         LaunchRecord* record) {
    ConvMaps maps = {};
    if (window.steps() > Alone::STEPS || !encode<T, Alone>(&maps, x, weight, window, out)) {
        return cudaErrorInvalidValue;
    }
    const int rows = ceil_div<int>(window.pixels, Alone::BLOCK_M), columns = ceil_div<int>(window.K, Alone::BLOCK_N);
    const int most = max(1, min(rows, multiprocessor_count() / columns)), waves = ceil_div<int>(rows, most);
    const dim3 grid(unsigned(ceil_div<int>(rows, waves) * columns));
    return launch_clusters(1, conv2d_wgmma_alone<T>, grid, Alone::THREADS, Alone::SHARED_BYTES, stream,
                           record, maps, window, rows, columns, static_cast<T*>(out));
}

template <typename T, typename C>
cudaError_t launch(const Images& x, const Weights& weight, const Window& window, void* out, cudaStream_t stream,
                   LaunchRecord* record) {
    ConvMaps maps = {};
    if (!encode<T, C>(&maps, x, weight, window, out)) {
        return cudaErrorInvalidValue;
    }
    const auto tiles = cluster_tiles<C>(window.pixels, window.K);
    return launch_clusters(C::CLUSTER, conv2d_wgmma<T, C>, persistent_grid<C>(tiles.count(), multiprocessor_count()),
                           C::THREADS, C::SHARED_BYTES, stream, record, maps, tiles, window, static_cast<T*>(out));
}

// x: (images, height, width, channels), channels contiguous, other strides in elements; weight: (K, R S, channels), the
// same. `tile`: 0 Thin, 1 Tall, 2 Wide, 3 Trio, 4 Alone. Addresses and strides are multiples of 16 bytes.
extern "C" int conv2d_wgmma(const void* x, const void* weight, void* out, int64_t images, int64_t height, int64_t width,
                            int64_t channels, int64_t pitch_image, int64_t pitch_y, int64_t pitch_x, int64_t K,
                            int64_t R, int64_t S, int64_t pitch_k, int64_t pitch_tap, int64_t P, int64_t Q,
                            int64_t stride_y, int64_t stride_x, int64_t padding_y, int64_t padding_x, int64_t tile,
                            int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const Images read = {x,
                         channels,
                         width,
                         height,
                         images,
                         pitch_x,
                         pitch_y,
                         pitch_image,
                         -int(padding_x),
                         -int(padding_y),
                         int(padding_x - (S - 1)),
                         int(padding_y - (R - 1)),
                         int(stride_x),
                         int(stride_y)};
    const Weights factors = {weight, channels, R * S, K, pitch_tap, pitch_k};
    const Window window = {int(R),
                           int(S),
                           int(ceil_div<int64_t>(channels, ROW_BYTES / (dtype == FLOAT32 ? 4 : 2))),
                           int(P),
                           int(Q),
                           int(K),
                           int(images * P * Q),
                           int(stride_x),
                           int(stride_y),
                           -int(padding_x),
                           -int(padding_y)};
    const auto run = [&](auto zero) {
        using T = decltype(zero);
        if (tile == 0) return launch<T, Thin>(read, factors, window, out, stream, record);
        if (tile == 1) return launch<T, Tall>(read, factors, window, out, stream, record);
        if (tile == 3) return launch<T, Trio>(read, factors, window, out, stream, record);
        if constexpr (sizeof(T) == 2) {
            if (tile == 4) return launch_alone<T>(read, factors, window, out, stream, record);
        }
        return launch<T, Wide>(read, factors, window, out, stream, record);
    };
    switch (dtype) {
        case FLOAT32: return run(float());
        case FLOAT16: return run(__half());
        case BFLOAT16: return run(__nv_bfloat16());
        default: return cudaErrorInvalidValue;
    }
}
