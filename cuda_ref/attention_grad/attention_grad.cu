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
#include "common/float8.cuh"

constexpr int LANES = 4;  // lanes per query or key
constexpr int ROWS = 32;  // queries or keys per block

struct Float8 {
    uint8_t bits;
};

__device__ __forceinline__ float to_float(Float8 x) { return float8_to_float(x.bits); }

template <typename T>
constexpr bool SCALED = std::is_same_v<T, Float8>;
template <typename T>
using Result = std::conditional_t<SCALED<T>, __nv_bfloat16, T>;

struct Strides {  // in elements; rows are contiguous
    int64_t batch, head, row;
};

struct Problem {
    int64_t B, H, H_kv, S_q, S_k, D;
    Strides q, k, v, o;        // o: strides of d_out
    float scale, scale_log2;  // sm_scale, and sm_scale * log2(e)
    bool causal;
    int64_t window;  // keys that a query sees up to its own, if there is a limit
    const float *scale_q, *scale_k, *scale_v, *scale_o;  // of float8 operands
};

// factor, times scales of float8 operands.
template <typename T, typename... Scale>
__device__ __forceinline__ float scaled(float factor, const Scale*... scales) {
    if constexpr (SCALED<T>) return (factor * ... * scales[0]);
    return factor;
}

// Column c of this lane in a row, as float32: the lane's columns are LANES apart; zero from column D on.
template <typename T>
__device__ __forceinline__ float column(const T* row, int c, int64_t D) {
    const int d = c * LANES + threadIdx.x;
    return d < D ? to_float(row[d]) : 0.0f;
}

template <typename T, int COLUMNS>
__device__ __forceinline__ void load_row(float (&row)[COLUMNS], const T* from, int64_t D) {
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) row[c] = column(from, c, D);
}

template <typename T, int COLUMNS>
__device__ __forceinline__ void store_row(T* out, const float (&row)[COLUMNS], float scale, int64_t D) {
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
        const int d = c * LANES + threadIdx.x;
        if (d < D) out[d] = from_float<T>(row[c] * scale);
    }
}

// Dot product of the row that the lanes hold and another row. Other rows of the warp may already have returned.
template <typename T, int COLUMNS>
__device__ __forceinline__ float product(const float (&held)[COLUMNS], const T* row, int64_t D) {
    const unsigned lanes = 0xfu << (threadIdx.y * LANES % 32);  // bits of the four lanes in the warp
    float sum = 0.0f;
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) sum = fmaf(held[c], column(row, c, D), sum);
    sum += __shfl_xor_sync(lanes, sum, 1);
    return sum + __shfl_xor_sync(lanes, sum, 2);
}

// sum += weight * row
template <typename T, int COLUMNS>
__device__ __forceinline__ void add_row(float (&sum)[COLUMNS], float weight, const T* row, int64_t D) {
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) sum[c] = fmaf(weight, column(row, c, D), sum[c]);
}

// WINDOW: a query sees at most x.window keys.
template <typename T, int COLUMNS, bool WINDOW>
__global__ void __launch_bounds__(LANES* ROWS, 1)
    gradients_of_queries(const T* q, const T* k, const T* v, const T* d_out, float* lse_out, float* delta_out,
                         Result<T>* dq, const Problem x) {
    const int64_t query = int64_t(blockIdx.x) * ROWS + threadIdx.y;  // index over all heads and batch entries
    if (query >= x.B * x.H * x.S_q) return;
    const int64_t i = query % x.S_q, h = query / x.S_q % x.H, b = query / x.S_q / x.H, h_kv = h / (x.H / x.H_kv);
    k += b * x.k.batch + h_kv * x.k.head;
    v += b * x.v.batch + h_kv * x.v.head;
    const int64_t visible = x.causal ? min(x.S_k, i + 1 + x.S_k - x.S_q) : x.S_k;  // it sees keys from first
    const int64_t first = WINDOW ? max(int64_t(0), visible - x.window) : 0;        // to visible - 1
    float q_row[COLUMNS], do_row[COLUMNS], sum[COLUMNS] = {};
    load_row(q_row, q + b * x.q.batch + h * x.q.head + i * x.q.row, x.D);
    load_row(do_row, d_out + b * x.o.batch + h * x.o.head + i * x.o.row, x.D);

    const float scale_log2 = scaled<T>(x.scale_log2, x.scale_q, x.scale_k);
    float m = -INFINITY, l = 0.0f, weighted = 0.0f;
    for (int64_t j = first; j < visible; ++j) {
        const float score = product(q_row, k + j * x.k.row, x.D) * scale_log2, m_new = fmaxf(m, score);
        const float origin = m_new == -INFINITY ? 0.0f : m_new;
        const float alpha = exp2f(m - origin), p = exp2f(score - origin);
        l = fmaf(l, alpha, p);
        weighted = fmaf(weighted, alpha, p * product(do_row, v + j * x.v.row, x.D));
        m = m_new;
    }
    const float lse = (m == -INFINITY ? 0.0f : m) + log2f(l), delta = weighted / l;  // unused without a key
    for (int64_t j = first; j < visible; ++j) {
        const float p = exp2f(fmaf(product(q_row, k + j * x.k.row, x.D), scale_log2, -lse));
        add_row(sum, p * (product(do_row, v + j * x.v.row, x.D) - delta), k + j * x.k.row, x.D);
    }
    store_row(dq + query * x.D, sum, scaled<T>(x.scale, x.scale_k, x.scale_v, x.scale_o), x.D);
    if (threadIdx.x == 0) lse_out[query] = lse, delta_out[query] = delta;
}

