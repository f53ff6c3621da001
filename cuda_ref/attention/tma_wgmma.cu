// out[b, h, i] = sum over j of softmax_j(sm_scale * q[b, h, i] . k[b, h_kv, j]) * v[b, h_kv, j], 16 bits, on Hopper's
// tensor cores, one step after the other
//
// requires: sm_90a
//
// Adds to tiles.cu TMA and the tensor cores; scores stay in registers.
//   - TMA copies tiles of 64 rows of q and of 128 keys and values to shared memory, two stages ahead of their use.
//   - wgmma multiplies. Two warpgroups compute 64 queries each. The tile of scores stays in registers: rounded, it is
//     the left operand of the product with v.
//   - A warpgroup does everything in order: scores, softmax, sums. While it computes a softmax, the tensor cores are
//     busy only if the other warpgroup multiplies.
//
// wgmma.cu continues with specialized warps, products during the softmax, and persistent blocks.
//
// Speed: docs/ladder.md
//
// Precision: as in wgmma.cu.
//
// Source: online softmax as in attention.cu; PTX ISA for TMA and wgmma.
#include "attention/hopper.cuh"
#include "common/launch.cuh"

constexpr int WARPGROUPS = 2, BLOCK_M = WARPGROUPS * 64, THREADS = WARPGROUPS * WARPGROUP, STAGES = 2;

template <int D>
struct Memory {  // offsets in shared memory
    static constexpr int BLOCK_N = D == 256 ? 64 : 128, Q_BYTES = 64 * D * 2, BLOCK_BYTES = BLOCK_N * D * 2;
    static constexpr int KEYS = WARPGROUPS * Q_BYTES, VALUES = KEYS + STAGES * BLOCK_BYTES;
    static constexpr int Q_FULL = VALUES + STAGES * BLOCK_BYTES, FULL = Q_FULL + MBARRIER_BYTES;
    static constexpr int SHARED_BYTES = BOX_ALIGNMENT + FULL + STAGES * MBARRIER_BYTES;
    static_assert(SHARED_BYTES <= MAX_SHARED_BYTES, "");
};

// A block computes BLOCK_M queries of one head, the last queries first.
template <typename T, int D, bool CAUSAL>
__global__ void __launch_bounds__(THREADS, 1)
    attention_tma_wgmma(const __grid_constant__ HeadMaps maps, const __grid_constant__ Heads heads,
                        T* __restrict__ out) {
    using M = Memory<D>;
    constexpr int BLOCK_N = M::BLOCK_N;
    extern __shared__ char raw[];
    const uint32_t start = shared_address(raw), shared = start + (-start & (BOX_ALIGNMENT - 1));
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP, 0), thread = threadIdx.x % WARPGROUP;
    const int row_of_tiles = ceil_div(heads.S_q, BLOCK_M) - 1 - blockIdx.x / heads.count;
    const Tile tile = tile_at<BLOCK_M, BLOCK_N, CAUSAL>(heads, blockIdx.x % heads.count, row_of_tiles);

    auto load = [&](int block, int stage) {  // loads keys and values of a block
        const uint32_t full = shared + M::FULL + stage * MBARRIER_BYTES, to = shared + stage * M::BLOCK_BYTES;
        load_rows<BLOCK_N, D>(to + M::KEYS, &maps.k, block * BLOCK_N, tile.head / heads.G, tile.batch, full,
                              2 * M::BLOCK_BYTES);
        load_boxes<BLOCK_N, D>(to + M::VALUES, &maps.v, block * BLOCK_N, tile.head / heads.G, tile.batch, full);
    };
    if (threadIdx.x == 0) {
        mbarrier_init(shared + M::Q_FULL, 1);
        for (int stage = 0; stage < STAGES; ++stage) mbarrier_init(shared + M::FULL + stage * MBARRIER_BYTES, 1);
        mbarrier_fence_init();
        load_rows<64, D>(shared, &maps.q, tile.first_query, tile.head, tile.batch, shared + M::Q_FULL,
                         WARPGROUPS * M::Q_BYTES);
        load_boxes<64, D>(shared + M::Q_BYTES, &maps.q, tile.first_query + 64, tile.head, tile.batch,
                          shared + M::Q_FULL);
        for (int stage = 0; stage < min(STAGES, tile.blocks); ++stage) load(tile.blocks - 1 - stage, stage);
    }
    __syncthreads();  // the barriers are initialized

    const int row = tile.first_query + warpgroup * 64;
    const int query = row + thread / 32 * 16 + thread % 32 / 4;  // first of this thread's two rows
    float scores[BLOCK_N / 2], acc[D / 2] = {};
    uint32_t weights[BLOCK_N / 4];
    Softmax<false> softmax;
    PipelineState<STAGES> state;
    mbarrier_wait_parity(shared + M::Q_FULL, 0);
