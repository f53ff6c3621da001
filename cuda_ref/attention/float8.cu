// out[b, h, i] = scale_v * sum over j of softmax_j(scale_q scale_k sm_scale * q[b, h, i] . k[b, h_kv, j]) * v[b, h_kv, j]
// in float8, on Hopper's tensor cores
//
// requires: sm_90a
//
// Adds to wgmma.cu, whose schedule, products during the softmax and turns of two or three consumer warpgroups it has:
//   - Values are transposed in shared memory, since float8 tensor cores need both operands contiguous along the sum.
//     TMA brings rows of keys. Two warps of the producer warpgroup load 8 x 8 matrices of pairs of columns, transposed
//     (ldmatrix), separate the two columns of a pair by byte permutations, and store rows of keys (stmatrix). Consumers
//     do not wait for this: it is done for the next block of keys.
//   - Weights go from the sums of the first product to the left operand of the second without leaving their thread.
//     A thread holds the columns 8 b + 2 c + {0, 1} of 16 keys, but the operand needs four adjacent ones, 4 c + 2 b +
//     {0, 1}. The transposed values therefore have their keys in this order; the byte permutations make it for nothing.
//   - Softmax takes as long as the products: float8 doubles the rate of the tensor cores alone. Weights reach 2^8, so the
//     range of float8 has room for a slack: the sums are rescaled only in the few blocks in which the maximum of a row
//     grows by more than 2^4. Maxima are compared three at a time, as integers.
//
// Precision. The tensor cores keep 14 bits of sums of float8 products. Softmax and its sums are float32; weights are
// rounded to float8 for the second product.
//
// Source: J. Shah et al., "FlashAttention-3", 2024 (arXiv 2407.08608), section 3.3; PTX ISA for ldmatrix and stmatrix.
#include "attention/float8.cuh"
#include "attention/hopper.cuh"
#include "attention/statistics.cuh"
#include "common/launch.cuh"

// The division of the work of a launch, as in wgmma.cu. Rows of q, k and v take boxes of 128 bytes, transposed rows of
// values boxes of 128 keys.
template <int D_, int CONSUMERS_, int BLOCK_N_>
struct Float8Plan {
    static constexpr int D = D_, CONSUMERS = CONSUMERS_, BLOCK_M = CONSUMERS * 64, BLOCK_N = BLOCK_N_;
    static constexpr int STAGES = D == 256 ? 2 : 3, V_STAGES = 2;  // blocks of rows that are loaded; transposed blocks
    static constexpr int PRODUCER = CONSUMERS * WARPGROUP, THREADS = PRODUCER + WARPGROUP;
    static constexpr bool TURNS = true;
    static constexpr int Q_BYTES = 64 * BOXED_BYTES<D, 1>, BLOCK_BYTES = BLOCK_N * BOXED_BYTES<D, 1>;
    static constexpr int TRANSPOSED_BYTES = D * BOXED_BYTES<BLOCK_N, 1>;
    // Offsets in shared memory.
    static constexpr int KEYS = CONSUMERS * Q_BYTES, ROWS = KEYS + STAGES * BLOCK_BYTES;
    static constexpr int VALUES = ROWS + STAGES * BLOCK_BYTES, Q_FULL = VALUES + V_STAGES * TRANSPOSED_BYTES;
    static constexpr int Q_EMPTY = Q_FULL + CONSUMERS * MBARRIER_BYTES;
    static constexpr int K_FULL = Q_EMPTY + CONSUMERS * MBARRIER_BYTES, K_EMPTY = K_FULL + STAGES * MBARRIER_BYTES;
    static constexpr int ROWS_FULL = K_EMPTY + STAGES * MBARRIER_BYTES;
    static constexpr int ROWS_EMPTY = ROWS_FULL + STAGES * MBARRIER_BYTES;
    static constexpr int V_FULL = ROWS_EMPTY + STAGES * MBARRIER_BYTES, V_EMPTY = V_FULL + V_STAGES * MBARRIER_BYTES;
    static constexpr int TILES = V_EMPTY + V_STAGES * MBARRIER_BYTES;  // two tiles per consumer: current and next turn
    static constexpr int SHARED_BYTES = BOX_ALIGNMENT + TILES + 2 * CONSUMERS * int(sizeof(Tile));
    static_assert(SHARED_BYTES <= MAX_SHARED_BYTES && BLOCK_BYTES % BOX_ALIGNMENT == 0 && BLOCK_N % 32 == 0, "");
    // Registers per thread: see wgmma.cu.
    static constexpr int PRODUCER_REGISTERS = 56;
    static constexpr int CONSUMER_REGISTERS = CONSUMERS == 3 ? 152 : 224;
};

