// What the persistent, warp-specialized matmul kernels share: the shape of their work, the plan of tiles and blocks,
// and how consumers give stages back to producers. A persistent kernel launches about one block per multiprocessor;
// each block computes tile after tile. Source: CUTLASS 3, "warp-specialized cooperative" kernels.
#pragma once

#include "launch.cuh"
#include "mbarrier.cuh"

// CONSUMERS warpgroups multiply 64 rows of a tile each. CLUSTER blocks, with successive rows of tiles, share the loads
// of b. A stage holds 128 bytes of each row of the tiles of a and b. EPILOGUE_BOXES boxes for each consumer hold sums
// on their way to global memory.
template <int CONSUMERS_, int BLOCK_N_, int STAGES_, int CLUSTER_, int GROUP_M_, int EPILOGUE_BOXES>
struct TileConfig {
    static constexpr int CONSUMERS = CONSUMERS_, BLOCK_M = CONSUMERS * 64, BLOCK_N = BLOCK_N_, STAGES = STAGES_;
    static constexpr int CLUSTER = CLUSTER_, GROUP_M = GROUP_M_, BOXES = EPILOGUE_BOXES;
    // The producer is one warp, or a warpgroup where setmaxnreg moves registers from it to the consumers.
    static constexpr int PRODUCER = CONSUMERS * WARPGROUP, THREADS = PRODUCER + (CONSUMERS > 1 ? WARPGROUP : 32);
    static constexpr int A_BYTES = BLOCK_M * ROW_BYTES, STAGE_BYTES = A_BYTES + BLOCK_N * ROW_BYTES;
    // Offsets in shared memory. First come the stages.
    static constexpr int EPILOGUE = STAGES * STAGE_BYTES;
    static constexpr int FULL_BARRIERS = EPILOGUE + CONSUMERS * EPILOGUE_BOXES * BOX_BYTES;
    static constexpr int EMPTY_BARRIERS = FULL_BARRIERS + STAGES * MBARRIER_BYTES;
    static constexpr int SHARED_BYTES = BOX_ALIGNMENT + EMPTY_BARRIERS + STAGES * MBARRIER_BYTES;
    static_assert(SHARED_BYTES <= MAX_SHARED_BYTES && CONSUMERS <= 2, "");
};

template <typename C>
__device__ __forceinline__ int cta_rank() {
    return C::CLUSTER > 1 ? int(cta_rank_in_cluster()) : 0;
}

// By one thread of the block, before the barrier of all threads that follows. A stage is full when one thread has
// announced its bytes and they have come, and empty when all consumers of all blocks that read it have arrived.
template <typename C>
__device__ __forceinline__ void init_pipeline(uint32_t shared) {
    for (int stage = 0; stage < C::STAGES; ++stage) {
        mbarrier_init(shared + C::FULL_BARRIERS + stage * MBARRIER_BYTES, 1);
        mbarrier_init(shared + C::EMPTY_BARRIERS + stage * MBARRIER_BYTES, C::CONSUMERS * C::CLUSTER);
    }
    mbarrier_fence_init();
}

// The empty barriers at which a thread of a consumer arrives when a stage has been read: thread t does it in block t of
// the cluster, since all blocks load a part of each stage. 0 for the other threads.
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

// By the producer at its end. A block of a cluster must not exit while another one may still arrive at its barriers:
// waits until every stage has been given back.
template <typename C>
__device__ __forceinline__ void drain_pipeline(uint32_t empty, PipelineState<C::STAGES> state) {
    if constexpr (C::CLUSTER > 1) {
        for (int i = 0; i < C::STAGES; ++i) {
            mbarrier_wait_parity(empty + state.stage * MBARRIER_BYTES, state.phase ^ 1);
            state.advance();
        }
    }
}

// The tiles of an (M, N) output in units of a cluster, which computes CLUSTER tiles below each other.
template <typename C>
GroupedTileScheduler<C::GROUP_M> cluster_tiles(int64_t M, int64_t N) {
    return {ceil_div<int64_t>(M, C::BLOCK_M * C::CLUSTER), ceil_div<int64_t>(N, C::BLOCK_N)};
}

// The most tiles that a cluster computes if the device is full of clusters.
template <typename C>
int64_t waves(int64_t M, int64_t N, int multiprocessors) {
    return ceil_div<int64_t>(cluster_tiles<C>(M, N).count(), multiprocessors / C::CLUSTER);
}

// The fewest blocks that need no more waves than a full device, if each tile is computed in `parts` parts: the others
// would only draw power.
template <typename C>
dim3 persistent_grid(int64_t M, int64_t N, int multiprocessors, int64_t parts = 1) {
    const int64_t work = cluster_tiles<C>(M, N).count() * parts;
    const int64_t waves = ceil_div<int64_t>(work, multiprocessors / C::CLUSTER);
    return dim3(unsigned(ceil_div<int64_t>(work, waves) * C::CLUSTER));
}

// Work item i of the grid is tile i % tiles of part i / tiles. A part is a range of steps of k; with several parts, its
// float32 sums go to `sums`, an (M, N) matrix each.
struct Parts {
    FastDivisor tiles;
    int count;
    float* sums;

    __device__ __forceinline__ int of(int item) const { return count == 1 ? 0 : tiles.quotient(item); }
    __device__ __forceinline__ int first_step(int part, int steps) const { return int(int64_t(steps) * part / count); }
};
