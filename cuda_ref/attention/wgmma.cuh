// out[b, h, i] = sum over j of softmax_j(sm_scale * q[b, h, i] . k[b, h_kv, j]) * v[b, h_kv, j], 16 bits, on Hopper's
// tensor cores
//
// Roles. One thread of a producer warpgroup copies tiles of q, k and v to shared memory by TMA. Two or three consumer
// warpgroups compute 64 queries each. Their scores, weights and sums stay in registers: the scores, rounded, are the
// left operand of the next product.
//
// Teams. In one plan a block has three teams of one consumer, each with its own producer thread and shared memory. They
// compute different tiles and do not wait for each other: the first loads, first softmax and store of one team's tile
// overlap with the products of another team. The launcher chooses the plan (_plan.py).
//
// Overlap of products and softmax, so that the tensor cores do not wait.
//   - Within a warpgroup, the products of one block of keys start before those of the previous block have ended: while
//     the tensor cores compute weights v of block n - 1, the warpgroup computes the softmax of block n.
//   - Between warpgroups, named barriers make them start their products in turn. One multiplies while another computes
//     exponentials.
//
// Blocks of keys come from the last to the first: only the first steps of a tile need a mask, and the loop after them
// has none. With a window the last steps need one too. Blocks are persistent: the queries and keys of the next tile are
// loaded during the last steps of this one. Tiles whose queries see no key are not computed: warps without other work
// store their zeros.
//
// Every stage of keys, every stage of values, and the queries of every consumer have mbarriers `full` and `empty`, as
// in matmul/warp_specialized.cu.
//
// `Store` says what becomes of the sums of a tile: the output (wgmma.cu), or sums that wait for more keys
// (ring_attention/wgmma.cu). It has `To`, the type of a parameter of the kernel; `prefetch`, called before the last
// product, which tells `tile` whether there is something to read; and `blind`, for rows that a causal schedule leaves
// out.
//
// Precision. Products of 16 bits are exact; scores, softmax and sums are float32; weights are rounded to 16 bits for
// the second product. Exponentials are powers of 2: sm_scale includes log2(e).
//
// Speed: docs/ladder.md. Variants that were tried: docs/lab/cuda_attention.md
//
// Source: J. Shah et al., "FlashAttention-3", 2024 (arXiv 2407.08608); online softmax as in attention.cu.
#pragma once

#include "attention/hopper.cuh"
#include "common/launch.cuh"

// How a launch divides the work: TEAMS teams per block, each with CONSUMERS warpgroups of 64 queries; BLOCK_N keys per
// step; STAGES blocks of keys, and as many of values, in shared memory. TURNS: consumers start their products in turn.
//
// setmaxnreg divides the registers that the block has at launch: 3 x 168 per thread of a warpgroup into 24 and 2 x 240,
// or, if the producer computes a causal schedule, 40 and 2 x 232; 4 x 128 into 32 and 3 x 160.
template <int D_, int CONSUMERS_, int BLOCK_N_, int STAGES_, bool TURNS_, int TEAMS_ = 1>
struct Plan {
    static constexpr int D = D_, CONSUMERS = CONSUMERS_, BLOCK_M = CONSUMERS * 64, BLOCK_N = BLOCK_N_;
    static constexpr int STAGES = STAGES_, TEAMS = TEAMS_, ALL_CONSUMERS = TEAMS * CONSUMERS;
    static constexpr int PRODUCER = ALL_CONSUMERS * WARPGROUP, THREADS = PRODUCER + WARPGROUP;
    static constexpr bool TURNS = TURNS_;
    using RowSoftmax = Softmax<D == 256>;  // slack is faster with many sums and few scores, as for D = 256
    static constexpr int Q_BYTES = 64 * D * 2, BLOCK_BYTES = BLOCK_N * D * 2;
    // Offsets in shared memory.
    static constexpr int KEYS = CONSUMERS * Q_BYTES, VALUES = KEYS + STAGES * BLOCK_BYTES;
    static constexpr int Q_FULL = VALUES + STAGES * BLOCK_BYTES, Q_EMPTY = Q_FULL + CONSUMERS * MBARRIER_BYTES;
    static constexpr int K_FULL = Q_EMPTY + CONSUMERS * MBARRIER_BYTES, K_EMPTY = K_FULL + STAGES * MBARRIER_BYTES;
    static constexpr int V_FULL = K_EMPTY + STAGES * MBARRIER_BYTES, V_EMPTY = V_FULL + STAGES * MBARRIER_BYTES;
    static constexpr int TILES = V_EMPTY + STAGES * MBARRIER_BYTES;  // two tiles per consumer: current and next turn
    static constexpr int END = TILES + 2 * CONSUMERS * int(sizeof(Tile));
    static constexpr int TEAM_BYTES = ceil_div(END, BOX_ALIGNMENT) * BOX_ALIGNMENT;  // distance between teams
    static constexpr int SHARED_BYTES = BOX_ALIGNMENT + (TEAMS - 1) * TEAM_BYTES + END;
    static_assert(SHARED_BYTES <= MAX_SHARED_BYTES && BLOCK_BYTES % BOX_ALIGNMENT == 0, "");
    static_assert(TEAMS < 4 && (TEAMS == 1 || !TURNS), "a warp stores zeros; named barriers are those of one team");

