// softmax(q k^T sm_scale) v, float32, D = 64, row-major. A thread computes one row of the output, key after key, and
// keeps the largest score so far, the sum of weights and the weighted sum of the rows of v.
#include "common.cuh"

enum Mistake { NONE, CAUSAL_OFF_BY_ONE, SCALED_TWICE, MAXIMUM_FROM_ZERO, KV_HEAD_BY_REMAINDER, SUM_NOT_RESCALED };

constexpr int BLOCK = 32;
constexpr int D = 64;

__global__ void attend(const float* q, const float* k, const float* v, float* out, int64_t heads, int64_t H,
                       int64_t H_kv, int64_t S_q, int64_t S_k, int64_t causal, float sm_scale, int64_t mistake) {
    const int64_t row = int64_t(blockIdx.x) * BLOCK + threadIdx.x;
    if (row >= heads * S_q) return;
    const int64_t b = row / S_q / H, h = row / S_q % H, i = row % S_q;
    const int64_t h_kv = b * H_kv + (mistake == KV_HEAD_BY_REMAINDER ? h % H_kv : h / (H / H_kv));
    int64_t seen = causal ? min(S_k, i + S_k - S_q + 1) : S_k;
    if (causal && mistake == CAUSAL_OFF_BY_ONE) seen -= 1;

    float m = mistake == MAXIMUM_FROM_ZERO ? 0.0f : -INFINITY, l = 0.0f, acc[D] = {};
    for (int64_t j = 0; j < seen; ++j) {
        const float* k_row = k + (h_kv * S_k + j) * D;
        const float* v_row = v + (h_kv * S_k + j) * D;
        float s = 0.0f;
        for (int d = 0; d < D; ++d) s = fmaf(q[row * D + d], k_row[d], s);
        s *= mistake == SCALED_TWICE ? sm_scale * sm_scale : sm_scale;
        const float highest = fmaxf(m, s), rescale = expf(m - highest), p = expf(s - highest);
        l = (mistake == SUM_NOT_RESCALED ? l : l * rescale) + p;
        for (int d = 0; d < D; ++d) acc[d] = fmaf(p, v_row[d], acc[d] * rescale);
        m = highest;
    }
    for (int d = 0; d < D; ++d) out[row * D + d] = seen > 0 ? acc[d] / l : 0.0f;
}

extern "C" int attention(const void* q, const void* k, const void* v, void* out, int64_t heads, int64_t H, int64_t H_kv,
                         int64_t S_q, int64_t S_k, int64_t causal, double sm_scale, int64_t mistake,
                         cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(heads * S_q, BLOCK)));
    record->set(grid, BLOCK);
    attend<<<grid, BLOCK, 0, stream>>>(static_cast<const float*>(q), static_cast<const float*>(k),
                                       static_cast<const float*>(v), static_cast<float*>(out), heads, H, H_kv, S_q, S_k,
                                       causal, float(sm_scale), mistake);
    return cudaGetLastError();
}
