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
#include "common/common.cuh"

constexpr int LANES = 4;      // lanes per query
constexpr int QUERIES = 32;   // queries per block

struct Strides {  // in elements; rows are contiguous
    int64_t batch, head, row;
};

struct Problem {
    int64_t queries, H, H_kv, S_q, S_k, D;  // queries: number over all heads and batch entries
    Strides q, k, v, out;
    float scale_log2;  // sm_scale * log2(e)
    bool causal;
    int64_t window;    // keys that a query sees up to its own, if there is a limit
};

// Column c of this lane in a row, as float32: the lane's columns are LANES apart; zero from column D on.
template <typename T>
__device__ __forceinline__ float column(const T* row, int c, int64_t D) {
    const int d = c * LANES + threadIdx.x;
    return d < D ? to_float(row[d]) : 0.0f;
}

// Adds up the partial results of the four lanes of a query. Other queries of the warp may already have returned.
__device__ __forceinline__ float over_lanes(float part) {
    const unsigned lanes = 0xfu << (threadIdx.y * LANES % 32);  // bits of the four lanes in the warp
    part += __shfl_xor_sync(lanes, part, 1);
    return part + __shfl_xor_sync(lanes, part, 2);
}

// COLUMNS: columns of a lane; D is at most LANES * COLUMNS. WINDOW: a query sees at most x.window keys.
template <typename T, int COLUMNS, bool WINDOW>
__global__ void __launch_bounds__(LANES* QUERIES, 1)
    attention_naive(const T* q, const T* k, const T* v, T* out, const Problem x) {
    const int64_t query = int64_t(blockIdx.x) * QUERIES + threadIdx.y;
    if (query >= x.queries) return;
    const int64_t i = query % x.S_q, h = query / x.S_q % x.H, b = query / x.S_q / x.H, h_kv = h / (x.H / x.H_kv);
    q += b * x.q.batch + h * x.q.head + i * x.q.row;
    k += b * x.k.batch + h_kv * x.k.head;
    v += b * x.v.batch + h_kv * x.v.head;
    out += b * x.out.batch + h * x.out.head + i * x.out.row;
    const int64_t visible = x.causal ? min(x.S_k, i + 1 + x.S_k - x.S_q) : x.S_k;  // it sees keys from first
    const int64_t first = WINDOW ? max(int64_t(0), visible - x.window) : 0;        // to visible - 1

    float q_row[COLUMNS], acc[COLUMNS] = {}, m = -INFINITY, l = 0.0f;
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) q_row[c] = column(q, c, x.D);
    for (int64_t j = first; j < visible; ++j) {
        float product = 0.0f;
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) product = fmaf(q_row[c], column(k + j * x.k.row, c, x.D), product);
        const float score = over_lanes(product) * x.scale_log2, m_new = fmaxf(m, score);
        const float origin = m_new == -INFINITY ? 0.0f : m_new;
        const float alpha = exp2f(m - origin), p = exp2f(score - origin);
        m = m_new;
        l = fmaf(l, alpha, p);
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) acc[c] = fmaf(p, column(v + j * x.v.row, c, x.D), acc[c] * alpha);
    }
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
        const int d = c * LANES + threadIdx.x;
        // A query that sees no key gives zeros. If all keys that it sees score -inf, 0 / 0 gives NaN.
        if (d < x.D) out[d] = from_float<T>(visible > 0 ? acc[c] / l : 0.0f);
    }
}

// Takes strides of the output too; its rows are contiguous. window: 0 for none; with causal only.
extern "C" int attention_window(const void* q, const void* k, const void* v, void* out, int64_t B, int64_t H,
                              int64_t H_kv, int64_t S_q, int64_t S_k, int64_t D, int64_t stride_qb, int64_t stride_qh,
                              int64_t stride_qs, int64_t stride_kb, int64_t stride_kh, int64_t stride_ks,
                              int64_t stride_vb, int64_t stride_vh, int64_t stride_vs, int64_t stride_ob,
                              int64_t stride_oh, int64_t stride_os, int64_t causal, int64_t window, double sm_scale,
                              int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const Problem x = {B * H * S_q, H, H_kv, S_q, S_k, D,
                       {stride_qb, stride_qh, stride_qs}, {stride_kb, stride_kh, stride_ks},
                       {stride_vb, stride_vh, stride_vs}, {stride_ob, stride_oh, stride_os},
                       float(sm_scale * 1.4426950408889634), causal != 0, window};
    const dim3 grid(unsigned(ceil_div<int64_t>(x.queries, QUERIES))), block(LANES, QUERIES);
    record->set(grid, block);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const auto run = [&](auto limited) {
            const auto kernel = D <= 64    ? attention_naive<T, 64 / LANES, limited.value>
                                : D <= 128 ? attention_naive<T, 128 / LANES, limited.value>
                                           : attention_naive<T, 256 / LANES, limited.value>;
            kernel<<<grid, block, 0, stream>>>(static_cast<const T*>(q), static_cast<const T*>(k),
                                               static_cast<const T*>(v), static_cast<T*>(out), x);
        };
        window > 0 ? run(std::true_type()) : run(std::false_type());
    });
}

// Without a window.
extern "C" int attention_into(const void* q, const void* k, const void* v, void* out, int64_t B, int64_t H,
                              int64_t H_kv, int64_t S_q, int64_t S_k, int64_t D, int64_t stride_qb, int64_t stride_qh,
                              int64_t stride_qs, int64_t stride_kb, int64_t stride_kh, int64_t stride_ks,
                              int64_t stride_vb, int64_t stride_vh, int64_t stride_vs, int64_t stride_ob,
                              int64_t stride_oh, int64_t stride_os, int64_t causal, double sm_scale, int64_t dtype,
                              cudaStream_t stream, LaunchRecord* record) {
    return attention_window(q, k, v, out, B, H, H_kv, S_q, S_k, D, stride_qb, stride_qh, stride_qs, stride_kb,
                            stride_kh, stride_ks, stride_vb, stride_vh, stride_vs, stride_ob, stride_oh, stride_os,
                            causal, 0, sm_scale, dtype, stream, record);
}

extern "C" int attention(const void* q, const void* k, const void* v, void* out, int64_t B, int64_t H, int64_t H_kv,
                         int64_t S_q, int64_t S_k, int64_t D, int64_t stride_qb, int64_t stride_qh, int64_t stride_qs,
                         int64_t stride_kb, int64_t stride_kh, int64_t stride_ks, int64_t stride_vb, int64_t stride_vh,
                         int64_t stride_vs, int64_t causal, double sm_scale, int64_t dtype, cudaStream_t stream,
                         LaunchRecord* record) {
    return attention_into(q, k, v, out, B, H, H_kv, S_q, S_k, D, stride_qb, stride_qh, stride_qs, stride_kb, stride_kh,
                          stride_ks, stride_vb, stride_vh, stride_vs, H * S_q * D, S_q * D, D, causal, sm_scale, dtype,
                          stream, record);
}