    // Registers per thread.
    template <bool CAUSAL>
    static constexpr int PRODUCER_REGISTERS = ALL_CONSUMERS == 3 ? 32 : CAUSAL ? 40 : 24;
    template <bool CAUSAL>
    static constexpr int CONSUMER_REGISTERS = ALL_CONSUMERS == 3 ? 160 : CAUSAL ? 232 : 240;
};

// A team's producer thread. It loads in the order of use: queries; keys of block n before values of block n + 1. It
// passes the loaded tile to the consumers through shared memory, since they have no registers for the schedule.
template <typename P, typename Schedule>
__device__ __forceinline__ void produce(const HeadMaps& maps, const Heads& heads, const Schedule& schedule,
                                        uint32_t shared, Tile* tiles, int team) {
    PipelineState<P::STAGES> keys, values;
    for (int turn = 0;; ++turn) {
        const Tile tile = schedule.tile(heads, turn, team);
        auto load = [&](PipelineState<P::STAGES>& at, const CUtensorMap* map, int to, int full, int empty, int block) {
            mbarrier_wait_parity(shared + empty + at.stage * MBARRIER_BYTES, at.phase ^ 1);
            load_rows<P::BLOCK_N, P::D>(shared + to + at.stage * P::BLOCK_BYTES, map, block * P::BLOCK_N,
                                        tile.head / heads.G, tile.batch, shared + full + at.stage * MBARRIER_BYTES);
            at.advance();
        };
        auto load_keys = [&](int block) { load(keys, &maps.k, P::KEYS, P::K_FULL, P::K_EMPTY, block); };
        auto load_values = [&](int block) { load(values, &maps.v, P::VALUES, P::V_FULL, P::V_EMPTY, block); };
        for (int consumer = 0; consumer < P::CONSUMERS; ++consumer) {
            const uint32_t full = shared + P::Q_FULL + consumer * MBARRIER_BYTES;
            mbarrier_wait_parity(shared + P::Q_EMPTY + consumer * MBARRIER_BYTES, turn % 2 ^ 1);
            tiles[2 * consumer + turn % 2] = tile;
            if (tile.blocks == 0) {
                mbarrier_arrive(full);
                continue;
            }
            load_rows<64, P::D>(shared + consumer * P::Q_BYTES, &maps.q, tile.first_query + consumer * 64, tile.head,
                                tile.batch, full);
            if (consumer == 0) load_keys(tile.blocks - 1);
        }
        if (tile.blocks == 0) return;
        const int first = Schedule::WINDOW ? first_block<P::BLOCK_N>(heads, tile.first_query) : 0;
#pragma unroll 1
        for (int block = tile.blocks - 1; block > first; --block) {
            load_keys(block - 1);
            load_values(block);
        }
        load_values(first);
    }
}

