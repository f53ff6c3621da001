// The kernel of float8.cu that keeps keys: dk and dv.
#pragma once

#include "attention_grad/float8.cuh"
#include "attention_grad/parts.cuh"

template <int D_>
struct Float8KeyPlan {
    static constexpr int D = D_, STAGES = 4, NUMBERS_BYTES = TILE_ROWS * 4;
    // Offsets in shared memory.
    static constexpr int KEYS = 0, VALUES = KEPT_BYTES, Q = VALUES + KEPT_BYTES, D_OUT = Q + STAGES * BOX_BYTES;
    static constexpr int Q_TRANSPOSED = D_OUT + STAGES * BOX_BYTES;
    static constexpr int D_OUT_TRANSPOSED = Q_TRANSPOSED + STAGES * BOX_BYTES;
    static constexpr int LSE = D_OUT_TRANSPOSED + STAGES * BOX_BYTES, DELTA = LSE + STAGES * NUMBERS_BYTES;
    static constexpr int KEPT_FULL = DELTA + STAGES * NUMBERS_BYTES, FULL = KEPT_FULL + MBARRIER_BYTES;
    static constexpr int EMPTY = FULL + STAGES * MBARRIER_BYTES;
    static constexpr int SHARED_BYTES = BOX_ALIGNMENT + EMPTY + STAGES * MBARRIER_BYTES;
    static_assert(SHARED_BYTES <= MAX_SHARED_BYTES, "");
};

// The keys of a block, and the queries that see any of them: tiles of some heads.
struct KeyWork {
    int part, batch, key_head, first_key;  // part: of the heads of all batch entries; key_head: within its entry
    int first_head, heads;                 // query heads, within the batch entry
    int first, tiles;                      // first tile of queries; tiles of a head
};

template <bool CAUSAL>
__device__ __forceinline__ KeyWork key_work(const Heads& heads, int parts, int index) {
    const int of_entry = heads.H / heads.G * parts, together = heads.G / parts;
    const Place at = place_at<CAUSAL>(index, heads.count / together, ceil_div(heads.S_k, KEPT), TOGETHER);
    const int first_query = CAUSAL ? max(at.row * KEPT - (heads.S_k - heads.S_q), 0) : 0;
    const int of_batch = at.head % of_entry;
    return {at.head, at.head / of_entry, of_batch / parts, at.row * KEPT, of_batch * together, together,
            first_query / TILE_ROWS, ceil_div(heads.S_q, TILE_ROWS)};
}

// One thread loads the keys and values of the block, then tiles of queries: from the first to the last, those of all
// heads in turn.
template <typename P>
__device__ __forceinline__ void load_of_keys(const GradMaps& maps, const Heads& heads, const Operands& operands,
                                             const KeyWork& work, uint32_t shared) {
    mbarrier_arrive_expect_tx(shared + P::KEPT_FULL, 2 * KEPT_BYTES);
    load_rows_of<KEPT>(shared + P::KEYS, &maps.k, work.first_key, work.key_head, work.batch, shared + P::KEPT_FULL);
    load_rows_of<KEPT>(shared + P::VALUES, &maps.v, work.first_key, work.key_head, work.batch, shared + P::KEPT_FULL);
    PipelineState<P::STAGES> at;
#pragma unroll 1
    for (int tile = work.first; tile < work.tiles; ++tile) {
#pragma unroll 1
        for (int head = work.first_head; head < work.first_head + work.heads; ++head, at.advance()) {
            const int64_t row = int64_t(work.batch * heads.H + head) * heads.padded + tile * TILE_ROWS;
            const int64_t transposed = row / TILE_ROWS * BOX_BYTES;
            const uint32_t full = shared + P::FULL + at.stage * MBARRIER_BYTES;
            mbarrier_wait_parity(shared + P::EMPTY + at.stage * MBARRIER_BYTES, at.phase ^ 1);
            mbarrier_arrive_expect_tx(full, 4 * BOX_BYTES + 2 * P::NUMBERS_BYTES);
            load_rows_of<TILE_ROWS>(shared + P::Q + at.stage * BOX_BYTES, &maps.q, tile * TILE_ROWS, head,
                                     work.batch, full);
            bulk_load(shared + P::LSE + at.stage * P::NUMBERS_BYTES, heads.lse + row, P::NUMBERS_BYTES, full);
            load_rows_of<TILE_ROWS>(shared + P::D_OUT + at.stage * BOX_BYTES, &maps.d_out, tile * TILE_ROWS, head,
                                     work.batch, full);
            bulk_load(shared + P::DELTA + at.stage * P::NUMBERS_BYTES, heads.delta + row, P::NUMBERS_BYTES, full);
            bulk_load(shared + P::D_OUT_TRANSPOSED + at.stage * BOX_BYTES, operands.d_out_transposed + transposed,
                      BOX_BYTES, full);
            bulk_load(shared + P::Q_TRANSPOSED + at.stage * BOX_BYTES, operands.q_transposed + transposed, BOX_BYTES,
                      full);
        }
    }
}

