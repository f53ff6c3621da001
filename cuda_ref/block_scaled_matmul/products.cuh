// The products of wgmma.cu: a consumer warpgroup adds the scaled sums of successive groups to its own.
//
// It sums the 128 products of a group from zero in the tensor cores, for 128 columns at a time. These multiply-adds
// cost no more than the additions of matmul's `promoted`. Meanwhile the tensor cores work for the other warpgroup.
//
// The sums of a thread lie in two rows, so a group needs two scales of a, and one of b for each 128 columns: see
// QuadScales. A warpgroup gets its scales, and waits for the next stage, while its products are computed.
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

// The descriptors of a consumer's operands in the current stage.
template <typename C>
struct StageDescriptors {
    uint64_t a, b;

    __device__ __forceinline__ StageDescriptors(uint32_t shared, int consumer, int stage) {
        const uint64_t offset = stage * (C::STAGE_BYTES >> 4);
        a = wgmma_descriptor(shared + consumer * BOX_BYTES, 0) + offset;
        b = wgmma_descriptor(shared + C::A_BYTES, 0) + offset;
    }
};

// `multiply_scaled` for tiles of 128 columns. Registers hold the sums of two groups: one is multiplied while the other is
// added.
template <typename C>
__device__ __forceinline__ void multiply_in_turns(float (&acc)[GROUP / 2], uint32_t shared, int consumer, int first,
                                                  int count, const TileScales<1>& tile_scales,
                                                  ConsumerPipeline<C>& pipeline) {
    float even[GROUP / 2] = {}, odd[GROUP / 2] = {};
    QuadScales<1> scales(tile_scales, first, count);
    float scale[1][2] = {};  // of the previous group
    // Starts the products of group i and adds those of group i - 1, which are zero for i = 0.
    const auto step = [&](float(&sums)[GROUP / 2], float(&previous)[GROUP / 2], int i) {
        const StageDescriptors<C> stage(shared, consumer, pipeline.state.stage);
        pipeline.wait();
        start_products(sums, stage.a, stage.b);
        if (i > 0) scales.read(i - 1, scale);
        wgmma_wait_group<1>();
        warpgroup_fence_operand(previous);
        pipeline.release_previous();
        pipeline.advance();
        add_scaled(acc, previous, scale[0]);
    };
    const auto finish = [&](float(&sums)[GROUP / 2]) {
        scales.read(count - 1, scale);
        wgmma_wait_group<0>();
        warpgroup_fence_operand(sums);
        pipeline.release_previous();
        add_scaled(acc, sums, scale[0]);
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
                                                int count, const TileScales<C::BLOCK_N / GROUP>& tile_scales,
                                                ConsumerPipeline<C>& pipeline) {
    static_assert(C::BLOCK_N % GROUP == 0 && ROW_BYTES == GROUP, "");
    if constexpr (C::BLOCK_N == GROUP) {
        return multiply_in_turns<C>(acc, shared, consumer, first, count, tile_scales, pipeline);
    }
    constexpr int BLOCKS = C::BLOCK_N / GROUP;
    float sums[GROUP / 2] = {}, scale[BLOCKS][2];
    QuadScales<BLOCKS> scales(tile_scales, first, count);
    StageDescriptors<C> stage(shared, consumer, pipeline.state.stage);
    pipeline.wait();
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
#pragma unroll
        for (int j = 0; j < BLOCKS; ++j) {
            start_products(sums, stage.a, stage.b + (j * GROUP * ROW_BYTES >> 4));
            // Meanwhile: the scales, and after the last products of the stage the next stage.
            if (j == 0) scales.read(i, scale);
            if (j + 1 == BLOCKS) {
                pipeline.advance();
                stage = StageDescriptors<C>(shared, consumer, pipeline.state.stage);
                asm volatile("" : "+l"(stage.a), "+l"(stage.b));  // computed here, not before the next products
                if (i + 1 < count) pipeline.wait();
            }
            wgmma_wait_group<0>();
            warpgroup_fence_operand(sums);
            if (j + 1 == BLOCKS) pipeline.release_previous();
            add_scaled(acc + j * GROUP / 2, sums, scale[j]);
        }
    }
    pipeline.previous = -1;
}
