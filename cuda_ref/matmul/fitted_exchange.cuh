// The addition of the sums of blocks of a cluster that divide k, for fitted.cuh
//
// Each block finishes some of the rows of the tile, in groups of 16: block r those from group first(r) on. A warpgroup
// sends its sums of other groups to buffers in the shared memory of the blocks that finish them. It adds what it
// receives to its own, in the order of the blocks.
//
// Source: PTX ISA, "mbarrier" with scope .cluster, and "st.shared::cluster".
#pragma once

#include "hopper/mbarrier.cuh"

constexpr int MEETING_BYTES = 64;  // of all barriers

// The buffers and barriers of a consumer warpgroup. Without other blocks it does nothing.
struct Exchange {
    static constexpr int GROUP_BYTES = 16 * 64 * int(sizeof(float));  // of a warpgroup

    int rank, blocks, groups, most;   // groups: of the tile; most: of a block
    uint32_t buffer, arrived, freed;  // barriers: sums have arrived; the other blocks have read those sent to them
    uint32_t turn = 0;

    __device__ __forceinline__ Exchange(int rank, int blocks, int groups, uint32_t barriers, uint32_t buffers,
                                        int consumer)
        : rank(rank), blocks(blocks), groups(groups), most(ceil_div(groups, blocks)),
          buffer(buffers + consumer * bytes(blocks, groups)), arrived(barriers + consumer * 2 * MBARRIER_BYTES),
          freed(arrived + MBARRIER_BYTES) {}

    // Bytes of the buffers of a warpgroup.
    __host__ __device__ __forceinline__ static int bytes(int blocks, int groups) {
        return (blocks - 1) * ceil_div(groups, blocks) * GROUP_BYTES;
    }

    // Called by one thread for each warpgroup, before a barrier of the cluster.
    __device__ __forceinline__ static void init(uint32_t barriers, int consumer, int blocks) {
        mbarrier_init(barriers + consumer * 2 * MBARRIER_BYTES, WARPGROUP * (blocks - 1));
        mbarrier_init(barriers + (consumer * 2 + 1) * MBARRIER_BYTES, blocks - 1);
        mbarrier_fence_init();
    }

    __device__ __forceinline__ int first(int r) const { return (r * groups + blocks - 1) / blocks; }

    // Adds to the sums of the groups that this block finishes those of the other blocks.
    template <int COUNT>
    __device__ __forceinline__ void add(float (&acc)[COUNT], int consumer, int thread) {
        if (blocks == 1) return;
        mbarrier_wait_acquire_cluster(freed, (turn & 1) ^ 1);
#pragma unroll 1
        for (int owner = 0; owner < blocks; ++owner) {
            if (owner == rank) continue;
            const int begin = first(owner), end = first(owner + 1);
            const int place = (rank - (rank > owner)) * most - begin;
            const uint32_t to = map_shared_rank(buffer, owner) + place * GROUP_BYTES + thread * 16;
#pragma unroll
            for (int g = 0; g < COUNT / 8; ++g) {
                if (g < begin || g >= end) continue;
                const uint32_t at = to + g * GROUP_BYTES;
                store_shared_cluster(at, {acc[g * 8], acc[g * 8 + 1], acc[g * 8 + 2], acc[g * 8 + 3]});
                store_shared_cluster(at + WARPGROUP * 16, {acc[g * 8 + 4], acc[g * 8 + 5], acc[g * 8 + 6], acc[g * 8 + 7]});
            }
            mbarrier_arrive_release_cluster(map_shared_rank(arrived, owner));
        }
        mbarrier_wait_acquire_cluster(arrived, turn & 1);
        const int begin = first(rank), end = first(rank + 1);
#pragma unroll 1
        for (int source = 0; source < blocks; ++source) {
            if (source == rank) continue;
            const uint32_t from = buffer + ((source - (source > rank)) * most - begin) * GROUP_BYTES + thread * 16;
#pragma unroll
            for (int g = 0; g < COUNT / 8; ++g) {
                if (g < begin || g >= end) continue;
                const uint32_t at = from + g * GROUP_BYTES;
                const float4 low = load_shared_quad(at), high = load_shared_quad(at + WARPGROUP * 16);
                acc[g * 8] += low.x, acc[g * 8 + 1] += low.y, acc[g * 8 + 2] += low.z, acc[g * 8 + 3] += low.w;
                acc[g * 8 + 4] += high.x, acc[g * 8 + 5] += high.y, acc[g * 8 + 6] += high.z, acc[g * 8 + 7] += high.w;
            }
        }
        named_barrier_sync(1 + consumer, WARPGROUP);
        if (thread > 0 && thread < blocks) mbarrier_arrive_release_cluster(map_shared_rank(freed, (rank + thread) % blocks));
        ++turn;
    }

    // Called at the end: other blocks arrive at this one's barriers until they have read what it sent.
    __device__ __forceinline__ void finish() {
        if (blocks > 1 && turn > 0) mbarrier_wait_acquire_cluster(freed, (turn & 1) ^ 1);
    }
};
