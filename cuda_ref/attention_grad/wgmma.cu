// dq, dk, dv: the gradients of the sum of do * o, where o = softmax(sm_scale q k^T) v, 16 bits, on Hopper's tensor
// cores
//
// requires: sm_90a
//
// With p = softmax(sm_scale q k^T), dp = do v^T, delta = a row's sum of do * o, and ds = p * (dp - delta):
//     dq = sm_scale ds k        dk = sm_scale ds^T q        dv = p^T do
// attention/wgmma.cu has computed delta and lse, the logarithm of a row's sum of exponentials. Then three kernels run:
//   prepare           clears the counters by which blocks order their sums
//   gradients         computes all five products; a block keeps 128 keys and values and reads the queries that see them
//   finish            rounds the float32 sums of dq, on multiprocessors that have no more work of `gradients`
// A fourth kernel runs if the query heads of a key head are divided into parts to occupy all multiprocessors:
//   add_parts         adds the parts' float32 sums of dk and dv, in a fixed order
//
// Roles in `gradients`. Two threads of a producer warpgroup copy tiles by TMA; two others add the block's part of dq to
// global memory. Two consumer warpgroups keep 64 keys each. Scores and dp are computed transposed, one key per row, so
// that p^T and ds^T, rounded, are left operands of the products with do and q in registers. dv and dk stay there.
// ds also goes through shared memory: dq is a sum over the keys of both consumers, and each computes half of it.
//
// Order of the sums of dq. Blocks of keys add to a tile of queries in ascending order: each waits until the previous
// one has added. All begin with the last queries, which every block of keys needs even under a causal mask, so that
// each is one step behind the previous one. With a window they begin with the last queries that see the block, and a
// block waits only if the previous one sees the tile too. Blocks take their work in the order in which they start, so
// they wait only for blocks that already run. The first block of a tile stores instead of adding, so that the sums need
// no zeros.
//
// Overlap. The scores of the next queries start before dq leaves the registers. dv is multiplied during the exchange of
// ds, and dk during the wait for the other consumer's ds.
//
// Speed: docs/lab/attention_grad.md
//
// Source: J. Shah et al., "FlashAttention-3", 2024 (arXiv 2407.08608).
#include "attention_grad/hopper.cuh"
#include "common/launch.cuh"

// Copies the keys or values that the block keeps.
template <typename P>
__device__ __forceinline__ void load_kept(const CUtensorMap* map, const Problem& problem, const Work& work, uint32_t to,
                                          uint32_t barrier) {
    mbarrier_arrive_expect_tx(barrier, CONSUMERS * P::PART_BYTES);
    for (int i = 0; i < CONSUMERS; ++i) {
        load_boxes<64, P::D>(to + i * P::PART_BYTES, map, work.block * BLOCK_N + i * 64,
                             work.head / problem.parts, work.batch, barrier);
    }
}

// Copies tiles of queries, or of do, and one number per query. The stages of the three begin at `shared`.
template <typename P, bool WINDOW>
__device__ __forceinline__ void load_tiles(const CUtensorMap* map, const float* numbers, const Problem& problem,
                                           const Work& work, uint32_t to, uint32_t numbers_to, uint32_t full,
                                           uint32_t empty) {
    PipelineState<STAGES> at;
    for_each_tile<WINDOW>(problem, work, [&](int, int head, int tile) {
        const uint32_t barrier = full + at.stage * MBARRIER_BYTES;
        mbarrier_wait_parity(empty + at.stage * MBARRIER_BYTES, at.phase ^ 1);
        load_rows<P::BLOCK_M, P::D>(to + at.stage * P::TILE_BYTES, map, tile * P::BLOCK_M,
                                    head - work.batch * problem.H, work.batch, barrier,
                                    P::TILE_BYTES + P::ROW_NUMBERS_BYTES);
        bulk_load(numbers_to + at.stage * P::ROW_NUMBERS_BYTES,
                  numbers + (int64_t(head) * problem.tiles + tile) * P::BLOCK_M, P::ROW_NUMBERS_BYTES, barrier);
        at.advance();
    });
}

