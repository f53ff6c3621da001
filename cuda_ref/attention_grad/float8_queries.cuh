// The kernels of float8.cu that keep queries: their statistics, and dq.
#pragma once

#include "attention_grad/float8.cuh"

// GRADIENTS: also loads transposed keys, for dq.
template <int D_, bool GRADIENTS_>
struct Float8QueryPlan {
    static constexpr int D = D_, STAGES = 3;
    static constexpr bool GRADIENTS = GRADIENTS_;
    static constexpr int TRANSPOSED_BYTES = GRADIENTS ? D * ROW_BYTES : 0;
    // Offsets in shared memory.
    static constexpr int Q = 0, D_OUT = KEPT_BYTES, KEYS = D_OUT + KEPT_BYTES, VALUES = KEYS + STAGES * KEPT_BYTES;
    static constexpr int TRANSPOSED = VALUES + STAGES * KEPT_BYTES, BARRIERS = TRANSPOSED + STAGES * TRANSPOSED_BYTES;
    static constexpr int Q_FULL = BARRIERS, Q_EMPTY = Q_FULL + MBARRIER_BYTES, FULL = Q_EMPTY + MBARRIER_BYTES;
    static constexpr int EMPTY = FULL + STAGES * MBARRIER_BYTES, TILES = EMPTY + STAGES * MBARRIER_BYTES;
    static constexpr int SHARED_BYTES = BOX_ALIGNMENT + TILES + 2 * int(sizeof(Tile));  // current and next tile
    static_assert(SHARED_BYTES <= MAX_SHARED_BYTES, "");
};

// The tile that a block computes in turn number `turn`; one without blocks of keys is after the last.
template <bool CAUSAL>
__device__ __forceinline__ Tile query_tile(const Heads& heads, int turn) {
    const int index = turn * gridDim.x + blockIdx.x, rows = heads.padded / KEPT;
    if (index >= heads.count * rows) return {};
    const Place at = place_at<CAUSAL>(index, heads.count, rows, TOGETHER * heads.G);
    return tile_at<KEPT, KEPT, CAUSAL>(heads, at.head, CAUSAL ? rows - 1 - at.row : at.row);
}

// One thread loads the first keys of a tile before its queries, whose place is free later.
template <typename P, bool CAUSAL>
__device__ __forceinline__ void load_of_queries(const GradMaps& maps, const Heads& heads, const Operands& operands,
                                                uint32_t shared, Tile* tiles) {
    PipelineState<P::STAGES> at;
    for (int turn = 0;; ++turn) {
        const Tile tile = query_tile<CAUSAL>(heads, turn);
        const int key_head = tile.head / heads.G;
        auto load_block = [&](int block) {
            const uint32_t full = shared + P::FULL + at.stage * MBARRIER_BYTES;
            mbarrier_wait_parity(shared + P::EMPTY + at.stage * MBARRIER_BYTES, at.phase ^ 1);
            mbarrier_arrive_expect_tx(full, 2 * KEPT_BYTES + P::TRANSPOSED_BYTES);
            load_rows_of<KEPT>(shared + P::KEYS + at.stage * KEPT_BYTES, &maps.k, block * KEPT, key_head, tile.batch,
                               full);
            load_rows_of<KEPT>(shared + P::VALUES + at.stage * KEPT_BYTES, &maps.v, block * KEPT, key_head, tile.batch,
                               full);
            if constexpr (P::GRADIENTS) {
                const int64_t head = int64_t(tile.batch) * (heads.H / heads.G) + key_head;
                const int64_t before = (head * ceil_div(heads.S_k, KEPT) + block) * (KEPT * P::D);
                bulk_load(shared + P::TRANSPOSED + at.stage * P::TRANSPOSED_BYTES, operands.k_transposed + before,
                          P::TRANSPOSED_BYTES, full);
            }
            at.advance();
        };
        if (tile.blocks > 0) load_block(tile.blocks - 1);
        mbarrier_wait_parity(shared + P::Q_EMPTY, turn % 2 ^ 1);
        tiles[turn % 2] = tile;
        if (tile.blocks == 0) {
            mbarrier_arrive(shared + P::Q_FULL);
            return;
        }
        mbarrier_arrive_expect_tx(shared + P::Q_FULL, 2 * KEPT_BYTES);
        load_rows_of<KEPT>(shared + P::Q, &maps.q, tile.first_query, tile.head, tile.batch, shared + P::Q_FULL);
        load_rows_of<KEPT>(shared + P::D_OUT, &maps.d_out, tile.first_query, tile.head, tile.batch, shared + P::Q_FULL);
#pragma unroll 1
        for (int block = tile.blocks - 2; block >= 0; --block) load_block(block);
    }
}

