// Products of scales in shared memory: a warp for each consumer writes them, group by group, ahead of the consumer.
//
// A consumer reads the products of its two rows with all blocks of b by one load, and executes nothing else for scales.
// The warp of a consumer loads the scales of four groups at once, while the consumer multiplies the two groups before.
//
// A group's products lie in one of two slots. Barriers: the warp writes a slot when the four warps of the consumer have
// read the group before the last, which they report to the slot's barrier. Then it arrives at the full barrier of the
// group's stage, at which consumers wait for both operands and the scales.
#pragma once

#include "block_scaled_matmul/scales.cuh"
#include "hopper/persistent.cuh"

// A tile with the slots between the boxes of the epilogue and the barriers.
template <typename Tile>
struct ScaledConfig : Tile {
    static constexpr int BLOCKS = Tile::BLOCK_N / GROUP, PAIR_BYTES = 2 * BLOCKS * int(sizeof(float));
    static constexpr int SLOT_BYTES = 32 * PAIR_BYTES;  // pairs of rows
    // A warpgroup of the producer has idle warps.
    static constexpr int THREADS = Tile::THREADS + (Tile::CONSUMERS > 1 ? 0 : 32);
    static constexpr int SLOTS = Tile::FULL_BARRIERS, SLOT_BARRIERS = SLOTS + Tile::CONSUMERS * 2 * SLOT_BYTES;
    static constexpr int FULL_BARRIERS = SLOT_BARRIERS + Tile::CONSUMERS * 2 * MBARRIER_BYTES;
    static constexpr int EMPTY_BARRIERS = FULL_BARRIERS + Tile::STAGES * MBARRIER_BYTES;
    // Without the bytes that align the stages: the kernels declare the alignment of their shared memory.
    static constexpr int SHARED_BYTES = EMPTY_BARRIERS + Tile::STAGES * MBARRIER_BYTES;
    static_assert(Tile::BLOCK_N % GROUP == 0 && BLOCKS <= 2 && SHARED_BYTES <= MAX_SHARED_BYTES, "");
    static_assert(Tile::STAGES > 2, "a warp that is two groups ahead has not yet come back to the consumer's stage");
};

template <typename C>
__device__ __forceinline__ uint32_t slots_of(uint32_t shared, int consumer) {
    return shared + C::SLOTS + consumer * 2 * C::SLOT_BYTES;
}
template <typename C>
__device__ __forceinline__ uint32_t slot_barriers_of(uint32_t shared, int consumer) {
    return shared + C::SLOT_BARRIERS + consumer * 2 * MBARRIER_BYTES;
}

// init_pipeline with the barriers of the slots.
template <typename C>
__device__ __forceinline__ void init_scaled_pipeline(uint32_t shared) {
    for (int i = 0; i < 2 * C::CONSUMERS; ++i) mbarrier_init(slot_barriers_of<C>(shared, 0) + i * MBARRIER_BYTES, 4);
    init_pipeline<C>(shared, 1 + C::CONSUMERS);
}

// The consumer's side of the slots.
template <typename C>
struct ScaleReader {
    uint32_t at, barrier;  // addresses of this thread's products, and of the slot's barrier

    __device__ __forceinline__ ScaleReader(uint32_t shared, int consumer, int thread)
        : at(slots_of<C>(shared, consumer) + (thread / 32 * 8 + thread % 32 / 4) * C::PAIR_BYTES),
          barrier(slot_barriers_of<C>(shared, consumer)) {}

    // Reads the products of the next group, whose stage is full. x[j][i]: of block j and row i.
    __device__ __forceinline__ void read(float (&x)[C::BLOCKS][2]) {
        if constexpr (C::BLOCKS == 2) {
            const float4 found = load_shared_quad(at);
            x[0][0] = found.x, x[0][1] = found.y, x[1][0] = found.z, x[1][1] = found.w;
        } else {
            const float2 found = load_shared_pair(at);
            x[0][0] = found.x, x[0][1] = found.y;
        }
        __syncwarp();
        if (threadIdx.x % 32 == 0) mbarrier_arrive(barrier);
        at ^= C::SLOT_BYTES, barrier ^= MBARRIER_BYTES;
    }
};

// The scales of one group for 8 rows of a, 8 rows apart, and all blocks of b in a tile.
template <int BLOCKS>
struct GroupScales {
    float rows[8], blocks[BLOCKS];

    // Rows from m on, blocks from `block` on. Those beyond the matrices get any number: their sums are not stored.
    __device__ __forceinline__ void load(const BlockScales& given, int group, int m, int block, int M, int N) {
        const float* row = given.a + (m * given.a_row + group * given.a_group);
#pragma unroll
        for (int i = 0; i < 8; ++i, row += 8 * given.a_row) rows[i] = m + 8 * i < M ? __ldg(row) : 0.0f;
#pragma unroll
        for (int i = 0; i < BLOCKS; ++i) {
            blocks[i] = __ldg(given.b + (min(block + i, (N - 1) / GROUP) * given.b_block + group * given.b_group));
        }
    }
};

// The warp that writes the products for a consumer. Lane l has rows l / 4 + 8 i of its 64, and every fourth group: four
// lanes load neighbours, if the scales of a row are contiguous.
template <typename C>
struct ScaleWriter {
    uint32_t full, slots, barriers;
    PipelineState<C::STAGES> stage;
    PipelineState<2> slot;

    __device__ __forceinline__ ScaleWriter(uint32_t shared, int consumer)
        : full(shared + C::FULL_BARRIERS), slots(slots_of<C>(shared, consumer)),
          barriers(slot_barriers_of<C>(shared, consumer)) {}

    // Writes the products of `count` groups, from group `first` on, for 64 rows from m on and the columns from n on.
    __device__ __forceinline__ void write(const BlockScales& given, int first, int count, int m, int n, int M, int N) {
        const int lane = threadIdx.x % 32;
        GroupScales<C::BLOCKS> scales;
#pragma unroll 1
        for (int i = 0; i < count; ++i) {
            if (i % 4 == 0) scales.load(given, first + min(i + lane % 4, count - 1), m + lane / 4, n / GROUP, M, N);
            mbarrier_wait_parity(barriers + slot.stage * MBARRIER_BYTES, slot.phase ^ 1);
            if (lane % 4 == i % 4) store(scales, slots + slot.stage * C::SLOT_BYTES + lane / 4 * C::PAIR_BYTES);
            __syncwarp();
            if (lane == 0) mbarrier_arrive(full + stage.stage * MBARRIER_BYTES);
            slot.advance();
            stage.advance();
        }
    }

private:
    __device__ __forceinline__ static void store(const GroupScales<C::BLOCKS>& x, uint32_t to) {
#pragma unroll
        for (int i = 0; i < 8; i += 2, to += 8 * C::PAIR_BYTES) {  // the 16 rows of a consumer's warp
            const float first = x.blocks[0], last = x.blocks[C::BLOCKS - 1];
            if constexpr (C::BLOCKS == 2) {
                store_shared(to, make_float4(x.rows[i] * first, x.rows[i + 1] * first, x.rows[i] * last,
                                             x.rows[i + 1] * last));
            } else {
                store_shared(to, make_float2(x.rows[i] * first, x.rows[i + 1] * first));
            }
        }
    }
};
