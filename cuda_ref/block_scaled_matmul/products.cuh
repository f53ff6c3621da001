// The products of wgmma.cu: a consumer warpgroup adds the scaled sums of successive groups to its own.
//
// It sums the 128 products of a group from zero in the tensor cores, for 128 columns at a time. These multiply-adds cost
// no more than the additions of matmul's `promoted`. Meanwhile the tensor cores work for the other warpgroup.
//
// The sums of a thread lie in two rows, so a group needs two scales of a, and one of b for each 128 columns. They are
// loaded from the caches while the group before is multiplied.
//
// Precision: products are exact; the tensor cores keep 14 bits of a group's sum; all else is float32.
#pragma once

#include "block_scaled_matmul/scales.cuh"
#include "matmul/wgmma_products.cuh"

// acc[0 ... 63] += the sums of a group of 128 columns, times the scales of their two rows.
__device__ __forceinline__ void add_scaled(float* acc, const float (&sums)[GROUP / 2], const float (&scale)[2]) {
#pragma unroll
    for (int c = 0; c < GROUP / 2; ++c) acc[c] += sums[c] * scale[c % 4 / 2];
}

// sums = the 128 products of a group; the caller waits for them.
__device__ __forceinline__ void start_products(float (&sums)[GROUP / 2], uint64_t a, uint64_t b) {
    wgmma_fence();
    wgmma<Float8, false, false, false>(sums, a, b);
#pragma unroll
    for (int part = 1; part < 4; ++part) {
        wgmma<Float8, false, false>(sums, a + part * K_MAJOR_STEP, b + part * K_MAJOR_STEP);
    }
    wgmma_commit_group();
}

// `multiply_scaled` for tiles of 128 columns: registers hold the sums of two groups, so the next group is multiplied while
// those of one are added.
template <typename C>
__device__ __forceinline__ void multiply_in_turns(float (&acc)[GROUP / 2], uint32_t shared, int consumer, int first,
                                                  int count, const TileScales<1>& scales,
                                                  ConsumerPipeline<C>& pipeline) {
    float even[GROUP / 2] = {}, odd[GROUP / 2] = {}, scale[2] = {};  // scale: of the previous group
    GroupScales<1> next = scales.load(first);
    const auto step = [&](float(&sums)[GROUP / 2], float(&previous)[GROUP / 2], int i) {
        const GroupScales<1> current = next;
        next = scales.load(first + min(i + 1, count - 1));
        const uint32_t tile = shared + pipeline.state.stage * C::STAGE_BYTES;
        pipeline.wait();
        start_products(sums, wgmma_descriptor(tile + consumer * BOX_BYTES, 0), wgmma_descriptor(tile + C::A_BYTES, 0));
        wgmma_wait_group<1>();
        warpgroup_fence_operand(previous);
        pipeline.release_previous();
        pipeline.advance();
        add_scaled(acc, previous, scale);
        scale[0] = current.rows[0] * current.blocks[0], scale[1] = current.rows[1] * current.blocks[0];
    };
    const auto finish = [&](float(&previous)[GROUP / 2]) {
        wgmma_wait_group<0>();
        warpgroup_fence_operand(previous);
        pipeline.release_previous();
        add_scaled(acc, previous, scale);
    };
#pragma unroll 1
    for (int i = 0; i + 1 < count; i += 2) {
        step(even, odd, i);
        step(odd, even, i + 1);
    }
    if (count % 2) {  // a wait in each branch: after both, the compiler would make all products wait for each other
        step(even, odd, count - 1);
        finish(even);
    } else {
        finish(odd);
    }
    pipeline.previous = -1;
}

// acc += the scaled sums of `count` groups, from group `first` on.
template <typename C>
__device__ __forceinline__ void multiply_scaled(float (&acc)[C::BLOCK_N / 2], uint32_t shared, int consumer, int first,
                                                int count, const TileScales<C::BLOCK_N / GROUP>& scales,
                                                ConsumerPipeline<C>& pipeline) {
    static_assert(C::BLOCK_N % GROUP == 0 && ROW_BYTES == GROUP, "");
    if constexpr (C::BLOCK_N == GROUP) return multiply_in_turns<C>(acc, shared, consumer, first, count, scales, pipeline);
    float sums[GROUP / 2] = {};
    GroupScales<C::BLOCK_N / GROUP> next = scales.load(first);
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
        const GroupScales<C::BLOCK_N / GROUP> current = next;
        next = scales.load(first + min(i + 1, count - 1));
        const uint32_t tile = shared + pipeline.state.stage * C::STAGE_BYTES;
        const uint64_t a = wgmma_descriptor(tile + consumer * BOX_BYTES, 0);
        pipeline.wait();
#pragma unroll
        for (int j = 0; j < C::BLOCK_N / GROUP; ++j) {
            const uint64_t b = wgmma_descriptor(tile + C::A_BYTES + j * GROUP * ROW_BYTES, 0);
            start_products(sums, a, b);
            const float scale[] = {current.rows[0] * current.blocks[j], current.rows[1] * current.blocks[j]};
            wgmma_wait_group<0>();
            warpgroup_fence_operand(sums);
            if (j + 1 == C::BLOCK_N / GROUP) {
                pipeline.advance();
                pipeline.release_previous();
            }
            add_scaled(acc + j * GROUP / 2, sums, scale);
        }
    }
    pipeline.previous = -1;
}
