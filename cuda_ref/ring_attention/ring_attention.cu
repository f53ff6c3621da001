// out[b, h, i] = sum over j of softmax_j(sm_scale * q[b, h, i] . k[b, h_kv, j]) * v[b, h_kv, j], for the keys j of all
// ranks and this rank's queries i, with h_kv = h // (H // H_kv)
//
// A launch adds the keys of one rank to the running sums of attention/attention.cu: the largest score (m), the sum of
// exp(score - m) (l), and the sum of exp(score - m) * v (acc). Between launches the sums of a query wait in memory, in
// float32; the last launch divides. While a launch runs, the keys of the next rank are copied.
//
// Causal shares are balanced (zigzag): the first `half` rows of a rank begin at one place of the whole sequence, the
// others at another. Eight lanes compute one query, not four as in attention.cu, so that the sums of D = 256 stay in
// registers.
//
// Source: H. Liu, M. Zaharia, P. Abbeel, "Ring Attention with Blockwise Transformers", 2023 (arXiv 2310.01889).
#include "common/common.cuh"

constexpr int LANES = 8;     // lanes per query
constexpr int QUERIES = 16;  // queries per block

struct Problem {
    int64_t queries, H, H_kv, S, D;       // queries: number over all heads and batch entries
    int64_t q_batch, q_head, q_row;       // strides in elements; rows are contiguous, and k and v wholly
    int64_t half;                         // rows of a rank that begin at its place `low`; the others begin at `high`
    int64_t q_low, q_high, k_low, k_high;
    float scale_log2;                     // sm_scale * log2(e)
    bool causal, first, last;
};

// Sums of the queries in memory: m and l for each, acc for each column.
struct Sums {
    float *m, *l, *acc;
};

template <typename T>
__device__ __forceinline__ float column(const T* row, int c, int64_t D) {
    const int d = c * LANES + threadIdx.x;
    return d < D ? to_float(row[d]) : 0.0f;
}

__device__ __forceinline__ float over_lanes(float part) {
    const unsigned lanes = 0xffu << (threadIdx.y * LANES % 32);  // bits of the eight lanes in the warp
    part += __shfl_xor_sync(lanes, part, 1);
    part += __shfl_xor_sync(lanes, part, 2);
    return part + __shfl_xor_sync(lanes, part, 4);
}

// COLUMNS: columns of a lane; D is at most LANES * COLUMNS.
template <typename T, int COLUMNS>
__global__ void __launch_bounds__(LANES* QUERIES, 1)
    add_keys(const T* q, const T* k, const T* v, T* out, const Sums sums, const Problem x) {
    const int64_t query = int64_t(blockIdx.x) * QUERIES + threadIdx.y;
    if (query >= x.queries) return;
    const int64_t i = query % x.S, h = query / x.S % x.H, b = query / x.S / x.H, h_kv = h / (x.H / x.H_kv);
    q += b * x.q_batch + h * x.q_head + i * x.q_row;
    k += (b * x.H_kv + h_kv) * x.S * x.D;
    v += (b * x.H_kv + h_kv) * x.S * x.D;
    float q_row[COLUMNS], acc[COLUMNS], m = x.first ? -INFINITY : sums.m[query], l = x.first ? 0.0f : sums.l[query];
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
        q_row[c] = column(q, c, x.D);
        acc[c] = x.first ? 0.0f : column(sums.acc + query * x.D, c, x.D);
    }
    const int64_t place = i < x.half ? x.q_low + i : x.q_high + i - x.half;
    for (int part = 0; part < 2; ++part) {
        const int64_t begin = part == 0 ? 0 : x.half, size = part == 0 ? x.half : x.S - x.half;
        const int64_t visible = x.causal ? place - (part == 0 ? x.k_low : x.k_high) + 1 : size;
        for (int64_t j = begin; j < begin + min(size, visible); ++j) {
            float product = 0.0f;
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c) product = fmaf(q_row[c], column(k + j * x.D, c, x.D), product);
            const float score = over_lanes(product) * x.scale_log2, m_new = fmaxf(m, score);
            const float origin = m_new == -INFINITY ? 0.0f : m_new;
            const float alpha = exp2f(m - origin), p = exp2f(score - origin);
            m = m_new;
            l = fmaf(l, alpha, p);
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c) acc[c] = fmaf(p, column(v + j * x.D, c, x.D), acc[c] * alpha);
        }
    }
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
        const int d = c * LANES + threadIdx.x;
        if (d >= x.D) continue;
        if (x.last) out[query * x.D + d] = from_float<T>(acc[c] / l);  // a query sees itself: l > 0, or NaN
        else sums.acc[query * x.D + d] = acc[c];
    }
    if (!x.last && threadIdx.x == 0) sums.m[query] = m, sums.l[query] = l;
}

extern "C" int ring_attention(const void* q, const void* k, const void* v, void* out, float* m, float* l, float* acc,
                              int64_t B, int64_t H, int64_t H_kv, int64_t S, int64_t D, int64_t stride_qb,
                              int64_t stride_qh, int64_t stride_qs, int64_t half, int64_t q_low, int64_t q_high,
                              int64_t k_low, int64_t k_high, int64_t causal, int64_t first, int64_t last,
                              double sm_scale, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const Problem x = {B * H * S, H, H_kv, S, D, stride_qb, stride_qh, stride_qs, half, q_low, q_high, k_low, k_high,
                       float(sm_scale * 1.4426950408889634), causal != 0, first != 0, last != 0};
    const dim3 grid(unsigned(ceil_div<int64_t>(x.queries, QUERIES))), block(LANES, QUERIES);
    record->set(grid, block);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const auto kernel = D <= 64    ? add_keys<T, 64 / LANES>
                            : D <= 128 ? add_keys<T, 128 / LANES>
                                       : add_keys<T, 256 / LANES>;
        kernel<<<grid, block, 0, stream>>>(static_cast<const T*>(q), static_cast<const T*>(k), static_cast<const T*>(v),
                                           static_cast<T*>(out), Sums{m, l, acc}, x);
    });
}
