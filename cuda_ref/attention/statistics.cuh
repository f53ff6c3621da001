// Statistics that wgmma.cu stores for gradients instead of its output, and results of queries that see no key.
#pragma once

#include "attention/hopper.cuh"

// Address of the i-th group of 8 columns of d_out that a thread loads, alternating between its first and second row.
template <typename T>
__device__ __forceinline__ const T* d_out_at(const Heads& heads, const Tile& tile, int query, int i) {
    const HeadStrides& strides = heads.d_out_strides;
    const int row = min(query + i % 2 * 8, heads.S_q - 1), column = (i / 2 * 4 + threadIdx.x % 4) * 8;
    return static_cast<const T*>(heads.d_out) + tile.batch * strides.batch + tile.head * strides.head +
           row * strides.row + column;
}

template <typename T, int D>
__device__ __forceinline__ void prefetch_d_out(const Heads& heads, const Tile& tile, int query) {
#pragma unroll
    for (int i = 0; i < D / 16; ++i) prefetch_l2(d_out_at<T>(heads, tile, query, i));
}

// Stores lse and delta of a thread's rows, after `normalize` has added up their sums. A query that sees no key gets an
// infinite lse, which makes its weights 0.
template <typename T, bool CAUSAL, bool SLACK, int COUNT>
__device__ __forceinline__ void store_statistics(const Heads& heads, const Softmax<SLACK>& softmax,
                                                 const float (&acc)[COUNT], const Tile& tile, int query) {
    const int64_t head = (int64_t(tile.batch) * heads.H + tile.head) * heads.padded;
    float delta[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < COUNT / 8; ++i) {
        const uint4 d_out = *reinterpret_cast<const uint4*>(d_out_at<T>(heads, tile, query, i));
        uint32_t pairs[] = {d_out.x, d_out.y, d_out.z, d_out.w};
        transpose_in_quad(pairs, threadIdx.x % 4);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const int at = (i / 2 * 4 + c) * 4 + i % 2 * 2;
            float low, high;
            unpack<T>(low, high, pairs[c]);
            delta[i % 2] = fmaf(acc[at], low, fmaf(acc[at + 1], high, delta[i % 2]));
        }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        delta[r] += __shfl_xor_sync(0xffffffffu, delta[r], 1);
        delta[r] += __shfl_xor_sync(0xffffffffu, delta[r], 2);
        const int row = query + 8 * r;
        const bool blind = CAUSAL && row + heads.S_k - heads.S_q < 0;
        if (threadIdx.x % 4 == 0 && row < heads.S_q) {
            heads.lse[head + row] = blind ? INF : fmaf(softmax.maximum[r], heads.scale_log2, log2f(softmax.sum[r]));
            heads.delta[head + row] = blind ? 0.0f : delta[r];
        }
    }
}

// Stores the results of rows that the schedule leaves out: zeros, or their statistics. Called by the block's last warp.
template <typename T, int D, typename Schedule>
__device__ __forceinline__ void store_blind_rows(const Heads& heads, T* __restrict__ out, const Schedule& schedule) {
    const int lane = threadIdx.x % 32;
    const int each = schedule.blind_rows * Schedule::BLOCK_M / 64;  // groups of 64 rows per head
    for (int index = blockIdx.x; index < each * heads.count; index += gridDim.x) {
        const int head = index / each, row = index % each * 64;
        if (D <= 128 && heads.d_out != nullptr) {
            for (int i = lane; i < 64; i += 32) {
                heads.lse[int64_t(head) * heads.padded + row + i] = INF;
                heads.delta[int64_t(head) * heads.padded + row + i] = 0;
            }
            continue;
        }
        T* const rows = out + head / heads.H * heads.out_strides.batch + head % heads.H * heads.out_strides.head +
                        row * heads.out_strides.row;
        for (int i = lane; i < 64 * D / 8; i += 32) {
            *reinterpret_cast<uint4*>(rows + i / (D / 8) * heads.out_strides.row + i % (D / 8) * 8) = {};
        }
    }
}