// One thread loads in the order of use: queries; keys and values of a block before those of the next one. It passes the
// loaded tile to the consumers through shared memory, since they have no registers for the schedule.
template <typename P, typename Schedule>
__device__ __forceinline__ void load(const HeadMaps& maps, const Heads& heads, const Schedule& schedule,
                                     uint32_t shared, Tile* tiles) {
    PipelineState<P::STAGES> at;
    for (int turn = 0;; ++turn) {
        const Tile tile = schedule.tile(heads, turn, 0);
        auto load_block = [&](const CUtensorMap* map, int to, int full, int empty, int block) {
            mbarrier_wait_parity(shared + empty + at.stage * MBARRIER_BYTES, at.phase ^ 1);
            load_rows<P::BLOCK_N, P::D, 1>(shared + to + at.stage * P::BLOCK_BYTES, map, block * P::BLOCK_N,
                                           tile.head / heads.G, tile.batch, shared + full + at.stage * MBARRIER_BYTES);
        };
        for (int consumer = 0; consumer < P::CONSUMERS; ++consumer) {
            const uint32_t full = shared + P::Q_FULL + consumer * MBARRIER_BYTES;
            mbarrier_wait_parity(shared + P::Q_EMPTY + consumer * MBARRIER_BYTES, turn % 2 ^ 1);
            tiles[2 * consumer + turn % 2] = tile;
            if (tile.blocks == 0) {
                mbarrier_arrive(full);
            } else {
                load_rows<64, P::D, 1>(shared + consumer * P::Q_BYTES, &maps.q, tile.first_query + consumer * 64,
                                       tile.head, tile.batch, full);
            }
        }
        if (tile.blocks == 0) return;
#pragma unroll 1
        for (int block = tile.blocks - 1; block >= 0; --block, at.advance()) {
            load_block(&maps.k, P::KEYS, P::K_FULL, P::K_EMPTY, block);
            load_block(&maps.v, P::ROWS, P::ROWS_FULL, P::ROWS_EMPTY, block);
        }
    }
}

// A warp that transposes the values of all blocks.
template <typename P, typename Schedule>
__device__ __forceinline__ void transpose_all(const Heads& heads, const Schedule& schedule, char* aligned, int warp) {
    const uint32_t shared = shared_address(aligned);
    PipelineState<P::STAGES> from;
    PipelineState<P::V_STAGES> to;
    for (int turn = 0;; ++turn) {
        const int blocks = schedule.tile(heads, turn, 0).blocks;
        if (blocks == 0) return;
#pragma unroll 1
        for (int block = 0; block < blocks; ++block, from.advance(), to.advance()) {
            mbarrier_wait_parity(shared + P::ROWS_FULL + from.stage * MBARRIER_BYTES, from.phase);
            mbarrier_wait_parity(shared + P::V_EMPTY + to.stage * MBARRIER_BYTES, to.phase ^ 1);
            transpose<P>(aligned + P::ROWS + from.stage * P::BLOCK_BYTES,
                         shared + P::VALUES + to.stage * P::TRANSPOSED_BYTES, warp);
            fence_proxy_async();  // makes the stores visible to wgmma
            __syncwarp();
            if (threadIdx.x % 32 == 0) {
                mbarrier_arrive(shared + P::ROWS_EMPTY + from.stage * MBARRIER_BYTES);
                mbarrier_arrive(shared + P::V_FULL + to.stage * MBARRIER_BYTES);
            }
        }
    }
}

// Changes the sign of a consumer's queries: the largest score is that of the largest product only if the scale is
// positive.
template <typename P>
__device__ __forceinline__ void negate(char* q, int consumer) {
    for (int i = threadIdx.x % WARPGROUP; i < P::Q_BYTES / 4; i += WARPGROUP) {
        reinterpret_cast<uint32_t*>(q)[i] ^= 0x80808080u;
    }
    fence_proxy_async();
    named_barrier_sync(1 + P::CONSUMERS + consumer, WARPGROUP);
}