// Products of a consumer's queries with blocks of keys, and the barriers between them.
template <typename P>
struct Steps {
    uint32_t shared, q, d_out;  // q, d_out: of the consumer's queries
    Turns<InTurns> turns;
    PipelineState<P::STAGES> at = {};

    __device__ __forceinline__ Steps(uint32_t shared, int consumer)
        : shared(shared),
          q(shared + P::Q + consumer * BOX_BYTES),
          d_out(shared + P::D_OUT + consumer * BOX_BYTES),
          turns{consumer} {
        if (consumer == CONSUMERS - 1) turns.pass();  // consumer 0 has the first turn
    }

    // Takes the turn, and starts two groups of products with the keys and values at `at`.
    __device__ __forceinline__ void start(float (&scores)[KEPT / 2], float (&dp)[KEPT / 2]) const {
        mbarrier_wait_parity(shared + P::FULL + at.stage * MBARRIER_BYTES, at.phase);
        turns.take();
        wgmma_fence();
        multiply_rows<P::D>(scores, q, shared + P::KEYS + at.stage * KEPT_BYTES);
        wgmma_commit_group();
        multiply_rows<P::D>(dp, d_out, shared + P::VALUES + at.stage * KEPT_BYTES);
        wgmma_commit_group();
    }

    // ptxas moves a wait for products up to the beginning of its basic block. Another wait, for a phase that has ended,
    // ends the block after `x` has been computed.
    template <int COUNT>
    __device__ __forceinline__ void end_block(float (&x)[COUNT]) const {
        warpgroup_fence_operand(x);
        mbarrier_wait_parity(shared + P::FULL + at.stage * MBARRIER_BYTES, at.phase);
    }

    __device__ __forceinline__ void release(int stage) const {
        if (threadIdx.x % WARPGROUP == 0) mbarrier_arrive(shared + P::EMPTY + stage * MBARRIER_BYTES);
    }
    __device__ __forceinline__ void release_queries() const {
        if (threadIdx.x % WARPGROUP == 0) mbarrier_arrive(shared + P::Q_EMPTY);
    }
};