template <typename T, typename P, bool CAUSAL, bool WINDOW, typename Store>
__device__ __forceinline__ void consume(const Heads& heads, typename Store::To to, uint32_t shared, const Tile* tiles,
                                        int consumer) {
    const int thread = threadIdx.x % WARPGROUP;
    const uint32_t q = shared + consumer * P::Q_BYTES;
    const Turns<P> turns{consumer};
    PipelineState<P::STAGES> keys, values;
    auto release = [&](int barriers, const PipelineState<P::STAGES>& at) {
        if (thread == 0) mbarrier_arrive(shared + barriers + at.stage * MBARRIER_BYTES);
    };
    if (P::TURNS && consumer == P::CONSUMERS - 1) turns.pass();  // consumer 0 has the first turn
    for (int turn = 0;; ++turn) {
        mbarrier_wait_parity(shared + P::Q_FULL + consumer * MBARRIER_BYTES, turn % 2);
        const Tile& tile = tiles[2 * consumer + turn % 2];
        if (tile.blocks == 0) break;
        const int row = tile.first_query + consumer * 64;
        const int query = row + thread / 32 * 16 + thread % 32 / 4;  // first of this thread's two rows
        float scores[P::BLOCK_N / 2], acc[P::D / 2];
        uint32_t weights[P::BLOCK_N / 4];
        typename P::RowSoftmax softmax;
        auto mask = [&](int block) {
            hide_after<P::BLOCK_N, CAUSAL, WINDOW>(scores, heads, query, block, thread);
        };
        auto multiply_weights = [&](int add) {
            mbarrier_wait_parity(shared + P::V_FULL + values.stage * MBARRIER_BYTES, values.phase);
            multiply_values<T>(acc, weights, shared + P::VALUES + values.stage * P::BLOCK_BYTES, add);
            wgmma_commit_group();
        };
        // Computes the scores of a block, and adds the previous block, whose weights are known.
        auto step = [&](int block, bool masked, int add) {
            mbarrier_wait_parity(shared + P::K_FULL + keys.stage * MBARRIER_BYTES, keys.phase);
            turns.take();
            wgmma_fence();
            multiply_keys<T, P::D>(scores, q, shared + P::KEYS + keys.stage * P::BLOCK_BYTES);
            wgmma_commit_group();
            multiply_weights(add);
            turns.pass();
            wgmma_wait_group<1>();
            warpgroup_fence_operand(scores);
            release(P::K_EMPTY, keys);
            keys.advance();
            if (masked) mask(block);
            softmax.weigh(scores, heads.scale_log2);
            wgmma_wait_group<0>();
            warpgroup_fence_operand(acc);
            warpgroup_fence_operand(weights);
            release(P::V_EMPTY, values);
            values.advance();
            softmax.rescale(acc);
            round_weights<T>(weights, scores);
        };

        mbarrier_wait_parity(shared + P::K_FULL + keys.stage * MBARRIER_BYTES, keys.phase);
        turns.take();
        wgmma_fence();
        multiply_keys<T, P::D>(scores, q, shared + P::KEYS + keys.stage * P::BLOCK_BYTES);
        wgmma_commit_group();
        turns.pass();
        wgmma_wait_group<0>();
        warpgroup_fence_operand(scores);
        release(P::K_EMPTY, keys);
        keys.advance();
        const int unmasked = tile.unmasked;
        const int inner = WINDOW ? inner_block<P::BLOCK_N>(heads, tile.first_query + P::BLOCK_M - 1) : 0;
        int block = tile.blocks - 1;
        if (block >= unmasked || (WINDOW && block < inner)) mask(block);
        softmax.weigh(scores, heads.scale_log2);
        round_weights<T>(weights, scores);
        int add = 0;
        if constexpr (CAUSAL) {
#pragma unroll 1
            for (--block; block >= unmasked; --block, add = 1) step(block, true, add);
            ++block;
        }
#pragma unroll 1
        for (--block; block >= inner; --block, add = 1) step(block, false, add);
        if constexpr (WINDOW) {
            const int first = first_block<P::BLOCK_N>(heads, tile.first_query);
            ++block;
#pragma unroll 1
            for (--block; block >= first; --block, add = 1) step(block, true, add);
        }
        if (thread == 0) mbarrier_arrive(shared + P::Q_EMPTY + consumer * MBARRIER_BYTES);
        const bool reads = Store::template prefetch<P::D>(heads, to, tile, row, query);
        wgmma_fence();
        multiply_weights(add);
        wgmma_wait_group<0>();
        warpgroup_fence_operand(acc);
        warpgroup_fence_operand(weights);
        release(P::V_EMPTY, values);
        values.advance();
        Store::template tile<CAUSAL, WINDOW>(heads, to, softmax, acc, tile, row, query, reads);
    }
}

