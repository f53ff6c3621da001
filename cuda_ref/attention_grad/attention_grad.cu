// dq, dk, dv: the gradients of the sum of do * o, where o = softmax(sm_scale q k^T) v
//
// With p = softmax(sm_scale q k^T), dp = do v^T, delta = a row's sum of p * dp, and ds = p * (dp - delta):
//     dq = sm_scale ds k        dk = sm_scale ds^T q        dv = p^T do
// No matrix of S_q x S_k is stored: scores are computed again where they are needed, all in float32.
//   gradients_of_queries    Computes one query at a time. A first pass over the keys gives delta and lse (the logarithm
//                           of the sum of exponentials) by the online softmax of attention/attention.cu; a second pass
//                           gives dq.
//   gradients_of_keys       Then computes one key at a time: dk and dv, over the queries of all heads that use the key.
//
// Four lanes compute one query or one key. Each has every fourth column of its rows. For each row of the other operand
// the lanes add up a score and a dp by shuffles, and each adds its columns of that row, weighted by ds or p.
//
// Float8 operands have a scale each. Scores are multiplied by those of q and k, the gradients by those of the others.
//
// No two threads add to the same number, so the order of all sums is fixed. tiles.cu shares each read among 16 rows.
//
// Source: T. Dao et al., "FlashAttention", 2022 (arXiv 2205.14135), appendix B, without its tiles.
#include "attention/lanes.cuh"

constexpr int LANES = 4;  // lanes per query or key
constexpr int ROWS = 32;  // queries or keys per block

template <typename T>
using Result = std::conditional_t<std::is_same_v<T, Float8>, __nv_bfloat16, T>;

template <typename T>
struct Problem {
    int64_t B, H, H_kv, S_q, S_k, D;
    Rows<T> q, k, v, d_out;
    const float *scale_q, *scale_k, *scale_v, *scale_do;  // of float8 operands
    float *lse, *delta;                                   // one number for each query
    Result<T> *dq, *dk, *dv;
    float scale, scale_log2;  // sm_scale, and sm_scale * log2(e)
    bool causal;
    int64_t window;  // keys that a query sees up to its own
};

template <typename T, int COLUMNS>
__global__ void __launch_bounds__(LANES* ROWS, 1) gradients_of_queries(const Problem<T> x) {
    const int64_t query = int64_t(blockIdx.x) * ROWS + threadIdx.y;  // index over all heads and batch entries
    if (query >= x.B * x.H * x.S_q) return;
    const int64_t i = query % x.S_q, h = query / x.S_q % x.H, b = query / x.S_q / x.H, h_kv = h / (x.H / x.H_kv);
    const int64_t end = x.causal ? min(x.S_k, i + 1 + x.S_k - x.S_q) : x.S_k;  // it sees keys from first
    const int64_t first = max(int64_t(0), end - x.window);                      // to end - 1
    const float scale_log2 = x.scale_log2 * scale_of(x.scale_q) * scale_of(x.scale_k);
    Row<LANES, COLUMNS> q, d_out, dq;
    q.load(x.q.at(b, h, i), x.D);
    d_out.load(x.d_out.at(b, h, i), x.D);
    float m = -INFINITY, l = 0.0f, weighted = 0.0f;
    for (int64_t j = first; j < end; ++j) {
        const float score = q.dot(x.k.at(b, h_kv, j), x.D) * scale_log2, m_new = fmaxf(m, score);
        const float origin = m_new == -INFINITY ? 0.0f : m_new;
        const float alpha = exp2f(m - origin), p = exp2f(score - origin);
        m = m_new;
        l = fmaf(l, alpha, p);
        weighted = fmaf(weighted, alpha, p * d_out.dot(x.v.at(b, h_kv, j), x.D));
    }
    const float lse = (m == -INFINITY ? 0.0f : m) + log2f(l), delta = weighted / l;  // unused without a key
    for (int64_t j = first; j < end; ++j) {
        const T* const k = x.k.at(b, h_kv, j);
        const float p = exp2f(fmaf(q.dot(k, x.D), scale_log2, -lse));
        dq.add(1.0f, p * (d_out.dot(x.v.at(b, h_kv, j), x.D) - delta), k, x.D);
    }
    const float scale = x.scale * scale_of(x.scale_k) * scale_of(x.scale_v) * scale_of(x.scale_do);
    dq.store(x.dq + query * x.D, scale, x.D);
    if (threadIdx.x == 0) x.lse[query] = lse, x.delta[query] = delta;
}

