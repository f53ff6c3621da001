// The problem of the attention kernels for Hopper: heads, tiles of queries, and masks of a thread's sums of wgmma.
#pragma once

#include "hopper/tma.cuh"

constexpr float INF = INFINITY;

struct HeadStrides {  // in elements; rows are contiguous
    int64_t batch, head, row;
};

struct HeadMaps {
    CUtensorMap q, k, v;
};

struct Heads {
    int H, G, S_q, S_k, count;  // G query heads for each key head; count = B H
    float scale_log2;           // sm_scale * log2(e)
    const void *q, *k, *v;
    HeadStrides q_strides, k_strides, v_strides, out_strides;
    // Statistics, stored instead of the output if there is a `d_out`. lse: base-2 logarithm of a query's sum of
    // exponentials. delta: a query's sum of d_out * o. Each head has `padded` numbers in both.
    float *lse = nullptr, *delta = nullptr;
    int padded = 0;
    int window = 0;  // keys that a query sees up to its own, in kernels with a WINDOW
    const void* d_out = nullptr;
    HeadStrides d_out_strides = {};
    const float *scale_q = nullptr, *scale_k = nullptr, *scale_v = nullptr;  // of float8 operands
};

struct Tile {
    int batch, head, first_query;
    int blocks;    // blocks of keys that any of its queries sees, at least one; 0 marks an empty slot
    int unmasked;  // blocks of keys that all of its queries see
};

// The tile of queries from row * BLOCK_M on, of a head counted over all batch entries.
template <int BLOCK_M, int BLOCK_N, bool CAUSAL>
__device__ __forceinline__ Tile tile_at(const Heads& heads, int head, int row) {
    Tile tile = {head / heads.H, head % heads.H, row * BLOCK_M, ceil_div(heads.S_k, BLOCK_N), heads.S_k / BLOCK_N};
    if constexpr (CAUSAL) {
        const int later = heads.S_k - heads.S_q, end = min(tile.first_query + BLOCK_M, heads.S_q) + later;
        tile.blocks = max(ceil_div(end, BLOCK_N), 1);
        tile.unmasked = min(max(tile.first_query + 1 + later, 0), heads.S_k) / BLOCK_N;
    }
    return tile;
}

// With a window: the first block of keys that any query of a tile sees.
template <int BLOCK_N>
__device__ __forceinline__ int first_block(const Heads& heads, int first_query) {
    return max(first_query + heads.S_k - heads.S_q - heads.window + 1, 0) / BLOCK_N;
}

// With a window: the first block of keys that begins within the windows of all queries of a tile.
template <int BLOCK_N>
__device__ __forceinline__ int inner_block(const Heads& heads, int last_query) {
    return ceil_div(max(last_query + heads.S_k - heads.S_q - heads.window + 1, 0), BLOCK_N);
}

// Sets the scores of columns after last[r], counted from this thread's first column, to minus infinity.
template <int COUNT>
__device__ __forceinline__ void hide(float (&scores)[COUNT], const int (&last)[2]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        if (i / 4 * 8 + i % 2 > last[i / 2 % 2]) scores[i] = -INF;
    }
}

// Sets the scores of columns up to unseen[r], counted as `hide` counts them, to minus infinity.
template <int COUNT>
__device__ __forceinline__ void hide_up_to(float (&scores)[COUNT], const int (&unseen)[2]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        if (i / 4 * 8 + i % 2 <= unseen[i / 2 % 2]) scores[i] = -INF;
    }
}

// Masks a block of keys, for a thread whose rows are `query` and `query` + 8.
template <int BLOCK_N, bool CAUSAL, bool WINDOW = false, int COUNT>
__device__ __forceinline__ void hide_after(float (&scores)[COUNT], const Heads& heads, int query, int block,
                                           int thread) {
    const int begin = block * BLOCK_N + thread % 4 * 2, later = heads.S_k - heads.S_q, last = heads.S_k - 1;
    const int visible[] = {(CAUSAL ? min(query + later, last) : last) - begin,
                           (CAUSAL ? min(query + 8 + later, last) : last) - begin};
    hide(scores, visible);
    if constexpr (WINDOW) {
        const int unseen[] = {query + later - heads.window - begin, query + 8 + later - heads.window - begin};
        hide_up_to(scores, unseen);
    }
}
