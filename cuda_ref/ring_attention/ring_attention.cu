// out[b, h, i] = sum over j of softmax_j(sm_scale * q[b, h, i] . k[b, h_kv, j]) * v[b, h_kv, j], for the keys j of all
// ranks and this rank's queries i, with h_kv = h // (H // H_kv)
//
// A launch adds the keys of one rank to the running sums of attention/attention.cu: the largest score (m), the sum of
// exp(score - m) (l), and the sum of exp(score - m) * v (acc). Between launches the sums of a query wait in memory, in
// float32; the last launch divides. While a launch runs, the keys of the next rank are copied.
//
// Causal shares are balanced (zigzag): the first `half` rows of a rank begin at one place of the whole sequence, the
// others at another, later one. So a query sees the first rows of a rank. Eight lanes compute one query, not four as in
// attention.cu, so that the sums of D = 256 stay in registers.
//
// Source: H. Liu, M. Zaharia, P. Abbeel, "Ring Attention with Blockwise Transformers", 2023 (arXiv 2310.01889).
#include "attention/lanes.cuh"

constexpr int LANES = 8;     // lanes per query
constexpr int QUERIES = 16;  // queries per block

template <typename T>
struct Problem {
    int64_t queries, H, H_kv, S, D;  // queries: number over all heads and batch entries
    Rows<T> q, k, v;
    T* out;
    float *m, *l, *acc;  // sums of the queries in memory: m and l for each, acc for each column
    int64_t half;        // rows of a rank that begin at its place `low`; the others begin at `high`
    int64_t q_low, q_high, k_low, k_high;
    float scale_log2;  // sm_scale * log2(e)
    bool causal, first, last;
};

// COLUMNS: columns of a lane; D is at most LANES * COLUMNS.
template <typename T, int COLUMNS>
__global__ void __launch_bounds__(LANES* QUERIES, 1) add_keys(const Problem<T> x) {
    const int64_t query = int64_t(blockIdx.x) * QUERIES + threadIdx.y;
    if (query >= x.queries) return;
    const int64_t i = query % x.S, h = query / x.S % x.H, b = query / x.S / x.H, h_kv = h / (x.H / x.H_kv);
    const int64_t place = i < x.half ? x.q_low + i : x.q_high + i - x.half;
    int64_t end = x.S;  // the query sees the keys before it
    if (x.causal) {
        end = min(x.half, max(int64_t(0), place - x.k_low + 1));
        end += min(x.S - x.half, max(int64_t(0), place - x.k_high + 1));
    }
    Row<LANES, COLUMNS> q, acc;
    q.load(x.q.at(b, h, i), x.D);
    float m = -INFINITY, l = 0.0f;
    if (!x.first) m = x.m[query], l = x.l[query], acc.load(x.acc + query * x.D, x.D);
    for (int64_t j = 0; j < end; ++j) {
        const float score = q.dot(x.k.at(b, h_kv, j), x.D) * x.scale_log2, m_new = fmaxf(m, score);
        const float origin = m_new == -INFINITY ? 0.0f : m_new;
        const float alpha = exp2f(m - origin), p = exp2f(score - origin);
        m = m_new;
        l = fmaf(l, alpha, p);
        acc.add(alpha, p, x.v.at(b, h_kv, j), x.D);
    }
    if (x.last) return acc.store(x.out + query * x.D, 1.0f / l, x.D);  // a query sees itself: l > 0, or NaN
    acc.store(x.acc + query * x.D, 1.0f, x.D);
    if (threadIdx.x == 0) x.m[query] = m, x.l[query] = l;
}

// k and v are contiguous.
extern "C" int ring_attention(const void* q, const void* k, const void* v, void* out, float* m, float* l, float* acc,
                              int64_t B, int64_t H, int64_t H_kv, int64_t S, int64_t D, int64_t q_batch, int64_t q_head,
                              int64_t q_row, int64_t half, int64_t q_low, int64_t q_high, int64_t k_low, int64_t k_high,
                              int64_t causal, int64_t first, int64_t last, double sm_scale, int64_t dtype,
                              cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(B * H * S, QUERIES))), block(LANES, QUERIES);
    record->set(grid, block);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const Problem<T> x = {B * H * S, H, H_kv, S, D,
                              {static_cast<const T*>(q), q_batch, q_head, q_row},
                              {static_cast<const T*>(k), H_kv * S * D, S * D, D},
                              {static_cast<const T*>(v), H_kv * S * D, S * D, D},
                              static_cast<T*>(out), m, l, acc, half, q_low, q_high, k_low, k_high,
                              float(sm_scale * 1.4426950408889634), causal != 0, first != 0, last != 0};
        const auto kernel = D <= 64    ? add_keys<T, 64 / LANES>
                            : D <= 128 ? add_keys<T, 128 / LANES>
                                       : add_keys<T, 256 / LANES>;
        kernel<<<grid, block, 0, stream>>>(x);
    });
}