template <typename T, typename P, typename Schedule, typename Store>
__global__ void __launch_bounds__(P::THREADS, 1)
    attention_wgmma(const __grid_constant__ HeadMaps maps, const __grid_constant__ Heads heads,
                    const Schedule schedule, typename Store::To to) {
    extern __shared__ char raw[];
    char* const aligned = raw + (-shared_address(raw) & (BOX_ALIGNMENT - 1));
    auto tiles_of = [&](int team) { return reinterpret_cast<Tile*>(aligned + team * P::TEAM_BYTES + P::TILES); };
    auto shared_of = [&](int team) { return shared_address(aligned) + team * P::TEAM_BYTES; };
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP, 0);  // warp-uniform for the compiler
    if (threadIdx.x == P::PRODUCER) {
        tma_prefetch_descriptor(&maps.q);
        tma_prefetch_descriptor(&maps.k);
        tma_prefetch_descriptor(&maps.v);
        for (int team = 0; team < P::TEAMS; ++team) {
            const uint32_t shared = shared_of(team);
            for (int i = 0; i < P::CONSUMERS; ++i) {
                mbarrier_init(shared + P::Q_FULL + i * MBARRIER_BYTES, 1);
                mbarrier_init(shared + P::Q_EMPTY + i * MBARRIER_BYTES, 1);
            }
            for (int i = 0; i < P::STAGES; ++i) {
                mbarrier_init(shared + P::K_FULL + i * MBARRIER_BYTES, 1);
                mbarrier_init(shared + P::K_EMPTY + i * MBARRIER_BYTES, P::CONSUMERS);
                mbarrier_init(shared + P::V_FULL + i * MBARRIER_BYTES, 1);
                mbarrier_init(shared + P::V_EMPTY + i * MBARRIER_BYTES, P::CONSUMERS);
            }
        }
        mbarrier_fence_init();
    }
    __syncthreads();  // the barriers are initialized

    if (warpgroup == P::ALL_CONSUMERS) {
        setmaxnreg_dec<P::template PRODUCER_REGISTERS<Schedule::CAUSAL>>();
        constexpr int LAST = P::THREADS - 32;
#pragma unroll
        for (int team = 0; team < P::TEAMS; ++team) {
            if (threadIdx.x == P::PRODUCER + 32 * team) {
                produce<P>(maps, heads, schedule, shared_of(team), tiles_of(team), team);
            }
        }
        if (Schedule::CAUSAL && threadIdx.x >= LAST) Store::template blind<P::D>(heads, to, schedule);
    } else {
        setmaxnreg_inc<P::template CONSUMER_REGISTERS<Schedule::CAUSAL>>();
        const int team = warpgroup / P::CONSUMERS;
        consume<T, P, Schedule::CAUSAL, Schedule::WINDOW, Store>(heads, to, shared_of(team), tiles_of(team),
                                                                 warpgroup % P::CONSUMERS);
    }
}

template <typename T, typename P, bool CAUSAL, bool WINDOW, typename Store>
cudaError_t launch(const Heads& heads, int64_t B, typename Store::To to, int multiprocessors, cudaStream_t stream,
                   LaunchRecord* record) {
    HeadMaps maps;
    if (!encode_maps<T, P::D>(&maps, heads, B, P::BLOCK_N)) return cudaErrorInvalidValue;
    const Schedule<P::BLOCK_M, P::BLOCK_N, CAUSAL, WINDOW> schedule(heads, multiprocessors * P::TEAMS);
    const int64_t blind = int64_t(heads.count) * schedule.blind_rows;
    const auto grid = std::min<int64_t>(std::max<int64_t>(schedule.teams, blind), multiprocessors);
    return launch_clusters(1, attention_wgmma<T, P, std::remove_const_t<decltype(schedule)>, Store>,
                           dim3(unsigned(grid)), P::THREADS, P::SHARED_BYTES, stream, record, maps, heads, schedule,
                           to);
}

// Launches plan number `plan` of the given ones.
template <typename T, bool CAUSAL, bool WINDOW, typename Store, typename First, typename... Others>
cudaError_t launch_plan(int64_t plan, const Heads& heads, int64_t B, typename Store::To to, cudaStream_t stream,
                        LaunchRecord* record) {
    if (plan == 0) return launch<T, First, CAUSAL, WINDOW, Store>(heads, B, to, multiprocessor_count(), stream, record);
    if constexpr (sizeof...(Others) > 0) {
        return launch_plan<T, CAUSAL, WINDOW, Store, Others...>(plan - 1, heads, B, to, stream, record);
    }
    return cudaErrorInvalidValue;
}

// The plans of each D, in the order of _plan.py. With a window D is at most 128, and D = 128 has only the first plan.
template <typename T, int D, bool CAUSAL, bool WINDOW, typename Store>
cudaError_t launch_head(int64_t plan, const Heads& heads, int64_t B, typename Store::To to, cudaStream_t stream,
                        LaunchRecord* record) {
    using First = Plan<128, 2, 128, 2, true>;  // of D = 128
    if constexpr (D == 64) {
        return launch_plan<T, CAUSAL, WINDOW, Store, Plan<64, 3, 128, 2, true>, Plan<64, 1, 128, 2, false, 3>>(
            plan, heads, B, to, stream, record);
    } else if constexpr (WINDOW && D == 128) {
        return launch_plan<T, CAUSAL, WINDOW, Store, First>(plan, heads, B, to, stream, record);
    } else if constexpr (WINDOW) {
        return cudaErrorNotSupported;
    } else if constexpr (D == 128) {
        return launch_plan<T, CAUSAL, WINDOW, Store, First, Plan<128, 2, 176, 2, true>>(plan, heads, B, to, stream,
                                                                                  record);
    } else {
        return launch_plan<T, CAUSAL, WINDOW, Store, Plan<256, 2, 64, 2, true>>(plan, heads, B, to, stream, record);
    }
}
