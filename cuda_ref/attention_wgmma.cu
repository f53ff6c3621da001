// out[b, h, i] = sum over j of softmax_j(sm_scale * q[b, h, i] . k[b, h_kv, j]) * v[b, h_kv, j], 16 bits, on Hopper's
// tensor cores
//
// requires: sm_90a
//
// Roles. One thread of a producer warpgroup copies tiles of q, k and v to shared memory by TMA. Two or three consumer
// warpgroups compute 64 queries each. Their tile of scores, their weights and their sums stay in registers: the scores
// of a product, rounded, are the left operand of the next.
//
// Overlap. The tensor cores should never wait for the softmax.
//   - Within a warpgroup, the products of one block of keys are started before those of the block before have ended:
//     while the tensor cores compute weights v of block n - 1, the warpgroup computes the softmax of block n.
//   - Between warpgroups, named barriers let them start their products in turn. One multiplies while another computes
//     exponentials.
//
// Blocks of keys come from the last to the first: only the first ones of a tile need a mask, and the loop after them
// has none. Blocks are persistent: the queries and keys of the next tile are loaded during the last steps of this one.
//
// Every stage of keys, of values, and the queries of every consumer have two mbarriers, `full` and `empty`, as in
// matmul_warp_specialized.cu.
//
// Precision. Products of 16 bits are exact; scores, softmax and sums are float32; weights are rounded to 16 bits for the
// second product. Exponents are those of 2: sm_scale includes log2(e).
//
// Speed: docs/ladder.md. Variants that were tried: docs/lab/cuda_attention.md
//
// Source: J. Shah et al., "FlashAttention-3", 2024 (arXiv 2407.08608); online softmax as in attention.cu.
#include "attention_hopper.cuh"
#include "launch.cuh"

// How a launch divides the work. CONSUMERS warpgroups of 64 queries; BLOCK_N keys a step; STAGES blocks of keys, and as
// many of values, in shared memory; TURNS: consumers start their products in turn; PER_MILLE: the time of a step, in
// thousandths of that of the plan with 2 x 64 queries and 128 keys as measured on an H200.
//
// setmaxnreg divides the registers that the block has at launch: 3 x 168 for each thread of a warpgroup into 24 and
// 2 x 240, or, where the producer has a causal schedule to compute, 40 and 2 x 232; 4 x 128 into 32 and 3 x 160.
template <int D_, int CONSUMERS_, int BLOCK_N_, int STAGES_, bool TURNS_, int PER_MILLE_ = 1000>
struct Plan {
    static constexpr int D = D_, CONSUMERS = CONSUMERS_, BLOCK_M = CONSUMERS * 64, BLOCK_N = BLOCK_N_;
    static constexpr int STAGES = STAGES_, PRODUCER = CONSUMERS * WARPGROUP, THREADS = PRODUCER + WARPGROUP;
    static constexpr int PER_MILLE = PER_MILLE_;
    static constexpr bool TURNS = TURNS_;
    using RowSoftmax = Softmax<D == 256>;  // slack pays where the sums are large, beside few scores
    static constexpr int Q_BYTES = 64 * D * 2, BLOCK_BYTES = BLOCK_N * D * 2;
    // Offsets in shared memory.
    static constexpr int KEYS = CONSUMERS * Q_BYTES, VALUES = KEYS + STAGES * BLOCK_BYTES;
    static constexpr int Q_FULL = VALUES + STAGES * BLOCK_BYTES, Q_EMPTY = Q_FULL + CONSUMERS * MBARRIER_BYTES;
    static constexpr int K_FULL = Q_EMPTY + CONSUMERS * MBARRIER_BYTES, K_EMPTY = K_FULL + STAGES * MBARRIER_BYTES;
    static constexpr int V_FULL = K_EMPTY + STAGES * MBARRIER_BYTES, V_EMPTY = V_FULL + STAGES * MBARRIER_BYTES;
    static constexpr int TILES = V_EMPTY + STAGES * MBARRIER_BYTES;  // for each consumer, this turn's and the next one's
    static constexpr int SHARED_BYTES = BOX_ALIGNMENT + TILES + 2 * CONSUMERS * int(sizeof(Tile));
    static_assert(SHARED_BYTES <= MAX_SHARED_BYTES && BLOCK_BYTES % BOX_ALIGNMENT == 0, "");
};

