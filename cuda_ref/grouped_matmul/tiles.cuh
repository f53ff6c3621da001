// The tiles of a persistent block in a product over groups of rows, found on the device: the host never reads the sizes.
//
// Tiles are numbered expert by expert; within one in groups of GROUP_M tiles of rows, as GroupedTileScheduler of
// common/tiles.cuh orders them, so that the tiles in flight share rows of x and columns of the weights in the L2 cache.
// A warp holds the running totals of tiles and rows of 32 experts, one in each lane, and goes on to the next 32 when
// the tile that it looks for comes after them. All lanes call all functions.
#pragma once

#include "common/common.cuh"

struct ExpertSizes {
    const int* at;
    int64_t stride;
    int experts, rows;  // rows: of all experts
};

// Rows from m on, and columns from n on; the rows from `end` on belong to the next expert.
struct ExpertTile {
    int expert, m, n, end;
};

template <int BLOCK_M, int BLOCK_N, int GROUP_M>
struct ExpertTiles {
    static constexpr unsigned ALL_LANES = 0xffffffffu;

    const ExpertSizes sizes;
    const int tiles_n, lane;
    int first = 0;                        // expert of lane 0
    int tiles_before = 0, rows_before = 0;  // of the experts before that
    int size, tiles, rows;                // of the lane's expert; tiles and rows include all experts before it

    __device__ __forceinline__ ExpertTiles(const ExpertSizes& sizes, int N)
        : sizes(sizes), tiles_n(ceil_div(N, BLOCK_N)), lane(threadIdx.x % 32) {
        load();
    }

    // Finds tile `index`, which is not less than in the call before. False if there are fewer tiles.
    __device__ __forceinline__ bool find(int index, ExpertTile& tile) {
        unsigned with;  // lanes whose expert, or one before it, has the tile
        while ((with = __ballot_sync(ALL_LANES, index < tiles)) == 0) {
            if (first + 32 >= sizes.experts) return false;
            first += 32;
            tiles_before = __shfl_sync(ALL_LANES, tiles, 31);
            rows_before = __shfl_sync(ALL_LANES, rows, 31);
            load();
        }
        const int owner = __ffs(with) - 1, own = __shfl_sync(ALL_LANES, size, owner);
        const int tiles_m = ceil_div(own, BLOCK_M), end = __shfl_sync(ALL_LANES, rows, owner);
        const int within = index - __shfl_sync(ALL_LANES, tiles, owner) + tiles_m * tiles_n;
        const int first_m = within / (GROUP_M * tiles_n) * GROUP_M, height = min(tiles_m - first_m, GROUP_M);
        const int in_group = within - first_m * tiles_n, n = in_group / height;
        tile = {first + owner, end - own + (first_m + in_group - n * height) * BLOCK_M, n * BLOCK_N,
                min(end, sizes.rows)};
        return true;
    }

private:
    __device__ __forceinline__ void load() {
        const int expert = first + lane;
        size = expert < sizes.experts ? sizes.at[expert * sizes.stride] : 0;
        tiles = ceil_div(size, BLOCK_M) * tiles_n;
        rows = size;
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 2) {
            const int other_tiles = __shfl_up_sync(ALL_LANES, tiles, distance);
            const int other_rows = __shfl_up_sync(ALL_LANES, rows, distance);
            if (lane >= distance) tiles += other_tiles, rows += other_rows;
        }
        tiles += tiles_before;
        rows += rows_before;
    }
};

// The rows of one expert after the other, from `begin` on, before `end`. All lanes of a warp call all functions.
struct ExpertRows {
    const ExpertSizes sizes;
    int first = 0, before = 0;  // expert of lane 0, and the rows of the experts before it
    int rows;                   // of the lane's expert and all before it

    __device__ __forceinline__ explicit ExpertRows(const ExpertSizes& sizes) : sizes(sizes) { load(); }

    // Finds the rows of `expert`, which is not less than in the call before.
    __device__ __forceinline__ void find(int expert, int& begin, int& end) {
        for (; first + 32 <= expert; first += 32) {
            before = __shfl_sync(0xffffffffu, rows, 31);
            load(first + 32);
        }
        end = __shfl_sync(0xffffffffu, rows, expert - first);
        begin = __shfl_sync(0xffffffffu, rows, max(expert - first - 1, 0));
        if (expert == first) begin = before;
        end = min(end, sizes.rows);
    }

private:
    __device__ __forceinline__ void load(int from = 0) {
        const int lane = threadIdx.x % 32, expert = from + lane;
        rows = expert < sizes.experts ? sizes.at[expert * sizes.stride] : 0;
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 2) {
            const int other = __shfl_up_sync(0xffffffffu, rows, distance);
            if (lane >= distance) rows += other;
        }
        rows += before;
    }
};