// Computes lse, less LOG2_FILLED, delta, and a limit of |ds| for each 16 queries. delta is the sum of p dp, which needs
// no product with the values. |ds| = p |dp - delta| is at most p (1 - p) times twice the largest |dp|. Hidden keys of
// loaded blocks count for the latter.
template <typename P, bool CAUSAL>
__device__ __forceinline__ void find_statistics(const Heads& heads, const Operands& operands, char* aligned,
                                                const Tile* tiles, int consumer) {
    const int thread = threadIdx.x % WARPGROUP;
    const float signed_scale = exponent_scale(heads), scale = fabsf(signed_scale);
    Steps<P> steps(shared_address(aligned), consumer);
    float scores[KEPT / 2], dp[KEPT / 2];
    for (int turn = 0;; ++turn) {
        mbarrier_wait_parity(steps.shared + P::Q_FULL, turn % 2);
        const Tile tile = tiles[turn % 2];
        if (tile.blocks == 0) break;
        const int query = tile.first_query + consumer * 64 + thread / 32 * 16 + thread % 32 / 4;
        Softmax<false> softmax;
        float weighted[2] = {0, 0}, largest[2] = {0, 0};  // sum of weights dp; largest |dp|
#pragma unroll 1
        for (int block = tile.blocks - 1; block >= 0; --block) {
            steps.start(scores, dp);
            steps.turns.pass();
            wgmma_wait_group<1>();
            warpgroup_fence_operand(scores);
            if (signed_scale < 0) negate(scores);
            if (block >= tile.unmasked) hide_after<KEPT, CAUSAL>(scores, heads, query, block, thread);
            softmax.weigh(scores, scale);
            steps.end_block(scores);
            wgmma_wait_group<0>();
            warpgroup_fence_operand(dp);
            steps.release(steps.at.stage);
            steps.at.advance();
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                float part = 0;
#pragma unroll
                for (int i = 2 * r; i < KEPT / 2; i += 4) {
                    part = fmaf(scores[i], dp[i], fmaf(scores[i + 1], dp[i + 1], part));
                    largest[r] = fmaxf(largest[r], fmaxf(fabsf(dp[i]), fabsf(dp[i + 1])));
                }
                weighted[r] = fmaf(weighted[r], softmax.factor[r], part);
            }
        }
        steps.release_queries();
        const int64_t first = (int64_t(tile.batch) * heads.H + tile.head) * heads.padded + query;
        float limit = 0;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            add_lanes(softmax.sum[r]);
            add_lanes(weighted[r]);
            largest[r] = fmaxf(largest[r], __shfl_xor_sync(0xffffffffu, largest[r], 1));
            largest[r] = fmaxf(largest[r], __shfl_xor_sync(0xffffffffu, largest[r], 2));
            const int row = query + 8 * r;
            const bool blind = row >= heads.S_q || (CAUSAL && row + heads.S_k - heads.S_q < 0);
            const float lse = fmaf(softmax.maximum[r], scale, log2f(softmax.sum[r])) - LOG2_FILLED;
            if (!blind) limit = fmaxf(limit, fminf(0.5f, 2 / softmax.sum[r]) * largest[r]);  // the largest p is 1 / sum
            if (thread % 4 != 0) continue;
            heads.lse[first + 8 * r] = blind ? INF : lse;
            heads.delta[first + 8 * r] = blind ? 0.0f : weighted[r] / softmax.sum[r];
        }
        limit = fmaxf(largest_of_rows(limit), LEAST);
        if (thread % 32 == 0) operands.limits[first / GROUP] = limit;
    }
}

// Computes dq. The tensor cores multiply ds of a block of keys during the exponentials of the next block.
template <typename P, bool CAUSAL>
__device__ __forceinline__ void find_dq(const Heads& heads, const Operands& operands, __nv_bfloat16* __restrict__ out,
                                        char* aligned, const Tile* tiles, int consumer) {
    const int thread = threadIdx.x % WARPGROUP;
    const float scale = exponent_scale(heads);
    Steps<P> steps(shared_address(aligned), consumer);
    float scores[KEPT / 2], dp[KEPT / 2];
    uint32_t ds[KEPT / 8];
    for (int turn = 0;; ++turn) {
        mbarrier_wait_parity(steps.shared + P::Q_FULL, turn % 2);
        const Tile& tile = tiles[turn % 2];
        if (tile.blocks == 0) break;
        const int query = tile.first_query + consumer * 64 + thread / 32 * 16 + thread % 32 / 4;
        const int64_t first = (int64_t(tile.batch) * heads.H + tile.head) * heads.padded + query;
        const float factor = 1 / operands.limits[first / GROUP];
        const float lse[] = {heads.lse[first], heads.lse[first + 8]};
        const float delta[] = {heads.delta[first] * factor, heads.delta[first + 8] * factor};
        float dq[P::D / 2];
        // Scores and dp -> ds, before it is rounded. LATER: groups of products that started after theirs.
        auto weigh = [&](int block, auto later) {
            constexpr int LATER = decltype(later)::value;
            wgmma_wait_group<LATER + 1>();
            warpgroup_fence_operand(scores);
            if (block >= tile.unmasked) {
                if (scale < 0) negate(scores);
                hide_after<KEPT, CAUSAL>(scores, heads, query, block, thread);
                if (scale < 0) negate(scores);
            }
#pragma unroll
            for (int i = 0; i < KEPT / 2; ++i) scores[i] = exp2_approximate(fmaf(scores[i], scale, -lse[i / 2 % 2]));
            wgmma_wait_group<LATER>();
            warpgroup_fence_operand(dp);
#pragma unroll
            for (int i = 0; i < KEPT / 2; ++i) scores[i] *= fmaf(dp[i], factor, -delta[i / 2 % 2]);
        };
        auto multiply = [&](int stage, int add) {
            wgmma_fence();
            add_product(dq, ds, steps.shared + P::TRANSPOSED + stage * P::TRANSPOSED_BYTES, add);
            wgmma_commit_group();
        };
        auto end = [&](int stage) {
            wgmma_wait_group<0>();
            warpgroup_fence_operand(dq);
            warpgroup_fence_operand(ds);
            steps.release(stage);
        };
        steps.start(scores, dp);
        steps.turns.pass();
        weigh(tile.blocks - 1, std::integral_constant<int, 0>());
        round_to_operand(ds, scores);
        int add = 0;
#pragma unroll 1
        for (int block = tile.blocks - 2; block >= 0; --block, add = 1) {
            const int before = steps.at.stage;
            steps.at.advance();
            steps.start(scores, dp);
            multiply(before, add);
            steps.turns.pass();
            weigh(block, std::integral_constant<int, 1>());
            end(before);
            round_to_operand(ds, scores);
        }
        steps.release_queries();
        multiply(steps.at.stage, add);
        end(steps.at.stage);
        steps.at.advance();
        const float scales = operands.scale * *heads.scale_k * *heads.scale_v * *operands.scale_d_out;
        const float unit = scales / (factor * FILLED);
#pragma unroll
        for (int i = 0; i < P::D / 2; ++i) dq[i] *= unit;
        const int64_t head = int64_t(tile.batch) * heads.H + tile.head;
        store_rows(out + head * heads.S_q * P::D, P::D, dq, tile.first_query + consumer * 64, heads.S_q);
    }
}