// The producer thread. It loads in the order of use: queries; keys of block n before values of block n + 1. It tells
// consumers which tile it has loaded: they have no registers to spare for the schedule.
template <typename P, typename Schedule>
__device__ __forceinline__ void produce(const HeadMaps& maps, const Heads& heads, const Schedule& schedule,
                                        uint32_t shared, Tile* tiles) {
    PipelineState<P::STAGES> keys, values;
    for (int turn = 0;; ++turn) {
        const Tile tile = schedule.tile(heads, turn);
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
#pragma unroll 1
        for (int block = tile.blocks - 1; block > 0; --block) {
            load_keys(block - 1);
            load_values(block);
        }
        load_values(0);
    }
}

// A consumer's turn to start products: it waits until the one before it has started its own.
template <typename P>
struct Turns {
    int consumer;

    __device__ __forceinline__ void take() const {
        if constexpr (P::TURNS) named_barrier_sync(1 + consumer, 2 * WARPGROUP);
    }
    __device__ __forceinline__ void pass() const {
        if constexpr (P::TURNS) {
            named_barrier_arrive(1 + (consumer + 1) % P::CONSUMERS, 2 * WARPGROUP);
        }
    }
};

// The 8 columns of d_out, number i, that a thread loads: of the first of its rows, of the second one, and so on.
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

// Stores lse and delta of a thread's rows, whose sums normalize has added up. A query that sees no key gets an infinite
// lse, which makes its weights 0.
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

template <typename T, typename P, bool CAUSAL>
__device__ __forceinline__ void consume(const Heads& heads, T* __restrict__ out, uint32_t shared, const Tile* tiles,
                                        int consumer) {
    const int thread = threadIdx.x % WARPGROUP;
    const uint32_t q = shared + consumer * P::Q_BYTES;
    const Turns<P> turns{consumer};
    PipelineState<P::STAGES> keys, values;
    auto release = [&](int barriers, const PipelineState<P::STAGES>& at) {
        if (thread == 0) mbarrier_arrive(shared + barriers + at.stage * MBARRIER_BYTES);
    };
    if (P::TURNS && consumer == P::CONSUMERS - 1) turns.pass();  // the first turn is consumer 0's
    for (int turn = 0;; ++turn) {
        mbarrier_wait_parity(shared + P::Q_FULL + consumer * MBARRIER_BYTES, turn % 2);
        const Tile& tile = tiles[2 * consumer + turn % 2];
        if (tile.blocks == 0) break;
        const int row = tile.first_query + consumer * 64;
        const int query = row + thread / 32 * 16 + thread % 32 / 4;  // of the first of this thread's two rows
        float scores[P::BLOCK_N / 2], acc[P::D / 2];
        uint32_t weights[P::BLOCK_N / 4];
        typename P::RowSoftmax softmax;
        auto mask = [&](int block) { hide_after<P::BLOCK_N, CAUSAL>(scores, heads, query, block, thread); };
        auto multiply_weights = [&](int add) {
            mbarrier_wait_parity(shared + P::V_FULL + values.stage * MBARRIER_BYTES, values.phase);
            multiply_values<T>(acc, weights, shared + P::VALUES + values.stage * P::BLOCK_BYTES, add);
            wgmma_commit_group();
        };
        // Scores of a block, and the sums of the block before, whose weights are known.
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
        int block = tile.blocks - 1;
        if (block >= unmasked) mask(block);
        softmax.weigh(scores, heads.scale_log2);
        round_weights<T>(weights, scores);
        int add = 0;
        if constexpr (CAUSAL) {
#pragma unroll 1
            for (--block; block >= unmasked; --block, add = 1) step(block, true, add);
            ++block;
        }
#pragma unroll 1
        for (--block; block >= 0; --block, add = 1) step(block, false, add);
        if (thread == 0) mbarrier_arrive(shared + P::Q_EMPTY + consumer * MBARRIER_BYTES);
        const bool for_gradients = P::D <= 128 && heads.d_out != nullptr;
        if (for_gradients) prefetch_d_out<T, P::D>(heads, tile, query);
        wgmma_fence();
        multiply_weights(add);
        wgmma_wait_group<0>();
        warpgroup_fence_operand(acc);
        warpgroup_fence_operand(weights);
        release(P::V_EMPTY, values);
        values.advance();
        softmax.normalize(acc);
        if (for_gradients) {
            store_statistics<T, CAUSAL>(heads, softmax, acc, tile, query);
        } else {
            store_output<T, CAUSAL>(heads, out, acc, tile, row);
        }
    }
}