template <typename P, bool CAUSAL>
__device__ __forceinline__ void consume(const Heads& heads, __nv_bfloat16* __restrict__ out, char* aligned,
                                        const Tile* tiles, int consumer) {
    const int thread = threadIdx.x % WARPGROUP;
    const uint32_t shared = shared_address(aligned), q = shared + consumer * P::Q_BYTES;
    const float signed_scale = score_scale<Float8>(heads);
    const float scale = signed_scale == 0 ? 1.17549435e-38f : fabsf(signed_scale);  // 0 times a hidden score is NaN
    const Turns<P> turns{consumer};
    PipelineState<P::STAGES> keys;
    PipelineState<P::V_STAGES> values;
    auto release = [&](int barriers, int stage) {
        if (thread == 0) mbarrier_arrive(shared + barriers + stage * MBARRIER_BYTES);
    };
    if (consumer == P::CONSUMERS - 1) turns.pass();  // consumer 0 has the first turn
    for (int turn = 0;; ++turn) {
        mbarrier_wait_parity(shared + P::Q_FULL + consumer * MBARRIER_BYTES, turn % 2);
        const Tile& tile = tiles[2 * consumer + turn % 2];
        if (tile.blocks == 0) break;
        if (signed_scale < 0) negate<P>(aligned + consumer * P::Q_BYTES, consumer);
        const int row = tile.first_query + consumer * 64;
        const int query = row + thread / 32 * 16 + thread % 32 / 4;  // first of this thread's two rows
        float scores[P::BLOCK_N / 2], acc[P::D / 2];
        uint16_t pairs[P::BLOCK_N / 4];
        uint32_t weights[P::BLOCK_N / 8];
        Float8Softmax softmax;
        auto mask = [&](int block) { hide_after<P::BLOCK_N, CAUSAL>(scores, heads, query, block, thread); };
        auto multiply_keys = [&] {
            mbarrier_wait_parity(shared + P::K_FULL + keys.stage * MBARRIER_BYTES, keys.phase);
            turns.take();
            wgmma_fence();
            multiply_float8_keys<P>(scores, q, shared + P::KEYS + keys.stage * P::BLOCK_BYTES);
            wgmma_commit_group();
        };
        auto multiply_values = [&](int add) {
            mbarrier_wait_parity(shared + P::V_FULL + values.stage * MBARRIER_BYTES, values.phase);
            multiply_float8_values<P>(acc, weights, shared + P::VALUES + values.stage * P::TRANSPOSED_BYTES, add);
            wgmma_commit_group();
        };
        auto end_keys = [&] {
            warpgroup_fence_operand(scores);
            release(P::K_EMPTY, keys.stage);
            keys.advance();
        };
        auto end_values = [&] {
            wgmma_wait_group<0>();
            warpgroup_fence_operand(acc);
            warpgroup_fence_operand(weights);
            release(P::V_EMPTY, values.stage);
            values.advance();
        };
        // Computes the scores of a block, and adds the previous block, whose weights are known.
        auto step = [&](int block, bool masked, int add) {
            multiply_keys();
            multiply_values(add);
            turns.pass();
            wgmma_wait_group<1>();
            end_keys();
            if (masked) mask(block);
            softmax.weigh(scores, scale);
            round_to_pairs(pairs, scores);
            warpgroup_fence_operand(pairs);
            if (softmax.has_grown()) {
                wgmma_wait_in_warp();
                warpgroup_fence_operand(acc);
                softmax.rescale(acc);
            }
            end_values();  // after a branch, which keeps ptxas from waiting before the exponentials
            join_pairs(weights, pairs);
        };

        multiply_keys();
        turns.pass();
        wgmma_wait_group<0>();
        end_keys();
        const int unmasked = tile.unmasked;
        int block = tile.blocks - 1;
        if (block >= unmasked) mask(block);
        softmax.weigh(scores, scale);
        round_to_pairs(pairs, scores);
        join_pairs(weights, pairs);
        int add = 0;
        if constexpr (CAUSAL) {
#pragma unroll 1
            for (--block; block >= unmasked; --block, add = 1) step(block, true, add);
            ++block;
        }
#pragma unroll 1
        for (--block; block >= 0; --block, add = 1) step(block, false, add);
        if (thread == 0) mbarrier_arrive(shared + P::Q_EMPTY + consumer * MBARRIER_BYTES);
        wgmma_fence();
        multiply_values(add);
        end_values();
        divide_by_sums(acc, softmax.sum, value_scale<Float8>(heads));
        store_output<Float8, CAUSAL>(heads, out, acc, tile, row);
    }
}

