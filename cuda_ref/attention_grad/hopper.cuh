// Shared by the kernels of wgmma.cu: the problem, shared memory, the order of the work, and the kernels before and
// after the main one.
#pragma once

#include "attention_grad/parts.cuh"

constexpr int CONSUMERS = 2, BLOCK_N = CONSUMERS * 64, STAGES = 2;

struct GradMaps {
    CUtensorMap q, k, v, d_out;
};

struct Problem {
    int H, G, S_q, S_k, key_heads;  // G: query heads per part of a key head; key_heads = B H_kv parts
    int parts;                      // parts of the query heads of a key head; each has its own sums of dk and dv
    int tiles;                      // tiles of queries per head
    int together;                   // key heads that run at the same time, so that their data stays in the L2 cache
    float scale, scale_log2;        // sm_scale, and sm_scale * log2(e)
    float *lse, *delta;             // [B H][tiles][BLOCK_M]; lse to base 2
    float* dq_sums;                 // [B H][tiles][BLOCK_M * D], in the order of the registers that hold them
    float* part_sums;               // dk, then dv, each [key_heads][S_k][D]; unused with one part
    int* counters;                  // work taken; tiles of dq taken; blocks that have added to each tile
};

template <int D_>
struct Plan {
    static constexpr int D = D_, BLOCK_M = D == 64 ? 128 : 64;
    static constexpr int PRODUCER = CONSUMERS * WARPGROUP, THREADS = PRODUCER + WARPGROUP;
    static constexpr int PART_BYTES = 64 * D * 2, TILE_BYTES = BLOCK_M * D * 2, DS_BOX_BYTES = BLOCK_M * ROW_BYTES;
    static constexpr int DQ_BYTES = BLOCK_M * D * 4, ROW_NUMBERS_BYTES = BLOCK_M * 4;
    static constexpr int DQ_BUFFERS = D == 64 ? 1 : 2;  // as many as fit
    static constexpr bool ROUNDED = D == 64;  // ds is computed from the rounded p, because registers are short
    // Offsets in shared memory.
    static constexpr int KEYS = 0, VALUES = KEYS + CONSUMERS * PART_BYTES, Q = VALUES + CONSUMERS * PART_BYTES;
    static constexpr int D_OUT = Q + STAGES * TILE_BYTES, DS = D_OUT + STAGES * TILE_BYTES;
    static constexpr int DQ = DS + 2 * CONSUMERS * DS_BOX_BYTES, LSE = DQ + DQ_BUFFERS * DQ_BYTES;
    static constexpr int DELTA = LSE + STAGES * ROW_NUMBERS_BYTES, BARRIERS = DELTA + STAGES * ROW_NUMBERS_BYTES;
    static constexpr int K_FULL = BARRIERS, V_FULL = K_FULL + MBARRIER_BYTES, DS_FULL = V_FULL + MBARRIER_BYTES;
    static constexpr int DQ_FULL = DS_FULL + MBARRIER_BYTES, DQ_EMPTY = DQ_FULL + 2 * MBARRIER_BYTES;
    static constexpr int Q_FULL = DQ_EMPTY + 2 * MBARRIER_BYTES, D_OUT_FULL = Q_FULL + STAGES * MBARRIER_BYTES;
    static constexpr int EMPTY = D_OUT_FULL + STAGES * MBARRIER_BYTES, TICKET = EMPTY + STAGES * MBARRIER_BYTES;
    static constexpr int SHARED_BYTES = BOX_ALIGNMENT + TICKET + 16;
    static_assert(SHARED_BYTES <= MAX_SHARED_BYTES, "");
};

// The first tile of queries that sees any key from `key` on.
template <int BLOCK_M, bool CAUSAL>
__device__ __forceinline__ int first_tile(const Problem& problem, int key) {
    return CAUSAL ? max(key - (problem.S_k - problem.S_q), 0) / BLOCK_M : 0;
}

// The end of the tiles of queries that see any key of a block; 0 if none does. window: keys that a query sees.
template <int BLOCK_M, bool WINDOW>
__device__ __forceinline__ int end_tile(const Problem& problem, int block, int window) {
    if (!WINDOW) return problem.tiles;
    const int last = (block + 1) * BLOCK_N - 1 - (problem.S_k - problem.S_q) + window - 1;
    return last < 0 ? 0 : min(last / BLOCK_M + 1, problem.tiles);
}

// The first block of keys that any query of a tile sees.
template <int BLOCK_M, bool WINDOW>
__device__ __forceinline__ int first_block_of(const Problem& problem, int tile, int window) {
    return WINDOW ? max(tile * BLOCK_M + problem.S_k - problem.S_q - window + 1, 0) / BLOCK_N : 0;
}