template <typename T, typename P, typename Schedule>
__global__ void __launch_bounds__(P::THREADS, 1)
    attention_wgmma(const __grid_constant__ HeadMaps maps, const __grid_constant__ Heads heads,
                    const Schedule schedule, T* __restrict__ out) {
    constexpr int REGISTERS_OF_PRODUCER = P::CONSUMERS == 3 ? 32 : Schedule::CAUSAL ? 40 : 24;
    extern __shared__ char raw[];
    char* const aligned = raw + (-shared_address(raw) & (BOX_ALIGNMENT - 1));
    const uint32_t shared = shared_address(aligned);
    Tile* const tiles = reinterpret_cast<Tile*>(aligned + P::TILES);
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP, 0);  // uniform for the compiler
    if (threadIdx.x == P::PRODUCER) {
        tma_prefetch_descriptor(&maps.q);
        tma_prefetch_descriptor(&maps.k);
        tma_prefetch_descriptor(&maps.v);
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
        mbarrier_fence_init();
    }
    __syncthreads();  // the barriers are initialized

    if (warpgroup == P::CONSUMERS) {
        setmaxnreg_dec<REGISTERS_OF_PRODUCER>();
        if (threadIdx.x == P::PRODUCER) produce<P>(maps, heads, schedule, shared, tiles);
    } else {
        setmaxnreg_inc<P::CONSUMERS == 3 ? 160 : Schedule::CAUSAL ? 232 : 240>();
        consume<T, P, Schedule::CAUSAL>(heads, out, shared, tiles, warpgroup);
    }
}

template <typename T, typename P, bool CAUSAL>
cudaError_t launch(const Heads& heads, int64_t B, void* out, int multiprocessors, cudaStream_t stream,
                   LaunchRecord* record) {
    HeadMaps maps;
    if (!encode_maps<T, P::D>(&maps, heads, B, P::BLOCK_N)) return cudaErrorInvalidValue;
    const Schedule<P::BLOCK_M, P::BLOCK_N, CAUSAL> schedule(heads, multiprocessors);
    return launch_clusters(1, attention_wgmma<T, P, std::remove_const_t<decltype(schedule)>>,
                           dim3(unsigned(schedule.blocks)), P::THREADS, P::SHARED_BYTES, stream, record, maps, heads,
                           schedule, static_cast<T*>(out));
}

// By the faster of two plans, as the model says.
template <typename T, typename First, typename Second, bool CAUSAL>
cudaError_t launch_faster(const Heads& heads, int64_t B, void* out, int multiprocessors, cudaStream_t stream,
                          LaunchRecord* record) {
    const Schedule<First::BLOCK_M, First::BLOCK_N, CAUSAL> first(heads, multiprocessors);
    const Schedule<Second::BLOCK_M, Second::BLOCK_N, CAUSAL> second(heads, multiprocessors);
    if (first.steps(heads) * First::PER_MILLE <= second.steps(heads) * Second::PER_MILLE) {
        return launch<T, First, CAUSAL>(heads, B, out, multiprocessors, stream, record);
    }
    return launch<T, Second, CAUSAL>(heads, B, out, multiprocessors, stream, record);
}

