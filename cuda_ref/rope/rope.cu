// (a, b) -> (a cos - b sin, b cos + a sin) for each pair of features of queries and keys
//
// One thread rotates one pair, in float32: it reads two features, cos and sin, and writes two features. Neighbouring
// threads have neighbouring pairs. vectorized.cu reads 16 bytes at a time.
//
// Source: J. Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021 (arXiv 2104.09864).
#include "rope/rope.cuh"

constexpr int THREADS = 256;

template <typename T>
__global__ void __launch_bounds__(THREADS)
    rope_naive(Heads<T> q, Heads<T> k, const T* cos, const T* sin, int64_t pairs, int64_t S, int64_t half,
               bool neighbours, float sign) {
    const int64_t index = int64_t(blockIdx.x) * THREADS + threadIdx.x;
    if (index >= pairs) return;
    const int64_t i = index % half, heads = q.heads + k.heads, token = index / half / heads;
    const Head<T> head = find_head(q, k, token, index / half % heads, S, 2 * half);
    const int64_t first = neighbours ? 2 * i : i, second = neighbours ? 2 * i + 1 : i + half;
    const float a = to_float(head.x[first]), b = to_float(head.x[second]);
    const float c = to_float(cos[token % S * half + i]), s = sign * to_float(sin[token % S * half + i]);
    head.out[first] = from_float<T>(a * c - b * s);
    head.out[second] = from_float<T>(b * c + a * s);
}

// neighbours: a pair is 2i and 2i + 1, otherwise i and i + D/2. Strides are those of B, S and H.
extern "C" int rope(const void* q, const void* k, const void* cos, const void* sin, void* q_out, void* k_out, int64_t B,
                    int64_t S, int64_t H, int64_t H_kv, int64_t D, int64_t q_b, int64_t q_s, int64_t q_h, int64_t k_b,
                    int64_t k_s, int64_t k_h, int64_t neighbours, int64_t inverse, int64_t dtype, cudaStream_t stream,
                    LaunchRecord* record) {
    const int64_t half = D / 2, pairs = B * S * (H + H_kv) * half;
    const dim3 grid(unsigned(ceil_div<int64_t>(pairs, THREADS))), block(THREADS);
    record->set(grid, block);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const Heads<T> queries = {static_cast<const T*>(q), static_cast<T*>(q_out), H, q_b, q_s, q_h};
        const Heads<T> keys = {static_cast<const T*>(k), static_cast<T*>(k_out), H_kv, k_b, k_s, k_h};
        rope_naive<T><<<grid, block, 0, stream>>>(queries, keys, static_cast<const T*>(cos), static_cast<const T*>(sin),
                                                  pairs, S, half, neighbours != 0, inverse ? -1.0f : 1.0f);
    });
}
