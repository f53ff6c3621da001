// out[b, h, i] = scale_v * sum over j of softmax_j(scale_q scale_k sm_scale * q[b, h, i] . k[b, h_kv, j])
//                * v[b, h_kv, j] in float8, on Hopper's tensor cores
//
// requires: sm_90a
//
// Has the schedule, the products during the softmax and the turns of consumer warpgroups of wgmma.cu, and adds:
//   - A first kernel writes the values by columns, since float8 tensor cores need both operands contiguous along the
//     sum. Its warps load 8 x 8 matrices of pairs of columns, transposed (ldmatrix), separate the two columns of a pair
//     by byte permutations, and store rows of keys (stmatrix). The attention kernel begins before it has ended.
//   - Weights go from the sums of the first product to the left operand of the second without leaving their thread.
//     A thread holds the columns 8 b + 2 c + {0, 1} of 16 keys, but the operand needs four adjacent ones, 4 c + 2 b +
//     {0, 1}. The transposed values therefore have their keys in this order; the byte permutations produce it at no cost.
//   - Weights are rounded after the wait for the products that read the previous ones. That leaves registers for steps
//     of 192 keys, with as many waits and shuffles as 128 keys take, or for three consumers, which hide each other's.
//   - Softmax takes as long as the products: float8 doubles the rate of the tensor cores alone. Weights reach 2^8, so
//     the range of float8 has room for a slack: the sums are rescaled only in the few blocks in which the maximum of a
//     row grows by more than 2^4. Maxima are compared three at a time, as integers.
//
// Precision. The tensor cores keep 14 bits of sums of float8 products. Softmax and its sums are float32; weights are
// rounded to float8 for the second product.
//
// Source: J. Shah et al., "FlashAttention-3", 2024 (arXiv 2407.08608), section 3.3; PTX ISA for ldmatrix and stmatrix.
#include "attention/float8.cuh"
#include "attention/hopper.cuh"
#include "attention/statistics.cuh"
#include "common/launch.cuh"

// The division of the work of a launch, as in wgmma.cu. Rows of q and k take boxes of 128 bytes, columns of values
// boxes of 128 keys; a step of 96 or 192 keys leaves a part of its last box unused.
template <int D_, int CONSUMERS_, int BLOCK_N_>
struct Float8Plan {
    static constexpr int D = D_, CONSUMERS = CONSUMERS_, BLOCK_M = CONSUMERS * 64, BLOCK_N = BLOCK_N_;
    static constexpr int PRODUCER = CONSUMERS * WARPGROUP, THREADS = PRODUCER + WARPGROUP;
    static constexpr bool TURNS = true;
    static constexpr int Q_BYTES = 64 * BOXED_BYTES<D, 1>, K_BYTES = BLOCK_N * BOXED_BYTES<D, 1>;
    static constexpr int V_BOXES = ceil_div(BLOCK_N, ROW_BYTES), V_BYTES = V_BOXES * D * ROW_BYTES;
    static constexpr int FOR_STAGES = MAX_SHARED_BYTES - 2 * BOX_ALIGNMENT - CONSUMERS * Q_BYTES;  // rest: barriers
    static constexpr int STAGES = FOR_STAGES / (K_BYTES + V_BYTES) < 4 ? FOR_STAGES / (K_BYTES + V_BYTES) : 4;
    // Offsets in shared memory.
    static constexpr int KEYS = CONSUMERS * Q_BYTES, VALUES = KEYS + STAGES * K_BYTES;
    static constexpr int Q_FULL = VALUES + STAGES * V_BYTES, Q_EMPTY = Q_FULL + CONSUMERS * MBARRIER_BYTES;
    static constexpr int K_FULL = Q_EMPTY + CONSUMERS * MBARRIER_BYTES, K_EMPTY = K_FULL + STAGES * MBARRIER_BYTES;
    static constexpr int V_FULL = K_EMPTY + STAGES * MBARRIER_BYTES, V_EMPTY = V_FULL + STAGES * MBARRIER_BYTES;
    static constexpr int TILES = V_EMPTY + STAGES * MBARRIER_BYTES;  // two tiles per consumer: current and next turn
    static constexpr int SHARED_BYTES = BOX_ALIGNMENT + TILES + 2 * CONSUMERS * int(sizeof(Tile));
    static_assert(SHARED_BYTES <= MAX_SHARED_BYTES && K_BYTES % BOX_ALIGNMENT == 0 && BLOCK_N % 32 == 0, "");
    // Registers per thread: see wgmma.cu.
    static constexpr int PRODUCER_REGISTERS = CONSUMERS == 3 ? 32 : 40;
    static constexpr int CONSUMER_REGISTERS = CONSUMERS == 3 ? 160 : 232;
};

