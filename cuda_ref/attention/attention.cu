// out[b, h, i] = sum over j of softmax_j(sm_scale * q[b, h, i] . k[b, h_kv, j]) * v[b, h_kv, j]
// with h_kv = h // (H // H_kv): every key head serves H // H_kv query heads
//
// Four lanes compute one query, all in float32. Each lane has every fourth column of q and of the output. For each key
// the lanes add up the score by two shuffles, and each lane adds its columns of the weighted value.
//
// Online softmax: the scores are never stored. A query keeps the largest score so far (m), the sum of exp(score - m)
// (l), and the sum of exp(score - m) * v (acc). When a larger score comes, l and acc are multiplied by
// exp(old m - new m). Exponents are never positive, so nothing overflows. At the end the row is acc / l.
//   - Scores include a factor log2(e), since the hardware computes exp2.
//   - While all scores are -inf, exponents are relative to 0: -inf - (-inf) is NaN.
//
// The eight queries of a warp read the same keys and values from the caches. tiles.cu reads them once for 32 queries.
//
// Source: M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018 (arXiv 1805.02867).
#include "attention/lanes.cuh"

constexpr int LANES = 4;     // lanes per query
constexpr int QUERIES = 32;  // queries per block

template <typename T>
struct Problem {
    int64_t queries, H, H_kv, S_q, S_k, D;  // queries: number over all heads and batch entries
    Rows<T> q, k, v;
    T* out;
    int64_t out_batch, out_head, out_row;  // strides in elements; rows are contiguous
    float scale_log2;                      // sm_scale * log2(e)
    bool causal;
    int64_t window;  // keys that a query sees up to its own
};

// COLUMNS: columns of a lane; D is at most LANES * COLUMNS.
template <typename T, int COLUMNS>
__global__ void __launch_bounds__(LANES* QUERIES, 1) attention_naive(const Problem<T> x) {
    const int64_t query = int64_t(blockIdx.x) * QUERIES + threadIdx.y;
    if (query >= x.queries) return;
    const int64_t i = query % x.S_q, h = query / x.S_q % x.H, b = query / x.S_q / x.H, h_kv = h / (x.H / x.H_kv);
    const int64_t end = x.causal ? min(x.S_k, i + 1 + x.S_k - x.S_q) : x.S_k;  // it sees keys from first
    const int64_t first = max(int64_t(0), end - x.window);                      // to end - 1
    Row<LANES, COLUMNS> q, acc;
    q.load(x.q.at(b, h, i), x.D);
    float m = -INFINITY, l = 0.0f;
    for (int64_t j = first; j < end; ++j) {
        const float score = q.dot(x.k.at(b, h_kv, j), x.D) * x.scale_log2, m_new = fmaxf(m, score);
        const float origin = m_new == -INFINITY ? 0.0f : m_new;
        const float alpha = exp2f(m - origin), p = exp2f(score - origin);
        m = m_new;
        l = fmaf(l, alpha, p);
        acc.add(alpha, p, x.v.at(b, h_kv, j), x.D);
    }
    // A query that sees no key gives zeros. If all keys that it sees score -inf, 0 / 0 gives NaN.
    acc.store(x.out + b * x.out_batch + h * x.out_head + i * x.out_row, end > 0 ? 1.0f / l : 0.0f, x.D);
}

// window: S_k or more for none
extern "C" int attention_into(const void* q, const void* k, const void* v, void* out, int64_t B, int64_t H,
                              int64_t H_kv, int64_t S_q, int64_t S_k, int64_t D, int64_t q_batch, int64_t q_head,
                              int64_t q_row, int64_t k_batch, int64_t k_head, int64_t k_row, int64_t v_batch,
                              int64_t v_head, int64_t v_row, int64_t out_batch, int64_t out_head, int64_t out_row,
                              int64_t causal, int64_t window, double sm_scale, int64_t dtype, cudaStream_t stream,
                              LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(B * H * S_q, QUERIES))), block(LANES, QUERIES);
    record->set(grid, block);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const Problem<T> x = {B * H * S_q, H, H_kv, S_q, S_k, D,
                              {static_cast<const T*>(q), q_batch, q_head, q_row},
                              {static_cast<const T*>(k), k_batch, k_head, k_row},
                              {static_cast<const T*>(v), v_batch, v_head, v_row},
                              static_cast<T*>(out), out_batch, out_head, out_row,
                              float(sm_scale * 1.4426950408889634), causal != 0, window};
        const auto kernel = D <= 64    ? attention_naive<T, 64 / LANES>
                            : D <= 128 ? attention_naive<T, 128 / LANES>
                                       : attention_naive<T, 256 / LANES>;
        kernel<<<grid, block, 0, stream>>>(x);
    });
}

// attention_into without a window, for a contiguous out.
extern "C" int attention(const void* q, const void* k, const void* v, void* out, int64_t B, int64_t H, int64_t H_kv,
                         int64_t S_q, int64_t S_k, int64_t D, int64_t stride_qb, int64_t stride_qh, int64_t stride_qs,
                         int64_t stride_kb, int64_t stride_kh, int64_t stride_ks, int64_t stride_vb, int64_t stride_vh,
                         int64_t stride_vs, int64_t causal, double sm_scale, int64_t dtype, cudaStream_t stream,
                         LaunchRecord* record) {
    return attention_into(q, k, v, out, B, H, H_kv, S_q, S_k, D, stride_qb, stride_qh, stride_qs, stride_kb, stride_kh,
                          stride_ks, stride_vb, stride_vh, stride_vs, H * S_q * D, S_q * D, D, causal, S_k, sm_scale,
                          dtype, stream, record);
}