// Adds the block's part of dq to every second tile, in the order of blocks. So one thread waits until the sums of a
// tile are in memory, while the other thread adds those of the next tile.
template <typename P, bool WINDOW>
__device__ __forceinline__ void add_dq(const Problem& problem, const Work& work, uint32_t shared, int parity,
                                       int window) {
    for_each_tile<WINDOW>(problem, work, [&](int step, int head, int tile) {
        if (step % 2 != parity) return;
        const int64_t at = int64_t(head) * problem.tiles + tile;
        float* const sums = problem.dq_sums + at * (P::BLOCK_M * P::D);
        int* const added = problem.counters + 2 + at;
        const int before = work.block - first_block_of<P::BLOCK_M, WINDOW>(problem, tile, window);
        while (load_acquire(added) != before) __nanosleep(20);
        mbarrier_wait_parity(shared + P::DQ_FULL + parity * MBARRIER_BYTES, step / 2 % 2);
        const int buffer = parity % P::DQ_BUFFERS;
        if (before == 0) {
            bulk_store(sums, shared + P::DQ + buffer * P::DQ_BYTES, P::DQ_BYTES);
        } else {
            bulk_add(sums, shared + P::DQ + buffer * P::DQ_BYTES, P::DQ_BYTES);
        }
        tma_store_commit_group();
        tma_store_wait_group_read<0>();
        mbarrier_arrive(shared + P::DQ_EMPTY + buffer * MBARRIER_BYTES);
        tma_store_wait_complete();
        increment_release(added);
    });
}

// Stores ds^T of 16 keys per warp to a box of ds with one query per row and 64 keys. `x`: pairs of a left operand.
template <int COUNT>
__device__ __forceinline__ void store_transposed(uint32_t box, const uint32_t (&x)[COUNT]) {
    const int lane = threadIdx.x % 32, chunk = threadIdx.x % WARPGROUP / 32 * 2 + lane / 8 % 2;
#pragma unroll
    for (int i = 0; i < COUNT / 4; ++i) {
        const int query = 16 * i + lane / 16 * 8 + lane % 8;
        stmatrix_x4_transposed(box + query * ROW_BYTES + (chunk ^ (query % 8)) * 16, x[4 * i], x[4 * i + 1],
                               x[4 * i + 2], x[4 * i + 3]);
    }
}

// sums = ds k, for 64 queries, all keys of the block, and 64 columns of k.
template <typename T, typename P>
__device__ __forceinline__ void multiply_gradients(float (&sums)[32], uint32_t ds, uint32_t keys, int consumer) {
    const int first_row = P::D == 64 ? consumer * 64 : 0, box = P::D == 64 ? 0 : consumer;
    const uint64_t a = wgmma_descriptor(ds + first_row * ROW_BYTES, 0);
    const uint64_t b = wgmma_descriptor(keys + box * BOX_BYTES, BOX_BYTES);
#pragma unroll
    for (int i = 0; i < BLOCK_N / 16; ++i) {
        const int a_step = i / 4 * (P::DS_BOX_BYTES >> 4) + i % 4 * K_MAJOR_STEP;
        const int b_step = i / 4 * (P::PART_BYTES >> 4) + i % 4 * MN_MAJOR_STEP;
        wgmma<T, true>(sums, a + a_step, b + b_step, i > 0);
    }
}

// The numbers of the queries of a thread's columns, in shared memory: two of each eight columns.
__device__ __forceinline__ float2 of_columns(uint32_t numbers, int i) {
    return load_shared_pair(numbers + (8 * i + threadIdx.x % 4 * 2) * 4);
}

// Stores dk and dv of 64 keys from `row` on, or the sums of a part.
template <typename T, typename P>
__device__ __forceinline__ void store_of_keys(const Problem& problem, const Work& work, int row,
                                              const float (&dk_sums)[P::D / 2], const float (&dv_sums)[P::D / 2],
                                              T* __restrict__ dk, T* __restrict__ dv) {
    const int64_t before = (int64_t(work.batch) * (problem.H / problem.G) + work.head) * problem.S_k * P::D;
    if (problem.parts == 1) {
        store_rows(dk + before, P::D, dk_sums, row, problem.S_k);
        store_rows(dv + before, P::D, dv_sums, row, problem.S_k);
    } else {
        store_sums(problem.part_sums + before, P::D, dk_sums, row, problem.S_k);
        store_sums(problem.part_sums + int64_t(problem.key_heads) * problem.S_k * P::D + before, P::D, dv_sums, row,
                   problem.S_k);
    }
}