template <typename T, int COLUMNS, bool WINDOW>
__global__ void __launch_bounds__(LANES* ROWS, 1)
    gradients_of_keys(const T* q, const T* k, const T* v, const T* d_out, const float* lse, const float* delta,
                      Result<T>* dk, Result<T>* dv, const Problem x) {
    const int64_t key = int64_t(blockIdx.x) * ROWS + threadIdx.y;  // index over all heads and batch entries
    if (key >= x.B * x.H_kv * x.S_k) return;
    const int64_t j = key % x.S_k, h_kv = key / x.S_k % x.H_kv, b = key / x.S_k / x.H_kv, group = x.H / x.H_kv;
    const int64_t first = x.causal ? max(int64_t(0), j + x.S_q - x.S_k) : 0;  // the first query that sees the key
    const int64_t beyond = j + x.S_q - x.S_k + x.window;                        // the first after those that see it
    const float scale_log2 = scaled<T>(x.scale_log2, x.scale_q, x.scale_k);
    float k_row[COLUMNS], v_row[COLUMNS], sum_k[COLUMNS] = {}, sum_v[COLUMNS] = {};
    load_row(k_row, k + b * x.k.batch + h_kv * x.k.head + j * x.k.row, x.D);
    load_row(v_row, v + b * x.v.batch + h_kv * x.v.head + j * x.v.row, x.D);
    for (int64_t h = h_kv * group; h < (h_kv + 1) * group; ++h) {
        for (int64_t i = first; i < (WINDOW ? min(x.S_q, beyond) : x.S_q); ++i) {
            const T* q_i = q + b * x.q.batch + h * x.q.head + i * x.q.row;
            const T* do_i = d_out + b * x.o.batch + h * x.o.head + i * x.o.row;
            const int64_t query = (b * x.H + h) * x.S_q + i;
            const float p = exp2f(fmaf(product(k_row, q_i, x.D), scale_log2, -lse[query]));
            add_row(sum_v, p, do_i, x.D);
            add_row(sum_k, p * (product(v_row, do_i, x.D) - delta[query]), q_i, x.D);
        }
    }
    store_row(dk + key * x.D, sum_k, scaled<T>(x.scale, x.scale_q, x.scale_v, x.scale_o), x.D);
    store_row(dv + key * x.D, sum_v, scaled<T>(1.0f, x.scale_o), x.D);
}

template <typename T, int COLUMNS, bool WINDOW>
void launch(const void* q, const void* k, const void* v, const void* d_out, float* lse, float* delta, void* dq,
            void* dk, void* dv, const Problem& x, cudaStream_t stream, LaunchRecord* record) {
    const T *q_at = static_cast<const T*>(q), *k_at = static_cast<const T*>(k), *v_at = static_cast<const T*>(v),
            *o_at = static_cast<const T*>(d_out);
    const dim3 block(LANES, ROWS);
    const dim3 queries(unsigned(ceil_div<int64_t>(x.B * x.H * x.S_q, ROWS)));
    record->set(queries, block);
    gradients_of_queries<T, COLUMNS, WINDOW>
        <<<queries, block, 0, stream>>>(q_at, k_at, v_at, o_at, lse, delta, static_cast<Result<T>*>(dq), x);
    const dim3 keys(unsigned(ceil_div<int64_t>(x.B * x.H_kv * x.S_k, ROWS)));
    record->set(keys, block);
    gradients_of_keys<T, COLUMNS, WINDOW><<<keys, block, 0, stream>>>(
        q_at, k_at, v_at, o_at, lse, delta, static_cast<Result<T>*>(dk), static_cast<Result<T>*>(dv), x);
}

