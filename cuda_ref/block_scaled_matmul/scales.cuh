// The scales of groups as kernels on tensor cores read them.
#pragma once

#include "block_scaled_matmul/codes.cuh"

// Both arrays of scales. Strides are in elements: between rows of a, blocks of 128 rows of b, and groups.
struct BlockScales {
    const float *a, *b;
    int64_t a_row, a_group, b_block, b_group;
};

// The scales of one group for two rows of a and BLOCKS blocks of b.
template <int BLOCKS>
struct GroupScales {
    float rows[2], blocks[BLOCKS];
};

// The scales of a thread's sums in a tile: of the rows m and m + 8, and of BLOCKS blocks of b from `block` on. Rows and
// blocks beyond the matrices have those of the last one; their sums are not stored.
template <int BLOCKS>
struct TileScales {
    const float *rows[2], *blocks[BLOCKS];
    int64_t a_group, b_group;

    __device__ __forceinline__ TileScales(const BlockScales& given, int m, int block, int M, int N)
        : a_group(given.a_group), b_group(given.b_group) {
        const int last = (N - 1) / GROUP;
#pragma unroll
        for (int i = 0; i < 2; ++i) rows[i] = given.a + int64_t(min(m + 8 * i, M - 1)) * given.a_row;
#pragma unroll
        for (int i = 0; i < BLOCKS; ++i) blocks[i] = given.b + int64_t(min(block + i, last)) * given.b_block;
    }

    __device__ __forceinline__ GroupScales<BLOCKS> load(int group) const {
        GroupScales<BLOCKS> found;
#pragma unroll
        for (int i = 0; i < 2; ++i) found.rows[i] = __ldg(rows[i] + group * a_group);
#pragma unroll
        for (int i = 0; i < BLOCKS; ++i) found.blocks[i] = __ldg(blocks[i] + group * b_group);
        return found;
    }
};
