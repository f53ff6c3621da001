// Shared by the persistent, warp-specialized matmul kernels: the shape of their work, the plan of tiles and blocks, and
// the release of stages by consumers. A persistent kernel launches about one block per multiprocessor; each block
// computes tile after tile. Source: CUTLASS 3, "warp-specialized cooperative" kernels.
#pragma once

#include "common/launch.cuh"
#include "hopper/mbarrier.cuh"

// CONSUMERS warpgroups multiply ROWS rows of a tile each. CLUSTER blocks, with successive rows of tiles, share the
// loads of b. A stage holds 128 bytes of each row of the tiles of a and b. EPILOGUE_BOXES boxes per consumer hold sums
// before they are stored.
template <int CONSUMERS_, int BLOCK_N_, int STAGES_, int CLUSTER_, int GROUP_M_, int EPILOGUE_BOXES, int ROWS_ = 64>
struct TileConfig {
    static constexpr int CONSUMERS = CONSUMERS_, ROWS = ROWS_, BLOCK_M = CONSUMERS * ROWS, BLOCK_N = BLOCK_N_;
    static constexpr int STAGES = STAGES_;
    static constexpr int CLUSTER = CLUSTER_, GROUP_M = GROUP_M_, BOXES = EPILOGUE_BOXES;
    // The producer is one warp, or a warpgroup if setmaxnreg moves registers from it to the consumers.
    static constexpr int PRODUCER = CONSUMERS * WARPGROUP, THREADS = PRODUCER + (CONSUMERS > 1 ? WARPGROUP : 32);
    static constexpr int A_BYTES = BLOCK_M * ROW_BYTES, STAGE_BYTES = A_BYTES + BLOCK_N * ROW_BYTES;
    // Offsets in shared memory, after the stages.
    static constexpr int EPILOGUE = STAGES * STAGE_BYTES;
    static constexpr int FULL_BARRIERS = EPILOGUE + CONSUMERS * EPILOGUE_BOXES * BOX_BYTES;
    static constexpr int EMPTY_BARRIERS = FULL_BARRIERS + STAGES * MBARRIER_BYTES;
    static constexpr int SHARED_BYTES = BOX_ALIGNMENT + EMPTY_BARRIERS + STAGES * MBARRIER_BYTES;
    static_assert(SHARED_BYTES <= MAX_SHARED_BYTES && CONSUMERS <= 3, "");
};

template <typename C>
__device__ __forceinline__ int cta_rank() {
    return C::CLUSTER > 1 ? int(cta_rank_in_cluster()) : 0;
}

// Called by one thread of the block, before a barrier of all threads. A stage is full when one thread has announced its
// bytes and they have arrived, and empty when all consumers of all blocks that read it have arrived.
template <typename C>
__device__ __forceinline__ void init_pipeline(uint32_t shared) {
    for (int stage = 0; stage < C::STAGES; ++stage) {
        mbarrier_init(shared + C::FULL_BARRIERS + stage * MBARRIER_BYTES, 1);
        mbarrier_init(shared + C::EMPTY_BARRIERS + stage * MBARRIER_BYTES, C::CONSUMERS * C::CLUSTER);
    }
    mbarrier_fence_init();
}

// The empty barriers at which a consumer thread arrives when a stage has been read: thread t arrives in block t of the
// cluster, since all blocks load a part of each stage. 0 for the other threads.
template <typename C>
__device__ __forceinline__ uint32_t empty_barriers_to_signal(uint32_t empty, int thread) {
    if (thread >= C::CLUSTER) return 0;
    return C::CLUSTER > 1 ? map_shared_rank(empty, thread) : empty;
}

template <typename C>
__device__ __forceinline__ void signal_empty(uint32_t barrier) {
    if constexpr (C::CLUSTER > 1) {
        mbarrier_arrive_cluster(barrier);
    } else {
        mbarrier_arrive(barrier);
    }
}

// Called by the producer at its end. A block of a cluster must not exit while another one may still arrive at its
// barriers, so this waits until every stage has been released.
template <typename C>
__device__ __forceinline__ void drain_pipeline(uint32_t empty, PipelineState<C::STAGES> state) {
    if constexpr (C::CLUSTER > 1) {
        for (int i = 0; i < C::STAGES; ++i) {
            mbarrier_wait_parity(empty + state.stage * MBARRIER_BYTES, state.phase ^ 1);
            state.advance();
        }
    }
}

// The tiles of an (M, N) output in units of a cluster, which computes CLUSTER tiles one below the other.
template <typename C>
GroupedTileScheduler<C::GROUP_M> cluster_tiles(int64_t M, int64_t N) {
    return {ceil_div<int64_t>(M, C::BLOCK_M * C::CLUSTER), ceil_div<int64_t>(N, C::BLOCK_N)};
}