template <typename P, typename Schedule>
__global__ void __launch_bounds__(P::THREADS, 1)
    attention_float8(const __grid_constant__ HeadMaps maps, const __grid_constant__ Heads heads,
                     const Schedule schedule, __nv_bfloat16* __restrict__ out) {
    extern __shared__ char raw[];
    char* const aligned = raw + (-shared_address(raw) & (BOX_ALIGNMENT - 1));
    Tile* const tiles = reinterpret_cast<Tile*>(aligned + P::TILES);
    const uint32_t shared = shared_address(aligned);
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP, 0);  // warp-uniform for the compiler
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
            mbarrier_init(shared + P::ROWS_FULL + i * MBARRIER_BYTES, 1);
            mbarrier_init(shared + P::ROWS_EMPTY + i * MBARRIER_BYTES, TRANSPOSING_WARPS);
        }
        for (int i = 0; i < P::V_STAGES; ++i) {
            mbarrier_init(shared + P::V_FULL + i * MBARRIER_BYTES, TRANSPOSING_WARPS);
            mbarrier_init(shared + P::V_EMPTY + i * MBARRIER_BYTES, P::CONSUMERS);
        }
        mbarrier_fence_init();
    }
    __syncthreads();  // the barriers are initialized

    if (warpgroup == P::CONSUMERS) {
        setmaxnreg_dec<P::PRODUCER_REGISTERS>();
        const int warp = __shfl_sync(0xffffffffu, (threadIdx.x - P::PRODUCER) / 32, 0);
        if (threadIdx.x == P::PRODUCER) load<P>(maps, heads, schedule, shared, tiles);
        if (warp == 1 || warp == 2) transpose_all<P>(heads, schedule, aligned, warp - 1);
        if (Schedule::CAUSAL && warp == 3) store_blind_rows<__nv_bfloat16, P::D>(heads, out, schedule);
    } else {
        setmaxnreg_inc<P::CONSUMER_REGISTERS>();
        consume<P, Schedule::CAUSAL>(heads, out, aligned, tiles, warpgroup);
    }
}

template <typename P, bool CAUSAL>
cudaError_t launch(const Heads& heads, int64_t B, void* out, cudaStream_t stream, LaunchRecord* record) {
    HeadMaps maps;
    if (!encode_maps<Float8, P::D>(&maps, heads, B, P::BLOCK_N)) return cudaErrorInvalidValue;
    const Schedule<P::BLOCK_M, P::BLOCK_N, CAUSAL> schedule(heads, multiprocessor_count());
    const int64_t blind = int64_t(heads.count) * schedule.blind_rows;
    const auto grid = std::min<int64_t>(std::max<int64_t>(schedule.teams, blind), multiprocessor_count());
    return launch_clusters(1, attention_float8<P, std::remove_const_t<decltype(schedule)>>, dim3(unsigned(grid)),
                           P::THREADS, P::SHARED_BYTES, stream, record, maps, heads, schedule,
                           static_cast<__nv_bfloat16*>(out));
}

template <typename P>
cudaError_t launch_plan(const Heads& heads, int64_t B, bool causal, void* out, cudaStream_t stream,
                        LaunchRecord* record) {
    return causal ? launch<P, true>(heads, B, out, stream, record) : launch<P, false>(heads, B, out, stream, record);
}

// Strides are in elements. scale_q, scale_k and scale_v: on the device.
extern "C" int attention_float8(const void* q, const void* k, const void* v, const float* scale_q,
                                const float* scale_k, const float* scale_v, void* out, int64_t B, int64_t H,
                                int64_t H_kv, int64_t S_q, int64_t S_k, int64_t D, int64_t q_batch, int64_t q_head,
                                int64_t q_row, int64_t k_batch, int64_t k_head, int64_t k_row, int64_t v_batch,
                                int64_t v_head, int64_t v_row, int64_t causal, double scale_log2,
                                cudaStream_t stream, LaunchRecord* record) {
    Heads heads{int(H),   int(H / H_kv),
                int(S_q), int(S_k),
                int(B * H), float(scale_log2),
                q,        k,
                v,        {q_batch, q_head, q_row},
                {k_batch, k_head, k_row}, {v_batch, v_head, v_row},
                {H * S_q * D, S_q * D, D}};
    heads.scale_q = scale_q, heads.scale_k = scale_k, heads.scale_v = scale_v;
    switch (D) {
        case 64: return launch_plan<Float8Plan<64, 3, 128>>(heads, B, causal, out, stream, record);
        case 128: return launch_plan<Float8Plan<128, 2, 128>>(heads, B, causal, out, stream, record);
        case 256: return launch_plan<Float8Plan<256, 2, 96>>(heads, B, causal, out, stream, record);
        default: return cudaErrorNotSupported;
    }
}