template <typename T, typename P, bool CAUSAL, bool WINDOW>
__device__ __forceinline__ void consume(const Problem& problem, const Work& work, uint32_t shared, int consumer,
                                        T* __restrict__ dk, T* __restrict__ dv, int window) {
    constexpr int BLOCK_M = P::BLOCK_M;
    const int thread = threadIdx.x % WARPGROUP, lane = threadIdx.x % 32, row = work.block * BLOCK_N + consumer * 64;
    const int first_key = row + thread / 32 * 16 + lane / 4;  // first key; the second is 8 further
    const uint32_t keys = shared + P::KEYS + consumer * P::PART_BYTES;
    const uint32_t values = shared + P::VALUES + consumer * P::PART_BYTES;
    float scores[BLOCK_M / 2], dp[BLOCK_M / 2], dk_sums[P::D / 2] = {}, dv_sums[P::D / 2] = {}, dq_sums[32];
    uint32_t weights[BLOCK_M / 4], gradients[BLOCK_M / 4];
    PipelineState<STAGES> at;
    auto wait_full = [&](int full, const PipelineState<STAGES>& state) {
        mbarrier_wait_parity(shared + full + state.stage * MBARRIER_BYTES, state.phase);
    };
    auto start_scores = [&](const PipelineState<STAGES>& state) {
        wait_full(P::Q_FULL, state);
        wgmma_fence();
        multiply_keys<T, P::D>(scores, keys, shared + P::Q + state.stage * P::TILE_BYTES);
        wgmma_commit_group();
    };
    mbarrier_wait_parity(shared + P::K_FULL, 0);
    start_scores(at);
    wgmma_wait_group<0>();
    warpgroup_fence_operand(scores);
    mbarrier_wait_parity(shared + P::V_FULL, 0);
    const int end = WINDOW ? work.end : problem.tiles, steps = problem.G * (end - work.first);
    int tile = end - 1, in_group = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        const uint32_t q = shared + P::Q + at.stage * P::TILE_BYTES;
        const uint32_t d_out = shared + P::D_OUT + at.stage * P::TILE_BYTES;
        const uint32_t ds = shared + P::DS + step % 2 * CONSUMERS * P::DS_BOX_BYTES;
        wait_full(P::D_OUT_FULL, at);
        wgmma_fence();
        multiply_keys<T, P::D>(dp, values, d_out);
        wgmma_commit_group();
        const int later = problem.S_k - problem.S_q, query = tile * BLOCK_M;
        const bool ends = WINDOW && query + BLOCK_M > row - later + window;  // a window ends in the tile
        if ((CAUSAL && query < row + 63 - later) || ends || row + 64 > problem.S_k || query + BLOCK_M > problem.S_q) {
#pragma unroll
            for (int i = 0; i < BLOCK_M / 2; ++i) {
                const int key = first_key + i / 2 % 2 * 8, column = query + i / 4 * 8 + lane % 4 * 2 + i % 2;
                const bool hidden =
                    (CAUSAL && column < key - later) || (WINDOW && column >= key - later + window);
                if (hidden || key >= problem.S_k || column >= problem.S_q) scores[i] = -INF;
            }
        }
#pragma unroll
        for (int i = 0; i < BLOCK_M / 2; i += 4) {
            const float2 lse = of_columns(shared + P::LSE + at.stage * P::ROW_NUMBERS_BYTES, i / 4);
            scores[i] = exp2_approximate(fmaf(scores[i], problem.scale_log2, -lse.x));
            scores[i + 1] = exp2_approximate(fmaf(scores[i + 1], problem.scale_log2, -lse.y));
            scores[i + 2] = exp2_approximate(fmaf(scores[i + 2], problem.scale_log2, -lse.x));
            scores[i + 3] = exp2_approximate(fmaf(scores[i + 3], problem.scale_log2, -lse.y));
        }
        round_weights<T>(weights, scores);
        wgmma_fence();
        multiply_values<T>(dv_sums, weights, d_out, 1);
        wgmma_commit_group();
        wgmma_wait_group<1>();
        warpgroup_fence_operand(dp);
#pragma unroll
        for (int i = 0; i < BLOCK_M / 2; i += 4) {
            const float2 delta = of_columns(shared + P::DELTA + at.stage * P::ROW_NUMBERS_BYTES, i / 4);
            if constexpr (P::ROUNDED) {
                unpack<T>(scores[i], scores[i + 1], weights[i / 2]);
                unpack<T>(scores[i + 2], scores[i + 3], weights[i / 2 + 1]);
            }
            dp[i] = scores[i] * (dp[i] - delta.x), dp[i + 1] = scores[i + 1] * (dp[i + 1] - delta.y);
            dp[i + 2] = scores[i + 2] * (dp[i + 2] - delta.x), dp[i + 3] = scores[i + 3] * (dp[i + 3] - delta.y);
        }
        round_weights<T>(gradients, dp);
        store_transposed(ds + consumer * P::DS_BOX_BYTES, gradients);
        fence_proxy_async();
        __syncwarp();
        if (lane == 0) mbarrier_arrive(shared + P::DS_FULL);
        wgmma_fence();
        multiply_values<T>(dk_sums, gradients, q, 1);
        wgmma_commit_group();
        mbarrier_wait_parity(shared + P::DS_FULL, step % 2);
        wgmma_fence();
        multiply_gradients<T, P>(dq_sums, ds, shared + P::KEYS, consumer);
        wgmma_commit_group();
        wgmma_wait_group<1>();
        warpgroup_fence_operand(weights);
        warpgroup_fence_operand(gradients);
        PipelineState<STAGES> next = at;  // the last step repeats its scores, so that no product is in a branch
        if (step + 1 < steps) next.advance();
        start_scores(next);
        wgmma_wait_group<1>();
        warpgroup_fence_operand(dq_sums);
        // One thread is enough: it has waited for DS_FULL, where all threads arrive after they have read lse and delta.
        if (thread == 0) mbarrier_arrive(shared + P::EMPTY + at.stage * MBARRIER_BYTES);
        const int buffer = step % P::DQ_BUFFERS;
        mbarrier_wait_parity(shared + P::DQ_EMPTY + buffer * MBARRIER_BYTES, step / P::DQ_BUFFERS % 2 ^ 1);
        const uint32_t to = shared + P::DQ + buffer * P::DQ_BYTES + consumer * (P::DQ_BYTES / CONSUMERS) + thread * 16;
#pragma unroll
        for (int i = 0; i < 32; i += 4) {
            store_shared(to + i / 4 * WARPGROUP * 16,
                         make_float4(dq_sums[i], dq_sums[i + 1], dq_sums[i + 2], dq_sums[i + 3]));
        }
        fence_proxy_async();
        __syncwarp();
        if (lane == 0) mbarrier_arrive(shared + P::DQ_FULL + step % 2 * MBARRIER_BYTES);
        wgmma_wait_group<0>();
        warpgroup_fence_operand(scores);
        if (++in_group == problem.G) in_group = 0, --tile;
        at = next;
    }
    warpgroup_fence_operand(dk_sums);
    warpgroup_fence_operand(dv_sums);