#pragma unroll 1
    for (int block = tile.blocks - 1; block >= 0; --block) {
        mbarrier_wait_parity(shared + M::FULL + state.stage * MBARRIER_BYTES, state.phase);
        wgmma_fence();
        multiply_keys<T, D>(scores, shared + warpgroup * M::Q_BYTES, shared + M::KEYS + state.stage * M::BLOCK_BYTES);
        wgmma_commit_group();
        wgmma_wait_group<0>();
        warpgroup_fence_operand(scores);
        if (block >= tile.unmasked) hide_after<BLOCK_N, CAUSAL>(scores, heads, query, block, thread);
        softmax.weigh(scores, heads.scale_log2);
        softmax.rescale(acc);
        round_weights<T>(weights, scores);
        wgmma_fence();
        multiply_values<T>(acc, weights, shared + M::VALUES + state.stage * M::BLOCK_BYTES, 1);
        wgmma_commit_group();
        wgmma_wait_group<0>();
        warpgroup_fence_operand(acc);
        warpgroup_fence_operand(weights);
        __syncthreads();  // both warpgroups have read the stage
        if (threadIdx.x == 0 && block >= STAGES) load(block - STAGES, state.stage);
        state.advance();
    }
    softmax.normalize(acc);
    store_output<T, CAUSAL>(heads, out, acc, tile, row);
}

template <typename T, int D, bool CAUSAL>
cudaError_t launch(const Heads& heads, int64_t B, void* out, cudaStream_t stream, LaunchRecord* record) {
    HeadMaps maps;
    if (!encode_maps<T, D>(&maps, heads, B, Memory<D>::BLOCK_N)) return cudaErrorInvalidValue;
    const dim3 grid(unsigned(heads.count) * ceil_div(heads.S_q, BLOCK_M));
    return launch_clusters(1, attention_tma_wgmma<T, D, CAUSAL>, grid, THREADS, Memory<D>::SHARED_BYTES, stream,
                           record, maps, heads, static_cast<T*>(out));
}

// Strides are in elements.
extern "C" int attention_tma_wgmma(const void* q, const void* k, const void* v, void* out, int64_t B, int64_t H,
                                   int64_t H_kv, int64_t S_q, int64_t S_k, int64_t D, int64_t q_batch, int64_t q_head,
                                   int64_t q_row, int64_t k_batch, int64_t k_head, int64_t k_row, int64_t v_batch,
                                   int64_t v_head, int64_t v_row, int64_t out_batch, int64_t out_head,
                                   int64_t out_row, int64_t causal, double scale_log2, int64_t dtype,
                                   cudaStream_t stream, LaunchRecord* record) {
    const Heads heads{int(H),   int(H / H_kv),
                      int(S_q), int(S_k),
                      int(B * H), float(scale_log2),
                      q,        k,
                      v,        {q_batch, q_head, q_row},
                      {k_batch, k_head, k_row}, {v_batch, v_head, v_row},
                      {out_batch, out_head, out_row}};
    return dispatch_heads(dtype, D, causal, [&](auto zero, auto head, auto is_causal) {
        return launch<decltype(zero), decltype(head)::value, decltype(is_causal)::value>(heads, B, out, stream,
                                                                                        record);
    });
}