// One thread loads in the order of use: queries; keys and values of a block before those of the next one. It passes the
// loaded tile to the consumers through shared memory, since they have no registers for the schedule.
template <typename P, typename Schedule>
__device__ __forceinline__ void load(const HeadMaps& maps, const Heads& heads, const Schedule& schedule,
                                     uint32_t shared, Tile* tiles) {
    PipelineState<P::STAGES> at;
    bool transposed = false;
    for (int turn = 0;; ++turn) {
        const Tile tile = schedule.tile(heads, turn, 0);
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
            const int key_head = tile.head / heads.G, barrier = at.stage * MBARRIER_BYTES;
            mbarrier_wait_parity(shared + P::K_EMPTY + barrier, at.phase ^ 1);
            load_rows<P::BLOCK_N, P::D, 1>(shared + P::KEYS + at.stage * P::K_BYTES, &maps.k, block * P::BLOCK_N,
                                           key_head, tile.batch, shared + P::K_FULL + barrier);
            if (!transposed) wait_for_earlier_kernel();
            transposed = true;
            mbarrier_wait_parity(shared + P::V_EMPTY + barrier, at.phase ^ 1);
            mbarrier_arrive_expect_tx(shared + P::V_FULL + barrier, P::V_BYTES);
#pragma unroll
            for (int box = 0; box < P::V_BOXES; ++box) {
                tma_load(shared + P::VALUES + at.stage * P::V_BYTES + box * P::D * ROW_BYTES, &maps.v,
                         block * P::BLOCK_N + box * ROW_BYTES, 0, key_head, tile.batch, shared + P::V_FULL + barrier);
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
    PipelineState<P::STAGES> keys, values;
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
        uint32_t weights[P::BLOCK_N / 8];
        Float8Softmax softmax;
        auto mask = [&](int block) { hide_after<P::BLOCK_N, CAUSAL>(scores, heads, query, block, thread); };
        auto multiply_keys = [&] {
            mbarrier_wait_parity(shared + P::K_FULL + keys.stage * MBARRIER_BYTES, keys.phase);
            turns.take();
            wgmma_fence();
            multiply_float8_keys<P>(scores, q, shared + P::KEYS + keys.stage * P::K_BYTES);
            wgmma_commit_group();
        };
        auto multiply_values = [&](int add) {
            mbarrier_wait_parity(shared + P::V_FULL + values.stage * MBARRIER_BYTES, values.phase);
            multiply_float8_values<P>(acc, weights, shared + P::VALUES + values.stage * P::V_BYTES, add);
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
            if (softmax.has_grown()) {
                wgmma_wait_in_warp();
                warpgroup_fence_operand(acc);
                softmax.rescale(acc);
            }
            end_values();  // after a branch, which keeps ptxas from waiting before the exponentials
            round_to_weights(weights, scores);
        };

        multiply_keys();
        turns.pass();
        wgmma_wait_group<0>();
        end_keys();
        const int unmasked = tile.unmasked;
        int block = tile.blocks - 1;
        if (block >= unmasked) mask(block);
        softmax.weigh(scores, scale);
        round_to_weights(weights, scores);
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
            mbarrier_init(shared + P::V_FULL + i * MBARRIER_BYTES, 1);
            mbarrier_init(shared + P::V_EMPTY + i * MBARRIER_BYTES, P::CONSUMERS);
        }
        mbarrier_fence_init();
    }
    __syncthreads();  // the barriers are initialized

    if (warpgroup == P::CONSUMERS) {
        setmaxnreg_dec<P::PRODUCER_REGISTERS>();
        const int warp = __shfl_sync(0xffffffffu, (threadIdx.x - P::PRODUCER) / 32, 0);
        if (threadIdx.x == P::PRODUCER) load<P>(maps, heads, schedule, shared, tiles);
        if (Schedule::CAUSAL && warp == 3) store_blind_rows<__nv_bfloat16, P::D>(heads, out, schedule);
    } else {
        setmaxnreg_inc<P::CONSUMER_REGISTERS>();
        consume<P, Schedule::CAUSAL>(heads, out, aligned, tiles, warpgroup);
    }
}