template <typename T>
void launch_any(const void* q, const void* k, const void* v, const void* d_out, void* lse, void* delta, void* dq,
                void* dk, void* dv, const Problem& x, cudaStream_t stream, LaunchRecord* record) {
    const auto run = x.window > 0 ? (x.D <= 64 ? launch<T, 64 / LANES, true> : launch<T, 128 / LANES, true>)
                                  : (x.D <= 64 ? launch<T, 64 / LANES, false> : launch<T, 128 / LANES, false>);
    run(q, k, v, d_out, static_cast<float*>(lse), static_cast<float*>(delta), dq, dk, dv, x, stream, record);
}

// window: 0 for none; with causal only.
extern "C" int attention_grad_window(const void* q, const void* k, const void* v, const void* d_out, void* lse,
                                     void* delta, void* dq, void* dk, void* dv, int64_t B, int64_t H, int64_t H_kv,
                                     int64_t S_q, int64_t S_k, int64_t D, int64_t stride_qb, int64_t stride_qh,
                                     int64_t stride_qs, int64_t stride_kb, int64_t stride_kh, int64_t stride_ks,
                                     int64_t stride_vb, int64_t stride_vh, int64_t stride_vs, int64_t stride_ob,
                                     int64_t stride_oh, int64_t stride_os, int64_t causal, int64_t window,
                                     double sm_scale, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const Problem x = {B, H, H_kv, S_q, S_k, D,
                       {stride_qb, stride_qh, stride_qs}, {stride_kb, stride_kh, stride_ks},
                       {stride_vb, stride_vh, stride_vs}, {stride_ob, stride_oh, stride_os},
                       float(sm_scale), float(sm_scale * 1.4426950408889634), causal != 0, window};
    return by_dtype(dtype, [&](auto zero) {
        launch_any<decltype(zero)>(q, k, v, d_out, lse, delta, dq, dk, dv, x, stream, record);
    });
}

// Operands in float8, results in bfloat16. scale_q to scale_o: one float each.
extern "C" int attention_grad_float8(const void* q, const void* k, const void* v, const void* d_out, void* lse,
                                     void* delta, void* dq, void* dk, void* dv, int64_t B, int64_t H, int64_t H_kv,
                                     int64_t S_q, int64_t S_k, int64_t D, int64_t stride_qb, int64_t stride_qh,
                                     int64_t stride_qs, int64_t stride_kb, int64_t stride_kh, int64_t stride_ks,
                                     int64_t stride_vb, int64_t stride_vh, int64_t stride_vs, int64_t stride_ob,
                                     int64_t stride_oh, int64_t stride_os, int64_t causal, int64_t window,
                                     double sm_scale, const void* scale_q, const void* scale_k, const void* scale_v,
                                     const void* scale_o, cudaStream_t stream, LaunchRecord* record) {
    const Problem x = {B, H, H_kv, S_q, S_k, D,
                       {stride_qb, stride_qh, stride_qs}, {stride_kb, stride_kh, stride_ks},
                       {stride_vb, stride_vh, stride_vs}, {stride_ob, stride_oh, stride_os},
                       float(sm_scale), float(sm_scale * 1.4426950408889634), causal != 0, window,
                       static_cast<const float*>(scale_q), static_cast<const float*>(scale_k),
                       static_cast<const float*>(scale_v), static_cast<const float*>(scale_o)};
    launch_any<Float8>(q, k, v, d_out, lse, delta, dq, dk, dv, x, stream, record);
    return cudaGetLastError();
}

extern "C" int attention_grad(const void* q, const void* k, const void* v, const void* d_out, void* lse, void* delta,
                              void* dq, void* dk, void* dv, int64_t B, int64_t H, int64_t H_kv, int64_t S_q,
                              int64_t S_k, int64_t D, int64_t stride_qb, int64_t stride_qh, int64_t stride_qs,
                              int64_t stride_kb, int64_t stride_kh, int64_t stride_ks, int64_t stride_vb,
                              int64_t stride_vh, int64_t stride_vs, int64_t stride_ob, int64_t stride_oh,
                              int64_t stride_os, int64_t causal, double sm_scale, int64_t dtype, cudaStream_t stream,
                              LaunchRecord* record) {
    return attention_grad_window(q, k, v, d_out, lse, delta, dq, dk, dv, B, H, H_kv, S_q, S_k, D, stride_qb, stride_qh,
                                 stride_qs, stride_kb, stride_kh, stride_ks, stride_vb, stride_vh, stride_vs, stride_ob,
                                 stride_oh, stride_os, causal, 0, sm_scale, dtype, stream, record);
}