// The largest limit of |ds| of all queries of the block, so that one factor serves all its sums.
template <typename P>
__device__ __forceinline__ float limit_of_keys(const Heads& heads, const Operands& operands, const KeyWork& work) {
    const int first = work.first * TILE_ROWS / GROUP, count = heads.padded / GROUP;
    float limit = LEAST;
    for (int head = work.first_head; head < work.first_head + work.heads; ++head) {
        const float* const limits = operands.limits + int64_t(work.batch * heads.H + head) * count;
        for (int i = first + threadIdx.x % 32; i < count; i += 32) limit = fmaxf(limit, limits[i]);
    }
    for (int lanes = 1; lanes < 32; lanes *= 2) limit = fmaxf(limit, __shfl_xor_sync(0xffffffffu, limit, lanes));
    return limit;
}

// The numbers of the queries of a thread's columns, in shared memory: two of each eight columns.
__device__ __forceinline__ float2 of_columns(uint32_t numbers, int i) {
    return load_shared_pair(numbers + (8 * i + threadIdx.x % 4 * 2) * 4);
}

// acc (+)= a b^T for 64 columns of the result at a time. b: a tile of `transpose`.
template <typename P>
__device__ __forceinline__ void add_products(float (&acc)[P::D / 64][32], const uint32_t (&a)[TILE_ROWS / 8],
                                             uint32_t b, int add) {
#pragma unroll
    for (int i = 0; i < P::D / 64; ++i) add_product(acc[i], a, b + i * 64, add);
}

// Stores 64 rows of dk or dv, times `unit`: the results, or the sums of a part.
template <typename P, typename Store>
__device__ __forceinline__ void store_scaled(float (&acc)[P::D / 64][32], float unit, Store store) {
#pragma unroll
    for (int i = 0; i < P::D / 64; ++i) {
#pragma unroll
        for (int j = 0; j < 32; ++j) acc[i][j] *= unit;
        store(i * 64, acc[i]);
    }
}