template <typename T, int COLUMNS>
__global__ void __launch_bounds__(LANES* ROWS, 1) gradients_of_keys(const Problem<T> x) {
    const int64_t key = int64_t(blockIdx.x) * ROWS + threadIdx.y;  // index over all heads and batch entries
    if (key >= x.B * x.H_kv * x.S_k) return;
    const int64_t j = key % x.S_k, h_kv = key / x.S_k % x.H_kv, b = key / x.S_k / x.H_kv, group = x.H / x.H_kv;
    const int64_t own = j + x.S_q - x.S_k;  // the query whose last key this is
    const int64_t first = x.causal ? max(int64_t(0), own) : 0, end = x.causal ? min(x.S_q, own + x.window) : x.S_q;
    const float scale_log2 = x.scale_log2 * scale_of(x.scale_q) * scale_of(x.scale_k);
    Row<LANES, COLUMNS> k, v, dk, dv;
    k.load(x.k.at(b, h_kv, j), x.D);
    v.load(x.v.at(b, h_kv, j), x.D);
    for (int64_t h = h_kv * group; h < (h_kv + 1) * group; ++h) {
        for (int64_t i = first; i < end; ++i) {
            const T *const q = x.q.at(b, h, i), *const d_out = x.d_out.at(b, h, i);
            const int64_t query = (b * x.H + h) * x.S_q + i;
            const float p = exp2f(fmaf(k.dot(q, x.D), scale_log2, -x.lse[query]));
            dv.add(1.0f, p, d_out, x.D);
            dk.add(1.0f, p * (v.dot(d_out, x.D) - x.delta[query]), q, x.D);
        }
    }
    const float scale = x.scale * scale_of(x.scale_q) * scale_of(x.scale_v) * scale_of(x.scale_do);
    dk.store(x.dk + key * x.D, scale, x.D);
    dv.store(x.dv + key * x.D, scale_of(x.scale_do), x.D);
}

// Operands with scales are float8, and their gradients bfloat16. Without scales all have the type of the code `dtype`.
// Scales: of float8, else null. window: S_k or more for none.
extern "C" int attention_grad_scaled(const void* q, const void* k, const void* v, const void* d_out,
                                     const float* scale_q, const float* scale_k, const float* scale_v,
                                     const float* scale_do, float* lse, float* delta, void* dq, void* dk, void* dv,
                                     int64_t B, int64_t H, int64_t H_kv, int64_t S_q, int64_t S_k, int64_t D,
                                     int64_t q_batch, int64_t q_head, int64_t q_row, int64_t k_batch, int64_t k_head,
                                     int64_t k_row, int64_t v_batch, int64_t v_head, int64_t v_row, int64_t do_batch,
                                     int64_t do_head, int64_t do_row, int64_t causal, int64_t window, double sm_scale,
                                     int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const auto launch = [&](auto zero) {
        using T = decltype(zero);
        using R = Result<T>;
        const Problem<T> x = {B, H, H_kv, S_q, S_k, D,
                              {static_cast<const T*>(q), q_batch, q_head, q_row},
                              {static_cast<const T*>(k), k_batch, k_head, k_row},
                              {static_cast<const T*>(v), v_batch, v_head, v_row},
                              {static_cast<const T*>(d_out), do_batch, do_head, do_row},
                              scale_q, scale_k, scale_v, scale_do, lse, delta,
                              static_cast<R*>(dq), static_cast<R*>(dk), static_cast<R*>(dv),
                              float(sm_scale), float(sm_scale * 1.4426950408889634), causal != 0, window};
        const dim3 block(LANES, ROWS), queries(unsigned(ceil_div<int64_t>(B * H * S_q, ROWS))),
            keys(unsigned(ceil_div<int64_t>(B * H_kv * S_k, ROWS)));
        record->set(queries, block);
        const auto by_query = D <= 64 ? gradients_of_queries<T, 64 / LANES> : gradients_of_queries<T, 128 / LANES>;
        by_query<<<queries, block, 0, stream>>>(x);
        record->set(keys, block);
        const auto by_key = D <= 64 ? gradients_of_keys<T, 64 / LANES> : gradients_of_keys<T, 128 / LANES>;
        by_key<<<keys, block, 0, stream>>>(x);
    };
    if (scale_q == nullptr) return by_dtype(dtype, launch);
    launch(Float8{});
    return cudaGetLastError();
}

// 16 bits or float32, without a window.
extern "C" int attention_grad(const void* q, const void* k, const void* v, const void* d_out, void* lse, void* delta,
                              void* dq, void* dk, void* dv, int64_t B, int64_t H, int64_t H_kv, int64_t S_q,
                              int64_t S_k, int64_t D, int64_t stride_qb, int64_t stride_qh, int64_t stride_qs,
                              int64_t stride_kb, int64_t stride_kh, int64_t stride_ks, int64_t stride_vb,
                              int64_t stride_vh, int64_t stride_vs, int64_t stride_ob, int64_t stride_oh,
                              int64_t stride_os, int64_t causal, double sm_scale, int64_t dtype, cudaStream_t stream,
                              LaunchRecord* record) {
    return attention_grad_scaled(q, k, v, d_out, nullptr, nullptr, nullptr, nullptr, static_cast<float*>(lse),
                                 static_cast<float*>(delta), dq, dk, dv, B, H, H_kv, S_q, S_k, D, stride_qb, stride_qh,
                                 stride_qs, stride_kb, stride_kh, stride_ks, stride_vb, stride_vh, stride_vs, stride_ob,
                                 stride_oh, stride_os, causal, S_k, sm_scale, dtype, stream, record);
}