// Writes the values by columns. A block has TRANSPOSED keys of a head.
template <int D>
__global__ void __launch_bounds__(TRANSPOSING_WARPS * 32)
    transpose_values(const __grid_constant__ ValueMaps maps, int H_kv, int blocks) {
    constexpr int ROWS = 0, COLUMNS = TRANSPOSED * BOXED_BYTES<D, 1>, FULL = COLUMNS + D * ROW_BYTES;
    extern __shared__ char raw[];
    char* const aligned = raw + (-shared_address(raw) & (BOX_ALIGNMENT - 1));
    const uint32_t shared = shared_address(aligned);
    const int head = blockIdx.x / blocks, key = blockIdx.x % blocks * TRANSPOSED;
    if (threadIdx.x == 0) {
        start_next_kernel();
        mbarrier_init(shared + FULL, 1);
        mbarrier_fence_init();
        load_rows<TRANSPOSED, D, 1>(shared + ROWS, &maps.rows, key, head % H_kv, head / H_kv, shared + FULL);
    }
    __syncthreads();
    mbarrier_wait_parity(shared + FULL, 0);
    transpose<D>(aligned + ROWS, shared + COLUMNS, __shfl_sync(0xffffffffu, threadIdx.x / 32, 0));
    fence_proxy_async();  // makes the stores visible to TMA
    __syncthreads();
    if (threadIdx.x == 0) {
        tma_store(&maps.columns, shared + COLUMNS, key, 0, head % H_kv, head / H_kv);
        tma_store_commit_group();
        tma_store_wait_complete();
    }
}

template <int D>
cudaError_t launch_transpose(const ValueMaps& maps, int64_t B, int H_kv, int blocks, cudaStream_t stream,
                             LaunchRecord* record) {
    constexpr int SHARED_BYTES = BOX_ALIGNMENT + TRANSPOSED * BOXED_BYTES<D, 1> + D * ROW_BYTES + MBARRIER_BYTES;
    return launch_clusters(1, transpose_values<D>, dim3(unsigned(B * H_kv * blocks)), TRANSPOSING_WARPS * 32,
                           SHARED_BYTES, stream, record, maps, H_kv, blocks);
}

template <typename P, bool CAUSAL>
cudaError_t launch(const Heads& heads, uint8_t* columns, int64_t B, void* out, cudaStream_t stream,
                   LaunchRecord* record) {
    const int H_kv = heads.H / heads.G, blocks = ceil_div(heads.S_k, TRANSPOSED);
    HeadMaps maps;
    ValueMaps values;
    if (!encode_maps<Float8, P::D>(&maps, heads, B, P::BLOCK_N) ||
        !encode_values<P::D>(&values, heads, columns, B, blocks)) {
        return cudaErrorInvalidValue;
    }
    maps.v = values.columns;
    const cudaError_t error = launch_transpose<P::D>(values, B, H_kv, blocks, stream, record);
    if (error != cudaSuccess) return error;
    const Schedule<P::BLOCK_M, P::BLOCK_N, CAUSAL> schedule(heads, multiprocessor_count());
    const int64_t blind = int64_t(heads.count) * schedule.blind_rows;
    const auto grid = std::min<int64_t>(std::max<int64_t>(schedule.teams, blind), multiprocessor_count());
    return launch_early(attention_float8<P, std::remove_const_t<decltype(schedule)>>, dim3(unsigned(grid)), P::THREADS,
                        P::SHARED_BYTES, stream, record, maps, heads, schedule, static_cast<__nv_bfloat16*>(out));
}

template <typename Full, typename Causal>
cudaError_t launch_plan(const Heads& heads, uint8_t* columns, int64_t B, bool causal, void* out, cudaStream_t stream,
                        LaunchRecord* record) {
    return causal ? launch<Causal, true>(heads, columns, B, out, stream, record)
                  : launch<Full, false>(heads, columns, B, out, stream, record);
}

// Strides are in elements. scale_q, scale_k and scale_v: on the device. columns: (B, H_kv, D, S_k rounded up to 128).
extern "C" int attention_float8(const void* q, const void* k, const void* v, const float* scale_q,
                                const float* scale_k, const float* scale_v, uint8_t* columns, void* out, int64_t B,
                                int64_t H, int64_t H_kv, int64_t S_q, int64_t S_k, int64_t D, int64_t q_batch,
                                int64_t q_head, int64_t q_row, int64_t k_batch, int64_t k_head, int64_t k_row,
                                int64_t v_batch, int64_t v_head, int64_t v_row, int64_t causal, double scale_log2,
                                cudaStream_t stream, LaunchRecord* record) {
    Heads heads{int(H),   int(H / H_kv),
                int(S_q), int(S_k),
                int(B * H), float(scale_log2),
                q,        k,
                v,        {q_batch, q_head, q_row},
                {k_batch, k_head, k_row}, {v_batch, v_head, v_row},
                {H * S_q * D, S_q * D, D}};
    heads.scale_q = scale_q, heads.scale_k = scale_k, heads.scale_v = scale_v;
    auto run = [&](auto full, auto masked) {
        return launch_plan<decltype(full), decltype(masked)>(heads, columns, B, causal, out, stream, record);
    };
    switch (D) {
        case 64: return run(Float8Plan<64, 3, 128>(), Float8Plan<64, 3, 128>());
        case 128: return run(Float8Plan<128, 2, 192>(), Float8Plan<128, 3, 96>());
        case 256: return run(Float8Plan<256, 2, 96>(), Float8Plan<256, 2, 96>());
        default: return cudaErrorNotSupported;
    }
}
