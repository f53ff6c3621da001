// out[b, i, h] = sum over j <= i + lengths[b] - S_q of softmax_j(sm_scale * q[b, i, h] . k[b, j, h_kv]) * v[b, j, h_kv]
// with h_kv = h // (H // H_kv), where key j of sequence b is in slot j % page of page table[b, j / page]
//
// One warp computes one query, all in float32, by the online softmax of attention.cu. Each lane has every 32nd column of
// q and of the output. For each key the lane finds the page in the table, the lanes add up the score by shuffles, and
// each lane adds its columns of the weighted value. Slots without a token, and table entries beyond the pages of a
// sequence, are never read.
//
// Keys and values may be float8 with a scale each, which multiplies the scores and the result.
//
// decode.cu reads a key once for all queries, and divides the keys among blocks.
//
// Source: W. Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", 2023.
#include "common/float8.cuh"
#include "common/rows.cuh"

struct Float8 {
    uint8_t bits;
};

__device__ __forceinline__ float to_float(Float8 x) { return float8_to_float(x.bits); }

constexpr int QUERIES = 4;  // queries per block, one per warp

struct Cache {  // strides in elements
    int64_t page, slot, head, column;
};

struct Problem {
    int64_t queries, H, H_kv, S_q, D, page;  // queries: number over all heads and sequences
    int64_t q_batch, q_row, q_head, q_column, table_batch, table_page, lengths;
    Cache k, v;
    float scale_log2;  // sm_scale * log2(e)
};

// COLUMNS: columns of a lane; D is at most WARP * COLUMNS. S: type of keys and values; the scales are read for Float8.
template <typename T, typename S, int COLUMNS>
__global__ void __launch_bounds__(WARP* QUERIES)
    paged_attention_naive(const T* q, const S* k, const S* v, const int* table, const int* lengths,
                          const float* scale_k, const float* scale_v, T* out, const Problem x) {
    const int64_t query = int64_t(blockIdx.x) * QUERIES + threadIdx.y;
    if (query >= x.queries) return;  // true for all lanes of the warp
    const int64_t h = query % x.H, i = query / x.H % x.S_q, b = query / x.H / x.S_q, h_kv = h / (x.H / x.H_kv);
    q += b * x.q_batch + i * x.q_row + h * x.q_head;
    k += h_kv * x.k.head;
    v += h_kv * x.v.head;
    table += b * x.table_batch;
    out += query * x.D;
    constexpr bool SCALED = std::is_same_v<S, Float8>;
    const float scale_log2 = SCALED ? x.scale_log2 * scale_k[0] : x.scale_log2;
    const int64_t visible = i + 1 + lengths[b * x.lengths] - x.S_q;  // the query sees the keys before it

    float q_row[COLUMNS], acc[COLUMNS] = {}, m = -INFINITY, l = 0.0f;
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
        const int d = c * WARP + threadIdx.x;
        q_row[c] = d < x.D ? to_float(q[d * x.q_column]) : 0.0f;
    }
    for (int64_t j = 0; j < visible; ++j) {
        const int64_t page = table[j / x.page * x.table_page], slot = j % x.page;
        const S* const k_row = k + page * x.k.page + slot * x.k.slot;
        const S* const v_row = v + page * x.v.page + slot * x.v.slot;
        float product = 0.0f;
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            const int d = c * WARP + threadIdx.x;
            if (d < x.D) product = fmaf(q_row[c], to_float(k_row[d * x.k.column]), product);
        }
        const float score = over_warp(product, Addition()) * scale_log2, m_new = fmaxf(m, score);
        const float origin = m_new == -INFINITY ? 0.0f : m_new;
        const float alpha = exp2f(m - origin), p = exp2f(score - origin);
        m = m_new;
        l = fmaf(l, alpha, p);
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            const int d = c * WARP + threadIdx.x;
            if (d < x.D) acc[c] = fmaf(p, to_float(v_row[d * x.v.column]), acc[c] * alpha);
        }
    }
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
        const int d = c * WARP + threadIdx.x;
        // A query that sees no key gives zeros. If all keys that it sees score -inf, 0 / 0 gives NaN.
        if (d < x.D) out[d] = from_float<T>(visible > 0 ? acc[c] / l * (SCALED ? scale_v[0] : 1.0f) : 0.0f);
    }
}

// float8: keys and values are float8. Otherwise the scales are not read.
extern "C" int paged_attention(const void* q, const void* k, const void* v, const void* table, const void* lengths,
                               const void* scale_k, const void* scale_v, void* out, int64_t float8, int64_t B, int64_t S_q, int64_t H, int64_t H_kv, int64_t page, int64_t D,
                               int64_t q_batch, int64_t q_row, int64_t q_head, int64_t q_column, int64_t k_page,
                               int64_t k_slot, int64_t k_head, int64_t k_column, int64_t v_page, int64_t v_slot,
                               int64_t v_head, int64_t v_column, int64_t table_batch, int64_t table_page,
                               int64_t stride_lengths, double sm_scale, int64_t dtype, cudaStream_t stream,
                               LaunchRecord* record) {
    const Problem x = {B * S_q * H, H, H_kv, S_q, D, page, q_batch, q_row, q_head, q_column, table_batch, table_page,
                       stride_lengths, {k_page, k_slot, k_head, k_column}, {v_page, v_slot, v_head, v_column},
                       float(sm_scale * 1.4426950408889634)};
    const dim3 grid(unsigned(ceil_div<int64_t>(x.queries, QUERIES))), block(WARP, QUERIES);
    record->set(grid, block);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const auto launch = [&](auto stored) {
            using S = decltype(stored);
            const auto kernel = D <= 64    ? paged_attention_naive<T, S, 64 / WARP>
                                : D <= 128 ? paged_attention_naive<T, S, 128 / WARP>
                                           : paged_attention_naive<T, S, 256 / WARP>;
            kernel<<<grid, block, 0, stream>>>(
                static_cast<const T*>(q), static_cast<const S*>(k), static_cast<const S*>(v),
                static_cast<const int*>(table), static_cast<const int*>(lengths), static_cast<const float*>(scale_k),
                static_cast<const float*>(scale_v), static_cast<T*>(out), x);
        };
        float8 ? launch(Float8{}) : launch(zero);
    });
}
