// Grouped tile scheduler: the order in which the matmul kernels on tensor cores compute the tiles of their output.
// It uses no instruction of a particular architecture, so that it runs in the host build too.
#pragma once

#include "common/common.cuh"

// Exact quotients of numbers below 2^31 by a divisor that the host knows. They take about ten cycles on the device; an
// integer division takes more than a hundred.
// Source: T. Granlund, P. Montgomery, "Division by Invariant Integers using Multiplication", PLDI 1994.
struct FastDivisor {
    uint32_t multiplier;  // floor(2^32 (2^shift / divisor - 1)) + 1
    int shift;            // the least one with 2^shift >= divisor

    explicit FastDivisor(uint32_t divisor) : shift(0) {
        while (uint64_t(1) << shift < divisor) ++shift;
        multiplier = uint32_t((((uint64_t(1) << shift) - divisor) << 32) / divisor + 1);
    }
    __device__ __forceinline__ int quotient(int x) const { return (__umulhi(x, multiplier) + x) >> shift; }
};

struct TileCoordinate {
    int m, n;
};

// Orders tiles in groups of GROUP_M tile rows, one group after the other; within a group column by column, downwards.
// The tiles in flight at one time then form nearly a square of the output, and the rows of a and columns of b that they
// need fit into the L2 cache.
// The device assigns blocks outside of clusters to whole GPCs (graphics processing clusters), 16 successive blocks to
// each. The L2 cache serves simultaneous requests of one GPC for the same line once, so that 4 x 4 tiles (GROUP_M = 4)
// cause less traffic than 16 tiles of one column. Measurements: docs/lab/matmul_tried.md
template <int GROUP_M>
struct GroupedTileScheduler {
    int tiles_m, tiles_n;
    FastDivisor group_tiles, last_group_rows;

    GroupedTileScheduler(int64_t tiles_m, int64_t tiles_n)
        : tiles_m(int(tiles_m)),
          tiles_n(int(tiles_n)),
          group_tiles(GROUP_M * tiles_n),
          last_group_rows((tiles_m - 1) % GROUP_M + 1) {}

    __host__ __device__ __forceinline__ int count() const { return tiles_m * tiles_n; }
    __device__ __forceinline__ TileCoordinate operator[](int index) const {
        const int first_m = group_tiles.quotient(index) * GROUP_M, within = index - first_m * tiles_n;
        const bool full_group = first_m + GROUP_M <= tiles_m;
        const int n = full_group ? within / GROUP_M : last_group_rows.quotient(within);
        return {first_m + within - n * (full_group ? GROUP_M : tiles_m - first_m), n};
    }
};
