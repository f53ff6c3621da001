// The products of wgmma.cuh: a consumer warpgroup adds the products of successive stages to its sums, and releases each
// stage when wgmma has read it.
#pragma once

#include "hopper/epilogue.cuh"
#include "hopper/persistent.cuh"
#include "hopper/wgmma.cuh"

// The consumers' side of the ring of stages.
template <typename C>
struct ConsumerPipeline {
    uint32_t full, empty_to_signal;  // addresses of the first barriers; for the second see empty_barriers_to_signal
    PipelineState<C::STAGES> state;
    int previous;  // stage that wgmma may still be reading; -1 if there is none

    __device__ __forceinline__ void wait() const {
        mbarrier_wait_parity(full + state.stage * MBARRIER_BYTES, state.phase);
    }

    // Called when all products but those of the current stage have ended.
    __device__ __forceinline__ void release_previous() const {
        if (empty_to_signal == 0 || previous < 0) return;
        signal_empty<C>(empty_to_signal + previous * MBARRIER_BYTES);
    }

    __device__ __forceinline__ void advance() {
        previous = state.stage;
        state.advance();
    }
};

// acc += the products of the next `count` stages.
template <typename T, bool A_MN, bool B_MN, typename C>
__device__ __forceinline__ void multiply(float (&acc)[C::BLOCK_N / 2], uint32_t shared, int consumer, int count,
                                         ConsumerPipeline<C>& pipeline) {
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
        const uint32_t tile = shared + pipeline.state.stage * C::STAGE_BYTES;
        const uint64_t a = wgmma_descriptor(tile + consumer * BOX_BYTES, BOX_BYTES);
        const uint64_t b = wgmma_descriptor(tile + C::A_BYTES, BOX_BYTES);
        pipeline.wait();
        wgmma_fence();
        wgmma_stage<T, A_MN, B_MN>(acc, a, b);
        wgmma_commit_group();
        wgmma_wait_group<1>();
        pipeline.release_previous();
        pipeline.advance();
    }
    wgmma_wait_group<0>();
    warpgroup_fence_operand(acc);
    pipeline.release_previous();
    pipeline.previous = -1;
}

// `multiply` in float8, `promoted`. The 128 products of a stage are summed from zero, for 128 columns at a time: no
// more fit in registers. While this warpgroup adds these sums to acc, the tensor cores work for the other one.
template <typename C>
__device__ __forceinline__ void multiply_promoted(float (&acc)[C::BLOCK_N / 2], uint32_t shared, int consumer,
                                                  int count, ConsumerPipeline<C>& pipeline) {
    static_assert(C::BLOCK_N % 128 == 0, "");
    float sums[64] = {};
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
        const uint32_t tile = shared + pipeline.state.stage * C::STAGE_BYTES;
        const uint64_t a = wgmma_descriptor(tile + consumer * BOX_BYTES, 0);
        pipeline.wait();
#pragma unroll
        for (int j = 0; j < C::BLOCK_N / 2; j += 64) {
            const uint64_t b = wgmma_descriptor(tile + C::A_BYTES + j * 2 * ROW_BYTES, 0);
            wgmma_fence();
            wgmma<Float8, false, false, false>(sums, a, b);
#pragma unroll
            for (int part = 1; part < 4; ++part) {
                wgmma<Float8, false, false>(sums, a + part * K_MAJOR_STEP, b + part * K_MAJOR_STEP);
            }
            wgmma_commit_group();
            wgmma_wait_group<0>();
            warpgroup_fence_operand(sums);
            if (j + 64 == C::BLOCK_N / 2) {
                pipeline.advance();
                pipeline.release_previous();
            }
#pragma unroll
            for (int c = 0; c < 64; ++c) acc[j + c] += sums[c];
        }
    }
    pipeline.previous = -1;
}

// `multiply` in tf32 with an MN-major a: threads read its elements, and wgmma takes them from registers. Row r of the
// product is row permuted_row(r) of the tile, which avoids bank conflicts.
template <typename C>
__device__ __forceinline__ void multiply_from_registers(float (&acc)[C::BLOCK_N / 2], uint32_t shared,
                                                        const char* stages, int consumer, int thread, int count,
                                                        ConsumerPipeline<C>& pipeline) {
    uint32_t even[16], odd[16];  // fragments for the four products of the current and of the previous stage
    int offset[4];               // offsets of a fragment's elements in the stage; each product is 8 rows further
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int row = permuted_row(thread / 32 * 16 + thread % 32 / 4 + i % 2 * 8), k = thread % 4 + i / 2 * 4;
        const int box = consumer * BOX_BYTES + row / 32 * 32 * ROW_BYTES;
        offset[i] = box + k * ROW_BYTES + (row % 32 / 4 ^ k) * 16 + row % 4 * 4;
    }
    auto step = [&](uint32_t(&current)[16], uint32_t(&previous)[16]) {
        const int tile = pipeline.state.stage * C::STAGE_BYTES;
        const uint64_t b = wgmma_descriptor(shared + tile + C::A_BYTES, 0);
        pipeline.wait();
#pragma unroll
        for (int j = 0; j < 16; ++j) {
            current[j] = *reinterpret_cast<const uint32_t*>(stages + tile + offset[j % 4] + j / 4 * 8 * ROW_BYTES);
        }
        wgmma_fence();
#pragma unroll
        for (int part = 0; part < 4; ++part) wgmma(acc, current + part * 4, b + part * K_MAJOR_STEP);
        wgmma_commit_group();
        wgmma_wait_group<1>();
        warpgroup_fence_operand(previous);
        pipeline.release_previous();
        pipeline.advance();
    };
#pragma unroll 1
    for (int i = 0; i + 1 < count; i += 2) {
        step(even, odd);
        step(odd, even);
    }
    if (count % 2) step(even, odd);
    wgmma_wait_group<0>();
    warpgroup_fence_operand(acc);
    warpgroup_fence_operand(even);
    pipeline.release_previous();
    pipeline.previous = -1;
}