#pragma unroll
    for (int i = 0; i < P::D / 2; ++i) dk_sums[i] *= problem.scale;
    store_of_keys<T, P>(problem, work, row, dk_sums, dv_sums, dk, dv);
}

// WINDOW: a query sees at most `window` keys, up to its own.
template <typename T, typename P, bool CAUSAL, bool WINDOW>
__global__ void __launch_bounds__(P::THREADS, 1)
    gradients(const __grid_constant__ GradMaps maps, const __grid_constant__ Problem problem, T* __restrict__ dk,
              T* __restrict__ dv, int window) {
    extern __shared__ char raw[];
    char* const aligned = raw + (-shared_address(raw) & (BOX_ALIGNMENT - 1));
    const uint32_t shared = shared_address(aligned);
    int* const ticket = reinterpret_cast<int*>(aligned + P::TICKET);
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP, 0);  // warp-uniform for the compiler
    if (threadIdx.x == P::PRODUCER) {
        start_next_kernel();
        tma_prefetch_descriptor(&maps.k);
        tma_prefetch_descriptor(&maps.v);
        tma_prefetch_descriptor(&maps.q);
        tma_prefetch_descriptor(&maps.d_out);
        *ticket = atomicAdd(problem.counters, 1);
        mbarrier_init(shared + P::K_FULL, 1);
        mbarrier_init(shared + P::V_FULL, 1);
        mbarrier_init(shared + P::DS_FULL, CONSUMERS * WARPGROUP / 32);
        for (int i = 0; i < 2; ++i) {
            mbarrier_init(shared + P::DQ_FULL + i * MBARRIER_BYTES, CONSUMERS * WARPGROUP / 32);
            mbarrier_init(shared + P::DQ_EMPTY + i * MBARRIER_BYTES, 1);
        }
        for (int i = 0; i < STAGES; ++i) {
            mbarrier_init(shared + P::Q_FULL + i * MBARRIER_BYTES, 1);
            mbarrier_init(shared + P::D_OUT_FULL + i * MBARRIER_BYTES, 1);
            mbarrier_init(shared + P::EMPTY + i * MBARRIER_BYTES, CONSUMERS);
        }
        mbarrier_fence_init();
    }
    __syncthreads();  // the barriers are initialized, and the ticket is known
    const Work work = work_at<P::BLOCK_M, CAUSAL, WINDOW>(problem, *ticket, window);
    if (WINDOW && work.end == 0) {  // no query sees these keys
        const float zeros[P::D / 2] = {};
        if (warpgroup < CONSUMERS) {
            store_of_keys<T, P>(problem, work, work.block * BLOCK_N + warpgroup * 64, zeros, zeros, dk, dv);
        }
        return;
    }
    if (warpgroup == CONSUMERS) {
        setmaxnreg_dec<24>();
        const uint32_t empty = shared + P::EMPTY;
        if (threadIdx.x == P::PRODUCER) {
            load_kept<P>(&maps.k, problem, work, shared + P::KEYS, shared + P::K_FULL);
            load_tiles<P, WINDOW>(&maps.q, problem.lse, problem, work, shared + P::Q, shared + P::LSE,
                                  shared + P::Q_FULL, empty);
        } else if (threadIdx.x == P::PRODUCER + 32) {
            load_kept<P>(&maps.v, problem, work, shared + P::VALUES, shared + P::V_FULL);
            load_tiles<P, WINDOW>(&maps.d_out, problem.delta, problem, work, shared + P::D_OUT, shared + P::DELTA,
                                  shared + P::D_OUT_FULL, empty);
        } else if (threadIdx.x == P::PRODUCER + 64 || threadIdx.x == P::PRODUCER + 96) {
            add_dq<P, WINDOW>(problem, work, shared, (threadIdx.x - P::PRODUCER) / 32 % 2, window);
        }
    } else {
        setmaxnreg_inc<240>();
        consume<T, P, CAUSAL, WINDOW>(problem, work, shared, warpgroup, dk, dv, window);
    }
}