// Most tiles that a cluster computes if the device is full of clusters.
template <typename C>
int64_t waves(int64_t M, int64_t N, int multiprocessors) {
    return ceil_div<int64_t>(cluster_tiles<C>(M, N).count(), multiprocessors / C::CLUSTER);
}

// Fewest blocks with the same number of waves for `work` tiles, or parts of tiles: idle multiprocessors save power.
template <typename C>
dim3 persistent_grid(int64_t work, int multiprocessors) {
    const int64_t waves = ceil_div<int64_t>(work, multiprocessors / C::CLUSTER);
    return dim3(unsigned(ceil_div<int64_t>(work, waves) * C::CLUSTER));
}

// A unit of a cluster's work: a tile over the steps of k from `begin` to `end`.
struct Share {
    int tile, part, begin, end;
};

// Each tile is divided along k into `count` parts. The first `longer` of them have `least + 1` steps, the others
// `least`. With several parts, their sums go to `sums` in float32: all tiles of the first part, then those of the next;
// each tile as rows of BLOCK_N columns.
struct Parts {
    int tiles, count, least, longer;
    FastDivisor by_tiles;
    float* sums;

    Parts(int tiles, int count, int steps, float* sums)
        : tiles(tiles), count(count), least(steps / count), longer(steps % count), by_tiles(tiles), sums(sums) {}

    __host__ __device__ __forceinline__ int shares() const { return tiles * count; }
    __device__ __forceinline__ Share share(int index) const {
        const int part = by_tiles.quotient(index), begin = part * least + min(part, longer);
        return {index - part * tiles, part, begin, begin + least + (part < longer)};
    }
};

// The division of a tile of a cluster by add_parts: a thread adds four neighbours.
template <typename C>
struct AddConfig {
    static constexpr int THREADS = 256, ROWS = C::BLOCK_M * C::CLUSTER, QUADS = ROWS * C::BLOCK_N / 4;
    static constexpr int BLOCKS = QUADS / THREADS;  // blocks per tile
};

// out[m, n] = finish(sum of the parts in order, n). If TRANSPOSED, out is the transpose of the product, and each
// block's part of a tile is stored by columns.
template <typename T, typename C, bool TRANSPOSED, typename Finish>
__global__ void __launch_bounds__(AddConfig<C>::THREADS)
    add_parts(const GroupedTileScheduler<C::GROUP_M> tiles, const Parts parts, T* __restrict__ out, int M, int N,
              const Finish finish) {
    using A = AddConfig<C>;
    constexpr int LOADS = 8;  // loads in flight, also at the end: each wait takes as long as all additions
    const int index = blockIdx.x / A::BLOCKS, quad = blockIdx.x % A::BLOCKS * A::THREADS + threadIdx.x;
    const TileCoordinate tile = tiles[index];
    constexpr int BLOCK_QUADS = A::QUADS / C::CLUSTER;
    const int rank = quad / BLOCK_QUADS, inner = quad % BLOCK_QUADS;
    const int m = TRANSPOSED ? tile.n * C::BLOCK_N + inner / (C::BLOCK_M / 4)
                             : tile.m * A::ROWS + quad / (C::BLOCK_N / 4);
    const int n = TRANSPOSED ? tile.m * A::ROWS + rank * C::BLOCK_M + inner % (C::BLOCK_M / 4) * 4
                             : tile.n * C::BLOCK_N + quad % (C::BLOCK_N / 4) * 4;
    if (m >= M || n >= N) return;
    const Pack<float, 4>* from =
        reinterpret_cast<const Pack<float, 4>*>(parts.sums) + int64_t(index) * A::QUADS + quad;
    Pack<float, 4> total = {};
#pragma unroll 1
    for (int first = 0; first < parts.count; first += LOADS) {
        Pack<float, 4> x[LOADS];
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            x[i] = from[min(first + i, parts.count - 1) * int64_t(parts.tiles) * A::QUADS];
        }
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            for (int c = 0; c < 4; ++c) total[c] += first + i < parts.count ? x[i][c] : 0.0f;
        }
    }
    Pack<T, 4> rounded;
#pragma unroll
    for (int i = 0; i < 4; ++i) rounded[i] = from_float<T>(finish(total[i], min(n + i, N - 1)));
    T* const to = out + int64_t(m) * N + n;
    if (N % 4 == 0) {
        *reinterpret_cast<Pack<T, 4>*>(to) = rounded;
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (n + i < N) to[i] = rounded[i];
        }
    }
}