// The kernels: a producer warpgroup, and two consumers. float8_statistics has no output.
template <typename P, bool CAUSAL>
__device__ __forceinline__ void run_queries(const GradMaps& maps, const Heads& heads, const Operands& operands,
                                            __nv_bfloat16* __restrict__ dq) {
    extern __shared__ char raw[];
    char* const aligned = raw + (-shared_address(raw) & (BOX_ALIGNMENT - 1));
    Tile* const tiles = reinterpret_cast<Tile*>(aligned + P::TILES);
    const uint32_t shared = shared_address(aligned);
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP, 0);  // warp-uniform for the compiler
    if (threadIdx.x == PRODUCER) {
        tma_prefetch_descriptor(&maps.q);
        tma_prefetch_descriptor(&maps.k);
        tma_prefetch_descriptor(&maps.v);
        tma_prefetch_descriptor(&maps.d_out);
        mbarrier_init(shared + P::Q_FULL, 1);
        mbarrier_init(shared + P::Q_EMPTY, CONSUMERS);
        for (int i = 0; i < P::STAGES; ++i) {
            mbarrier_init(shared + P::FULL + i * MBARRIER_BYTES, 1);
            mbarrier_init(shared + P::EMPTY + i * MBARRIER_BYTES, CONSUMERS);
        }
        mbarrier_fence_init();
    }
    __syncthreads();  // the barriers are initialized
    if (warpgroup == CONSUMERS) {
        setmaxnreg_dec<24>();
        if (threadIdx.x == PRODUCER) load_of_queries<P, CAUSAL>(maps, heads, operands, shared, tiles);
    } else {
        setmaxnreg_inc<240>();
        if constexpr (P::GRADIENTS) {
            find_dq<P, CAUSAL>(heads, operands, dq, aligned, tiles, warpgroup);
        } else {
            find_statistics<P, CAUSAL>(heads, operands, aligned, tiles, warpgroup);
        }
    }
}

template <typename P, bool CAUSAL>
__global__ void __launch_bounds__(THREADS, 1)
    float8_statistics(const __grid_constant__ GradMaps maps, const __grid_constant__ Heads heads,
                      const __grid_constant__ Operands operands) {
    run_queries<P, CAUSAL>(maps, heads, operands, nullptr);
}

template <typename P, bool CAUSAL>
__global__ void __launch_bounds__(THREADS, 1)
    float8_dq(const __grid_constant__ GradMaps maps, const __grid_constant__ Heads heads,
              const __grid_constant__ Operands operands, __nv_bfloat16* __restrict__ dq) {
    run_queries<P, CAUSAL>(maps, heads, operands, dq);
}