template <typename T, typename P, bool CAUSAL, bool WINDOW>
cudaError_t launch(const GradMaps& maps, const Problem& problem, int64_t B, T* dq, T* dk, T* dv, int window,
                   cudaStream_t stream, LaunchRecord* record) {
    constexpr int THREADS = 256, TOGETHER = 2048 / (CONSUMERS * WARPGROUP);  // blocks that fit on a multiprocessor
    const int tiles = int(B * problem.H * problem.tiles);
    const dim3 grid(ceil_div(tiles, THREADS));
    record->set(grid, THREADS);
    prepare<P><<<grid, THREADS, 0, stream>>>(problem, tiles);
    const dim3 blocks(unsigned(problem.key_heads) * ceil_div(problem.S_k, BLOCK_N));
    const cudaError_t error = launch_clusters(1, gradients<T, P, CAUSAL, WINDOW>, blocks, P::THREADS, P::SHARED_BYTES,
                                              stream, record, maps, problem, dk, dv, window);
    if (error != cudaSuccess) return error;
    const dim3 rounding(unsigned(std::min(tiles, TOGETHER * multiprocessor_count())));
    const cudaError_t ended =
        launch_early(finish<T, P, CAUSAL, WINDOW>, rounding, CONSUMERS * WARPGROUP, 0, stream, record, problem, dq,
                     tiles, window);
    if (ended != cudaSuccess || problem.parts == 1) return ended;
    const int key_heads = problem.key_heads / problem.parts;
    const int64_t head_quads = int64_t(problem.S_k) * P::D / 4;
    const dim3 adding(unsigned(ceil_div<int64_t>(2 * key_heads * head_quads, THREADS)));
    record->set(adding, THREADS);
    add_parts<T><<<adding, THREADS, 0, stream>>>(problem.part_sums, key_heads, problem.parts, dk, dv, head_quads);
    return cudaGetLastError();
}

