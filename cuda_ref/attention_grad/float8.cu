// dq, dk, dv: the gradients of the sum of do * o, where o = softmax(sm_scale q k^T) v, in float8 with a scale for each
// operand, on Hopper's tensor cores
//
// requires: sm_90a
//
// With p = softmax(sm_scale q k^T), dp = do v^T, delta = a row's sum of p * dp, and ds = p * (dp - delta):
//     dq = sm_scale ds k        dk = sm_scale ds^T q        dv = p^T do
// Four kernels run:
//   transpose           Writes q, do and k by columns: float8 tensor cores need both operands contiguous along the sum,
//                       which is over queries or keys in the last three products.
//   float8_statistics   For each query, from its scores and dp: lse (the logarithm of the sum of exponentials) and
//                       delta, and for each 16 queries a limit of |ds|.
//   float8_dk_dv        A block keeps 128 keys and reads the queries that see them.
//   float8_dq           A block keeps 128 queries and reads the keys that they see.
// If the query heads of a key head are divided into parts, to occupy all multiprocessors in float8_dk_dv, then add_parts
// adds their float32 sums of dk and dv in order.
// Scores and dp are computed three times. In return no block adds to the sums of another, and ds stays in registers:
// in one kernel, as in wgmma.cu, float32 sums of dq would go through the L2 cache at twice the rate of 16 bits.
//
// Left operands in registers. p and ds go from sums of wgmma to the left operand of the next product without leaving
// their thread: the order of rows in which `transpose` writes columns is that of a thread's sums.
//
// Factors. p is multiplied by 2^8 before it is rounded to float8. ds is multiplied by 2^8 over its limit: of 16 queries
// for dq, of all queries that a block reads for dk, since sums of wgmma have one factor.
//
// Precision. The tensor cores keep 14 bits of sums of float8 products. Softmax, delta and their sums are float32.
//
// Source: J. Shah et al., "FlashAttention-3", 2024 (arXiv 2407.08608).
#include "attention_grad/float8_keys.cuh"
#include "attention_grad/float8_queries.cuh"
#include "common/launch.cuh"

constexpr int SMALL_BLOCK = 256;  // threads of the kernels without products

template <int D, int ROWS>
void launch_transpose(const void* x, const HeadStrides& strides, uint8_t* out, int heads, int H, int S,
                      cudaStream_t stream, LaunchRecord* record) {
    const int tiles = ceil_div(S, KEPT) * (KEPT / ROWS);
    const dim3 grid(unsigned(heads) * tiles);
    record->set(grid, SMALL_BLOCK);
    transpose<D, ROWS><<<grid, SMALL_BLOCK, 0, stream>>>(static_cast<const uint8_t*>(x), strides, out, H, S, tiles);
}