struct Work {
    int block, head, batch;  // block of keys; part of a key head; its batch entry
    int first, end;          // tiles of queries; without a window the end is that of the problem
};

// Work number `ticket`. Groups of heads come one after the other. Within a group the first keys of all heads come
// first, since most queries see them under a causal mask, then the next ones.
template <int BLOCK_M, bool CAUSAL, bool WINDOW>
__device__ __forceinline__ Work work_at(const Problem& problem, int ticket, int window) {
    const int blocks = ceil_div(problem.S_k, BLOCK_N), heads_of_entry = problem.H / problem.G;
    const int first_head = ticket / (blocks * problem.together) * problem.together;
    const int within = ticket - first_head * blocks, heads = min(problem.together, problem.key_heads - first_head);
    const int head = first_head + within % heads, block = within / heads;
    return {block, head % heads_of_entry, head / heads_of_entry, first_tile<BLOCK_M, CAUSAL>(problem, block * BLOCK_N),
            end_tile<BLOCK_M, WINDOW>(problem, block, window)};
}

// Calls f(step, query head over all batch entries, tile) for all tiles of queries that see the block of keys, from the
// last to the first, for all heads of the group in turn.
template <bool WINDOW, typename F>
__device__ __forceinline__ void for_each_tile(const Problem& problem, const Work& work, F f) {
    const int first_head = work.batch * problem.H + work.head * problem.G;
    int step = 0;
#pragma unroll 1
    for (int tile = (WINDOW ? work.end : problem.tiles) - 1; tile >= work.first; --tile) {
#pragma unroll 1
        for (int head = first_head; head < first_head + problem.G; ++head, ++step) f(step, head, tile);
    }
}

// The end of the blocks of keys that any query of a tile sees; without a window they are the first blocks.
template <int BLOCK_M, bool CAUSAL>
__device__ __forceinline__ int blocks_seen(const Problem& problem, int tile) {
    const int seen = CAUSAL ? (tile + 1) * BLOCK_M + problem.S_k - problem.S_q : problem.S_k;
    return ceil_div(min(max(seen, 0), problem.S_k), BLOCK_N);
}

// One thread per tile. Queries beyond the last get an infinite lse, so that their p is 0.
template <typename P>
__global__ void prepare(const Problem problem, int tiles) {
    const int index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index < 2) problem.counters[index] = 0;
    if (index >= tiles) return;
    problem.counters[2 + index] = 0;
    for (int i = problem.S_q - index % problem.tiles * P::BLOCK_M; i < P::BLOCK_M; ++i) {
        problem.lse[int64_t(index) * P::BLOCK_M + i] = INF, problem.delta[int64_t(index) * P::BLOCK_M + i] = 0;
    }
}

// Rounds dq. A block takes a tile, and waits until all blocks of keys have added to it. This kernel starts before the
// main kernel has ended, on multiprocessors on which the main kernel has no more work.
template <typename T, typename P, bool CAUSAL, bool WINDOW>
__global__ void __launch_bounds__(CONSUMERS* WARPGROUP)
    finish(const Problem problem, T* __restrict__ dq, int tiles, int window) {
    __shared__ int ticket;
    const int part = threadIdx.x / WARPGROUP;
    for (;;) {
        if (threadIdx.x == 0) ticket = atomicAdd(problem.counters + 1, 1);
        __syncthreads();
        const int index = ticket, head = index / problem.tiles;
        if (index >= tiles) break;
        const int tile = problem.tiles - 1 - index % problem.tiles, at = head * problem.tiles + tile;
        const int seen = blocks_seen<P::BLOCK_M, CAUSAL>(problem, tile) -
                         first_block_of<P::BLOCK_M, WINDOW>(problem, tile, window);
        if (threadIdx.x == 0) {
            while (load_acquire(problem.counters + 2 + at) != seen) __nanosleep(100);
        }
        __syncthreads();
        const float4* const from = reinterpret_cast<const float4*>(problem.dq_sums) +
                                   (int64_t(at) * CONSUMERS + part) * (P::DQ_BYTES / CONSUMERS / 16) +
                                   threadIdx.x % WARPGROUP;
        float sums[32] = {};
        if (seen > 0) {
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const float4 x = __ldcg(from + i * WARPGROUP);
                sums[4 * i] = x.x * problem.scale, sums[4 * i + 1] = x.y * problem.scale;
                sums[4 * i + 2] = x.z * problem.scale, sums[4 * i + 3] = x.w * problem.scale;
            }
        }
        const int row = tile * P::BLOCK_M + (P::D == 64 ? part * 64 : 0), column = P::D == 64 ? 0 : part * 64;
        store_rows(dq + int64_t(head) * problem.S_q * P::D + column, P::D, sums, row, problem.S_q);
    }
    wait_for_earlier_kernel();  // so that kernels after this one find dk and dv complete too
}
