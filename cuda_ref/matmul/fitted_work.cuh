// How fitted.cuh divides a product among clusters, their blocks, and steps of k.
#pragma once

#include "common/launch.cuh"
#include "hopper/mbarrier.cuh"

// CONSUMERS warpgroups compute 64 columns and up to ROWS rows of out each.
template <int CONSUMERS_, int ROWS_>
struct Columns {
    static constexpr int CONSUMERS = CONSUMERS_, ROWS = ROWS_, COUNT = CONSUMERS * 64;
    static constexpr int PRODUCER = CONSUMERS * WARPGROUP, THREADS = PRODUCER + (CONSUMERS > 1 ? WARPGROUP : 32);
    static constexpr int BYTES = COUNT * ROW_BYTES;  // bytes of b per stage
    static constexpr int BOXES = 2;                  // boxes of a consumer that hold sums before they are stored
    static constexpr int BOX_ROWS = 16;              // rows that one store takes
};

constexpr int GROUP = 8, MOST_STAGES = 20, BARRIER_BYTES = 2 * MOST_STAGES * MBARRIER_BYTES, BLOCK_K = 64;

// Operands whose loads the blocks of a cluster share: a by blocks side by side, b by blocks one below the other.
enum Sharing { NOTHING, SHARE_A, SHARE_B, SHARE_BOTH };

struct Maps {
    CUtensorMap a, b, out;
};

// A cluster computes one share after the other: for each block a tile, over one part of the steps of k. If its blocks
// are joined, they compute one tile, and divide its steps.
struct Work {
    GroupedTileScheduler<GROUP> tiles;  // m counts tiles of columns of out, n tiles of rows
    FastDivisor by_tiles;
    int sharing, cluster;  // sharing: see Sharing; cluster: blocks of a cluster
    int rows, stages, stage_bytes;  // rows of a tile; stages of the ring; bytes of a stage
    int parts, least, longer;       // the first `longer` parts have `least + 1` steps, the others `least`
    float* sums;                    // sums of parts: for each part M rows of N columns
    int joined, steps;              // blocks of a cluster that divide k, or 1; all steps

    __device__ __forceinline__ int shares() const { return tiles.count() * parts; }
};

// A block of a cluster. If a is shared, two blocks whose ranks differ in the lowest bit are side by side.
struct Member {
    int rank, x, y;      // x, y: place in the cluster
    int beside, below;   // ranks of the blocks that share a and b with it; its own rank if there is none
    int partners;        // number of blocks with which it shares loads

    __device__ __forceinline__ Member(const Work& work) {
        const bool a = work.sharing & SHARE_A, b = work.sharing & SHARE_B;
        rank = work.cluster > 1 ? int(cta_rank_in_cluster()) : 0;
        x = a ? rank & 1 : 0, y = a ? rank >> 1 : rank;
        beside = a ? rank ^ 1 : rank, below = b ? rank ^ (a ? 2 : 1) : rank;
        partners = int(a) + int(b);
    }
};

struct FittedShare {
    int row, column;  // position of the block's tile, in tiles
    int part, begin, end;

    __device__ __forceinline__ FittedShare(const Work& work, int index, const Member& member) {
        part = work.by_tiles.quotient(index), begin = part * work.least + min(part, work.longer);
        end = begin + work.least + (part < work.longer);
        if (work.joined > 1) {
            begin = work.steps * member.rank / work.joined, end = work.steps * (member.rank + 1) / work.joined;
        }
        const TileCoordinate tile = work.tiles[index - part * work.tiles.count()];
        row = work.sharing & SHARE_B ? tile.n * 2 + member.y : tile.n;
        column = work.sharing & SHARE_A ? tile.m * 2 + member.x : tile.m;
    }
};

struct Ring {
    uint32_t full, empty;  // addresses of the first barriers
    int stages, stage = 0;
    uint32_t phase = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == stages) stage = 0, phase ^= 1;
    }
};
