// out[b, i, h] = sum over j <= i + lengths[b] - S_q of softmax_j(sm_scale * q[b, i, h] . k[b, j, h_kv]) * v[b, j, h_kv]
// with h_kv = h // (H // H_kv), where key j of sequence b is in slot j % page of page table[b, j / page]
//
// One warp computes one query, all in float32, by the online softmax of attention.cu. Each lane has every 32nd column
// of q and of the output. For each key the lane finds the page in the table, the lanes add up the score by shuffles,
// and each lane adds its columns of the weighted value. Slots without a token, and table entries beyond the pages of a
// sequence, are never read.
//
// Keys and values may be float8 with a scale each, which multiplies the scores and the result.
//
// decode.cu reads a key once for all queries, and divides the keys among blocks.
//
// Source: W. Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", 2023.
#include "attention/lanes.cuh"

constexpr int LANES = 32;   // lanes per query: a warp
constexpr int QUERIES = 4;  // queries per block

template <typename T, typename S>  // S: type of keys and values
struct Problem {
    int64_t queries, H, H_kv, S_q, D, page;  // queries: number over all heads and sequences
    Rows<T> q;                               // row: of a sequence
    Rows<S> k, v;                            // batch: of a page, row: of a slot
    int64_t q_column, k_column, v_column;
    const int *table, *lengths;
    int64_t table_batch, table_page, length_batch;  // strides in elements
    const float *scale_k, *scale_v;                 // of float8 keys and values
    float scale_log2;                               // sm_scale * log2(e)
    T* out;
};

// COLUMNS: columns of a lane; D is at most LANES * COLUMNS.
template <typename T, typename S, int COLUMNS>
__global__ void __launch_bounds__(LANES* QUERIES, 1) paged_attention_naive(const Problem<T, S> x) {
    const int64_t query = int64_t(blockIdx.x) * QUERIES + threadIdx.y;
    if (query >= x.queries) return;
    const int64_t h = query % x.H, i = query / x.H % x.S_q, b = query / x.H / x.S_q, h_kv = h / (x.H / x.H_kv);
    const int64_t end = i + 1 + x.lengths[b * x.length_batch] - x.S_q;  // the query sees the keys before it
    const float scale_log2 = x.scale_log2 * scale_of(x.scale_k);
    Row<LANES, COLUMNS> q, acc;
    q.load(x.q.at(b, h, i), x.D, x.q_column);
    float m = -INFINITY, l = 0.0f;
    for (int64_t j = 0; j < end; ++j) {
        const int64_t page = x.table[b * x.table_batch + j / x.page * x.table_page], slot = j % x.page;
        const float score = q.dot(x.k.at(page, h_kv, slot), x.D, x.k_column) * scale_log2, m_new = fmaxf(m, score);
        const float origin = m_new == -INFINITY ? 0.0f : m_new;
        const float alpha = exp2f(m - origin), p = exp2f(score - origin);
        m = m_new;
        l = fmaf(l, alpha, p);
        acc.add(alpha, p, x.v.at(page, h_kv, slot), x.D, x.v_column);
    }
    // A query that sees no key gives zeros. If all keys that it sees score -inf, 0 / 0 gives NaN.
    acc.store(x.out + query * x.D, end > 0 ? scale_of(x.scale_v) / l : 0.0f, x.D);
}

// Keys and values with scales are float8; without scales they have the type of q.
extern "C" int paged_attention(const void* q, const void* k, const void* v, const int* table, const int* lengths,
                               const float* scale_k, const float* scale_v, void* out, int64_t float8, int64_t B,
                               int64_t S_q, int64_t H, int64_t H_kv, int64_t page, int64_t D, int64_t q_batch,
                               int64_t q_row, int64_t q_head, int64_t q_column, int64_t k_page, int64_t k_slot,
                               int64_t k_head, int64_t k_column, int64_t v_page, int64_t v_slot, int64_t v_head,
                               int64_t v_column, int64_t table_batch, int64_t table_page, int64_t length_batch,
                               double sm_scale, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(B * S_q * H, QUERIES))), block(LANES, QUERIES);
    record->set(grid, block);
    return by_dtype(dtype, [&](auto zero) {
        const auto launch = [&](auto stored) {
            using T = decltype(zero);
            using S = decltype(stored);
            const Problem<T, S> x = {B * S_q * H, H, H_kv, S_q, D, page,
                                     {static_cast<const T*>(q), q_batch, q_head, q_row},
                                     {static_cast<const S*>(k), k_page, k_head, k_slot},
                                     {static_cast<const S*>(v), v_page, v_head, v_slot},
                                     q_column, k_column, v_column,
                                     table, lengths, table_batch, table_page, length_batch, scale_k, scale_v,
                                     float(sm_scale * 1.4426950408889634), static_cast<T*>(out)};
            const auto kernel = D <= 64    ? paged_attention_naive<T, S, 64 / LANES>
                                : D <= 128 ? paged_attention_naive<T, S, 128 / LANES>
                                           : paged_attention_naive<T, S, 256 / LANES>;
            kernel<<<grid, block, 0, stream>>>(x);
        };
        float8 ? launch(Float8{}) : launch(zero);
    });
}