// Strides are in elements. together, parts, part_sums: see Problem. lse and delta are (B, H, tiles * BLOCK_M), and so
// are the rows of dq_sums. window: 0 for none; with causal only.
extern "C" int attention_grad_wgmma(const void* q, const void* k, const void* v, const void* d_out, void* lse,
                                    void* delta, void* dq_sums, void* part_sums, void* counters, void* dq,
                                    void* dk, void* dv, int64_t B, int64_t H, int64_t H_kv, int64_t S_q, int64_t S_k,
                                    int64_t D,
                                    int64_t q_batch, int64_t q_head, int64_t q_row, int64_t k_batch, int64_t k_head,
                                    int64_t k_row, int64_t v_batch, int64_t v_head, int64_t v_row, int64_t o_batch,
                                    int64_t o_head, int64_t o_row, int64_t together, int64_t parts, int64_t causal,
                                    int64_t window, double scale, double scale_log2, int64_t dtype,
                                    cudaStream_t stream, LaunchRecord* record) {
    return dispatch_heads(dtype, D, causal, [&](auto zero, auto head, auto is_causal) {
        using T = decltype(zero);
        constexpr int HEAD = decltype(head)::value;
        if constexpr (HEAD == 256) {
            return cudaErrorNotSupported;
        } else {
            using P = Plan<HEAD>;
            const Problem problem{int(H), int(H / H_kv / parts), int(S_q), int(S_k), int(B * H_kv * parts), int(parts),
                                  int(ceil_div<int64_t>(S_q, P::BLOCK_M)), int(together), float(scale),
                                  float(scale_log2), static_cast<float*>(lse), static_cast<float*>(delta),
                                  static_cast<float*>(dq_sums), static_cast<float*>(part_sums),
                                  static_cast<int*>(counters)};
            GradMaps maps;
            auto encode = [&](CUtensorMap* map, const void* x, int64_t heads, int64_t S, const HeadStrides& strides,
                              int rows) {
                return encode_tensor_map<4>(map, TENSOR_MAP_TYPE<T>, sizeof(T), x, {HEAD, S, heads, B},
                                            {strides.row, strides.head, strides.batch}, {rows, 1, 1});
            };
            if (!encode(&maps.q, q, H, S_q, {q_batch, q_head, q_row}, P::BLOCK_M) ||
                !encode(&maps.k, k, H_kv, S_k, {k_batch, k_head, k_row}, 64) ||
                !encode(&maps.v, v, H_kv, S_k, {v_batch, v_head, v_row}, 64) ||
                !encode(&maps.d_out, d_out, H, S_q, {o_batch, o_head, o_row}, P::BLOCK_M)) {
                return cudaErrorInvalidValue;
            }
            constexpr bool CAUSAL = decltype(is_causal)::value;
            const auto run = CAUSAL && window > 0 ? launch<T, P, CAUSAL, CAUSAL> : launch<T, P, CAUSAL, false>;
            return run(maps, problem, B, static_cast<T*>(dq), static_cast<T*>(dk), static_cast<T*>(dv), int(window),
                       stream, record);
        }
    });
}