template <int D, bool CAUSAL>
cudaError_t launch(const Heads& heads, const Operands& operands, int64_t B, __nv_bfloat16* dq, __nv_bfloat16* dk,
                   __nv_bfloat16* dv, cudaStream_t stream, LaunchRecord* record) {
    using Keys = Float8KeyPlan<D>;
    const int H_kv = heads.H / heads.G, key_heads = heads.count / heads.G;
    GradMaps maps;
    auto encode = [&](CUtensorMap* map, const void* x, int64_t H, int64_t S, const HeadStrides& strides) {
        return encode_tensor_map<4>(map, TENSOR_MAP_TYPE<Float8>, 1, x, {D, S, H, B},
                                    {strides.row, strides.head, strides.batch}, {64, 1, 1});
    };
    if (!encode(&maps.q, heads.q, heads.H, heads.S_q, heads.q_strides) ||
        !encode(&maps.k, heads.k, H_kv, heads.S_k, heads.k_strides) ||
        !encode(&maps.v, heads.v, H_kv, heads.S_k, heads.v_strides) ||
        !encode(&maps.d_out, heads.d_out, heads.H, heads.S_q, heads.d_out_strides)) {
        return cudaErrorInvalidValue;
    }
    auto transpose_queries = [&](const void* x, const HeadStrides& strides, const uint8_t* out) {
        launch_transpose<D, TILE_ROWS>(x, strides, const_cast<uint8_t*>(out), heads.count, heads.H, heads.S_q,
                                           stream, record);
    };
    transpose_queries(heads.q, heads.q_strides, operands.q_transposed);
    transpose_queries(heads.d_out, heads.d_out_strides, operands.d_out_transposed);
    launch_transpose<D, KEPT>(heads.k, heads.k_strides, const_cast<uint8_t*>(operands.k_transposed), key_heads, H_kv,
                              heads.S_k, stream, record);
    const dim3 blocks(unsigned(std::min(heads.count * (heads.padded / KEPT), multiprocessor_count())));
    using Statistics = Float8QueryPlan<D, false>;
    using Gradients = Float8QueryPlan<D, true>;
    cudaError_t error = launch_clusters(1, float8_statistics<Statistics, CAUSAL>, blocks, THREADS,
                                        Statistics::SHARED_BYTES, stream, record, maps, heads, operands);
    if (error != cudaSuccess) return error;
    const dim3 key_blocks(unsigned(key_heads * operands.parts) * ceil_div(heads.S_k, KEPT));
    error = launch_clusters(1, float8_dk_dv<Keys, CAUSAL>, key_blocks, THREADS, Keys::SHARED_BYTES, stream, record,
                            maps, heads, operands, dk, dv);
    if (error != cudaSuccess) return error;
    error = launch_clusters(1, float8_dq<Gradients, CAUSAL>, blocks, THREADS, Gradients::SHARED_BYTES, stream, record,
                            maps, heads, operands, dq);
    if (error != cudaSuccess || operands.parts == 1) return error;
    const int64_t head_quads = int64_t(heads.S_k) * D / 4;
    const dim3 adding(unsigned(ceil_div<int64_t>(2 * key_heads * head_quads, SMALL_BLOCK)));
    record->set(adding, SMALL_BLOCK);
    add_parts<__nv_bfloat16>
        <<<adding, SMALL_BLOCK, 0, stream>>>(operands.part_sums, key_heads, operands.parts, dk, dv, head_quads);
    return cudaGetLastError();
}

// Strides are in elements. Scales are on the device. parts, part_sums: see Operands. lse and delta are (B, H, padded),
// limits (B, H, padded / 16), q and d_out transposed (B, H, padded, 128) bytes, k transposed (B, H_kv, padded, D);
// padded: S_q or S_k rounded up to 128.
extern "C" int attention_grad_float8(const void* q, const void* k, const void* v, const void* d_out,
                                     const float* scale_q, const float* scale_k, const float* scale_v,
                                     const float* scale_d_out, float* lse, float* delta, float* limits,
                                     float* part_sums, uint8_t* q_transposed, uint8_t* d_out_transposed,
                                     uint8_t* k_transposed, void* dq, void* dk, void* dv, int64_t B, int64_t H,
                                     int64_t H_kv, int64_t S_q, int64_t S_k, int64_t D, int64_t q_batch,
                                     int64_t q_head, int64_t q_row, int64_t k_batch, int64_t k_head,
                                     int64_t k_row, int64_t v_batch, int64_t v_head, int64_t v_row, int64_t o_batch,
                                     int64_t o_head, int64_t o_row, int64_t parts, int64_t causal,
                                     double scale, double scale_log2, cudaStream_t stream, LaunchRecord* record) {
    Heads heads{int(H),   int(H / H_kv),
                int(S_q), int(S_k),
                int(B * H), float(scale_log2),
                q,        k,
                v,        {q_batch, q_head, q_row},
                {k_batch, k_head, k_row}, {v_batch, v_head, v_row},
                {H * S_q * D, S_q * D, D}};
    heads.lse = lse, heads.delta = delta, heads.padded = ceil_div(int(S_q), KEPT) * KEPT;
    heads.d_out = d_out, heads.d_out_strides = {o_batch, o_head, o_row};
    heads.scale_q = scale_q, heads.scale_k = scale_k, heads.scale_v = scale_v;
    const Operands operands{scale_d_out, limits, q_transposed, d_out_transposed, k_transposed, float(scale),
                            int(parts), part_sums};
    auto run = [&](auto head, auto is_causal) {
        return launch<decltype(head)::value, decltype(is_causal)::value>(
            heads, operands, B, static_cast<__nv_bfloat16*>(dq), static_cast<__nv_bfloat16*>(dk),
            static_cast<__nv_bfloat16*>(dv), stream, record);
    };
    auto run_masked = [&](auto head) { return causal ? run(head, std::true_type()) : run(head, std::false_type()); };
    switch (D) {
        case 64: return run_masked(std::integral_constant<int, 64>());
        case 128: return run_masked(std::integral_constant<int, 128>());
        default: return cudaErrorNotSupported;
    }
}