// Computes dk and dv of 64 keys. Scores and dp are transposed, one key per row, so that p^T and ds^T are left operands
// of the products with d_out and q without leaving their thread. The tensor cores compute these products during
// the exponentials of the next tile.
template <typename P, bool CAUSAL>
__device__ __forceinline__ void find_dk_dv(const Heads& heads, const Operands& operands, const KeyWork& work,
                                           uint32_t shared, int consumer, __nv_bfloat16* __restrict__ dk,
                                           __nv_bfloat16* __restrict__ dv) {
    constexpr int COUNT = TILE_ROWS / 2;
    const int thread = threadIdx.x % WARPGROUP, row = work.first_key + consumer * 64;
    const int later = heads.S_k - heads.S_q, first_key = row + thread / 32 * 16 + thread % 32 / 4;
    const uint32_t keys = shared + P::KEYS + consumer * BOX_BYTES, values = shared + P::VALUES + consumer * BOX_BYTES;
    const float scale = exponent_scale(heads), hidden = scale < 0 ? INF : -INF;
    const float limit = limit_of_keys<P>(heads, operands, work), factor = 1 / limit;
    float scores[COUNT], dp[COUNT], dk_sums[P::D / 64][32], dv_sums[P::D / 64][32];
    uint32_t weights[TILE_ROWS / 8], gradients[TILE_ROWS / 8];
    const Turns<InTurns> turns{consumer};
    PipelineState<P::STAGES> at;
    int tile = work.first, in_group = 0;
    auto start = [&] {
        mbarrier_wait_parity(shared + P::FULL + at.stage * MBARRIER_BYTES, at.phase);
        turns.take();
        wgmma_fence();
        multiply_rows<P::D>(scores, keys, shared + P::Q + at.stage * BOX_BYTES);
        wgmma_commit_group();
        multiply_rows<P::D>(dp, values, shared + P::D_OUT + at.stage * BOX_BYTES);
        wgmma_commit_group();
    };
    auto multiply = [&](int stage, int add) {
        wgmma_fence();
        add_products<P>(dv_sums, weights, shared + P::D_OUT_TRANSPOSED + stage * BOX_BYTES, add);
        wgmma_commit_group();
        add_products<P>(dk_sums, gradients, shared + P::Q_TRANSPOSED + stage * BOX_BYTES, add);
        wgmma_commit_group();
    };
    // Scores and dp -> p and ds, before they are rounded. LATER: groups of products that started after theirs.
    auto weigh = [&](auto later_groups) {
        constexpr int LATER = decltype(later_groups)::value;
        wgmma_wait_group<LATER + 1>();
        warpgroup_fence_operand(scores);
        const int query = tile * TILE_ROWS;
        if (CAUSAL && query < row + 63 - later) {
#pragma unroll
            for (int i = 0; i < COUNT; ++i) {
                const int key = first_key + i / 2 % 2 * 8, column = query + i / 4 * 8 + thread % 4 * 2 + i % 2;
                if (column < key - later) scores[i] = hidden;
            }
        }
#pragma unroll
        for (int i = 0; i < COUNT; i += 4) {
            const float2 lse = of_columns(shared + P::LSE + at.stage * P::NUMBERS_BYTES, i / 4);
            scores[i] = exp2_approximate(fmaf(scores[i], scale, -lse.x));
            scores[i + 1] = exp2_approximate(fmaf(scores[i + 1], scale, -lse.y));
            scores[i + 2] = exp2_approximate(fmaf(scores[i + 2], scale, -lse.x));
            scores[i + 3] = exp2_approximate(fmaf(scores[i + 3], scale, -lse.y));
        }
        wgmma_wait_group<LATER>();
        warpgroup_fence_operand(dp);
#pragma unroll
        for (int i = 0; i < COUNT; i += 4) {
            float2 delta = of_columns(shared + P::DELTA + at.stage * P::NUMBERS_BYTES, i / 4);
            delta.x *= factor, delta.y *= factor;
            dp[i] = scores[i] * fmaf(dp[i], factor, -delta.x);
            dp[i + 1] = scores[i + 1] * fmaf(dp[i + 1], factor, -delta.y);
            dp[i + 2] = scores[i + 2] * fmaf(dp[i + 2], factor, -delta.x);
            dp[i + 3] = scores[i + 3] * fmaf(dp[i + 3], factor, -delta.y);
        }
        if (++in_group == work.heads) in_group = 0, ++tile;
    };
    auto round = [&] {
        round_to_operand(weights, scores);
        round_to_operand(gradients, dp);
    };
    auto end = [&] {
        wgmma_wait_group<0>();
        warpgroup_fence_operand(weights);
        warpgroup_fence_operand(gradients);
#pragma unroll
        for (int i = 0; i < P::D / 64; ++i) {
            warpgroup_fence_operand(dk_sums[i]);
            warpgroup_fence_operand(dv_sums[i]);
        }
    };
    if (consumer == CONSUMERS - 1) turns.pass();  // consumer 0 has the first turn
    mbarrier_wait_parity(shared + P::KEPT_FULL, 0);
    start();
    turns.pass();
    weigh(std::integral_constant<int, 0>());
    round();
    int add = 0;
#pragma unroll 1
    for (int steps = work.heads * (work.tiles - work.first); steps > 1; --steps, add = 1) {  // the last queries see all keys
        const int before = at.stage;
        at.advance();
        start();
        multiply(before, add);
        turns.pass();
        weigh(std::integral_constant<int, 2>());
        end();
        if (thread == 0) mbarrier_arrive(shared + P::EMPTY + before * MBARRIER_BYTES);
        round();
    }
    multiply(at.stage, add);
    end();
    const float unit = *operands.scale_d_out / FILLED;
    const float dk_unit = operands.scale * limit * *heads.scale_q * *heads.scale_v * unit;
    const int64_t before = int64_t(work.part) * heads.S_k * P::D;
    auto store = [&](__nv_bfloat16* results, float* sums, float(&acc)[P::D / 64][32], float factor) {
        store_scaled<P>(acc, factor, [&](int column, const float(&x)[32]) {
            if (operands.parts == 1) {
                store_rows(results + before + column, P::D, x, row, heads.S_k);
            } else {
                store_sums(sums + before + column, P::D, x, row, heads.S_k);
            }
        });
    };
    const int64_t all = int64_t(heads.count / work.heads) * heads.S_k * P::D;
    store(dk, operands.part_sums, dk_sums, dk_unit);
    store(dv, operands.part_sums + all, dv_sums, unit);
}

template <typename P, bool CAUSAL>
__global__ void __launch_bounds__(THREADS, 1)
    float8_dk_dv(const __grid_constant__ GradMaps maps, const __grid_constant__ Heads heads,
                 const __grid_constant__ Operands operands, __nv_bfloat16* __restrict__ dk,
                 __nv_bfloat16* __restrict__ dv) {
    extern __shared__ char raw[];
    const uint32_t shared = shared_address(raw) + (-shared_address(raw) & (BOX_ALIGNMENT - 1));
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP, 0);  // warp-uniform for the compiler
    if (threadIdx.x == PRODUCER) {
        tma_prefetch_descriptor(&maps.q);
        tma_prefetch_descriptor(&maps.k);
        tma_prefetch_descriptor(&maps.v);
        tma_prefetch_descriptor(&maps.d_out);
        mbarrier_init(shared + P::KEPT_FULL, 1);
        for (int i = 0; i < P::STAGES; ++i) {
            mbarrier_init(shared + P::FULL + i * MBARRIER_BYTES, 1);
            mbarrier_init(shared + P::EMPTY + i * MBARRIER_BYTES, CONSUMERS);
        }
        mbarrier_fence_init();
    }
    __syncthreads();  // the barriers are initialized
    const KeyWork work = key_work<CAUSAL>(heads, operands.parts, blockIdx.x);
    if (warpgroup == CONSUMERS) {
        setmaxnreg_dec<24>();
        if (threadIdx.x == PRODUCER) load_of_keys<P>(maps, heads, operands, work, shared);
    } else {
        setmaxnreg_inc<240>();
        find_dk_dv<P, CAUSAL>(heads, operands, work, shared, warpgroup, dk, dv);
    }
}