template <typename T, int D, bool CAUSAL>
cudaError_t launch_head(const Heads& heads, int64_t B, void* out, cudaStream_t stream, LaunchRecord* record) {
    const int processors = multiprocessor_count();
    if constexpr (D == 64) {
        return launch_faster<T, Plan<64, 2, 128, 3, true>, Plan<64, 3, 128, 2, true, 1270>, CAUSAL>(
            heads, B, out, processors, stream, record);
    } else if constexpr (D == 128) {
        return launch_faster<T, Plan<128, 2, 128, 2, true>, Plan<128, 2, 176, 2, true, 1320>, CAUSAL>(
            heads, B, out, processors, stream, record);
    } else {
        return launch<T, Plan<256, 2, 64, 2, true>, CAUSAL>(heads, B, out, processors, stream, record);
    }
}

cudaError_t launch_any(const Heads& heads, int64_t B, int64_t D, int64_t causal, void* out, int64_t dtype,
                       cudaStream_t stream, LaunchRecord* record) {
    return dispatch_heads(dtype, D, causal, [&](auto zero, auto head, auto is_causal) {
        return launch_head<decltype(zero), decltype(head)::value, decltype(is_causal)::value>(heads, B, out, stream,
                                                                                             record);
    });
}

// Strides in elements.
extern "C" int attention_wgmma(const void* q, const void* k, const void* v, void* out, int64_t B, int64_t H,
                               int64_t H_kv, int64_t S_q, int64_t S_k, int64_t D, int64_t q_batch, int64_t q_head,
                               int64_t q_row, int64_t k_batch, int64_t k_head, int64_t k_row, int64_t v_batch,
                               int64_t v_head, int64_t v_row, int64_t out_batch, int64_t out_head,
                               int64_t out_row, int64_t causal, double scale_log2, int64_t dtype, cudaStream_t stream,
                               LaunchRecord* record) {
    const Heads heads{int(H),     int(H / H_kv),
                      int(S_q),   int(S_k),
                      int(B * H), float(scale_log2),
                      q,          k,
                      v,          {q_batch, q_head, q_row},
                      {k_batch, k_head, k_row}, {v_batch, v_head, v_row},
                      {out_batch, out_head, out_row}};
    return launch_any(heads, B, D, causal, out, dtype, stream, record);
}

// For D up to 128. lse, delta: (B, H, padded) float32.
extern "C" int attention_statistics(const void* q, const void* k, const void* v, const void* d_out, void* lse,
                                    void* delta, int64_t B, int64_t H, int64_t H_kv, int64_t S_q, int64_t S_k,
                                    int64_t D, int64_t q_batch, int64_t q_head, int64_t q_row, int64_t k_batch,
                                    int64_t k_head, int64_t k_row, int64_t v_batch, int64_t v_head, int64_t v_row,
                                    int64_t d_out_batch, int64_t d_out_head, int64_t d_out_row, int64_t padded,
                                    int64_t causal, double scale_log2, int64_t dtype, cudaStream_t stream,
                                    LaunchRecord* record) {
    if (D > 128) return cudaErrorNotSupported;
    const Heads heads{int(H),     int(H / H_kv),
                      int(S_q),   int(S_k),
                      int(B * H), float(scale_log2),
                      q,          k,
                      v,          {q_batch, q_head, q_row},
                      {k_batch, k_head, k_row}, {v_batch, v_head, v_row},
                      {},         static_cast<float*>(lse),
                      static_cast<float*>(delta), int(padded),
                      d_out,      {d_out_batch, d_out_head, d_out_row}};
    return launch_any(heads, B, D, causal, nullptr, dtype, stream, record);
}
