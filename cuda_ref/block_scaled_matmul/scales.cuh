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
    const BlockScales& given;
    uint32_t m, block, last_row, last_block;

    __device__ __forceinline__ TileScales(const BlockScales& given, int m, int block, int M, int N)
        : given(given), m(m), block(block), last_row(M - 1), last_block((N - 1) / GROUP) {}

    __device__ __forceinline__ GroupScales<BLOCKS> load(uint32_t group) const {
        GroupScales<BLOCKS> found;
#pragma unroll
        for (uint32_t i = 0; i < 2; ++i) {
            found.rows[i] = __ldg(given.a + (min(m + 8 * i, last_row) * given.a_row + group * given.a_group));
        }
#pragma unroll
        for (uint32_t i = 0; i < BLOCKS; ++i) {
            found.blocks[i] = __ldg(given.b + (min(block + i, last_block) * given.b_block + group * given.b_group));
        }
        return found;
    }
};

// The scales of `count` successive groups from `first` on. The four threads of a quad need the same ones: each of them
// loads every fourth group, four groups ahead, and passes the products of its scales to the others.
template <int BLOCKS>
struct QuadScales {
    const TileScales<BLOCKS>& tile;
    int group, last;  // the group of `next`, and the last group
    GroupScales<BLOCKS> next;
    float products[BLOCKS][2] = {};

    __device__ __forceinline__ QuadScales(const TileScales<BLOCKS>& tile, int first, int count)
        : tile(tile), group(first + int(threadIdx.x % 4)), last(first + count - 1), next(tile.load(min(group, last))) {}

    // x[j][r]: the product of the scales of group i, for block j and row r. Call for i = 0, 1, 2, ... in turn.
    __device__ __forceinline__ void read(int i, float (&x)[BLOCKS][2]) {
        if (i == 0) refill();
#pragma unroll
        for (int j = 0; j < BLOCKS; ++j) {
#pragma unroll
            for (int r = 0; r < 2; ++r) x[j][r] = __shfl_sync(0xffffffffu, products[j][r], i, 4);
        }
        if (i % 4 == 3) refill();
    }

private:
    __device__ __forceinline__ void refill() {
#pragma unroll
        for (int j = 0; j < BLOCKS; ++j) {
            products[j][0] = next.rows[0] * next.blocks[j], products[j][1] = next.rows[1] * next.blocks[j];
        }
        group += 4;
        next = tile.load(min(group, last));
    }
};
