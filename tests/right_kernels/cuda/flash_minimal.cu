// Attention in a few lines: a block takes 32 queries of one head, one a thread, and goes over tiles of keys and values in
// shared memory with a running maximum and sum. float32, D at most 64.
#include "common.cuh"

constexpr int Br = 32, Bc = 32, D_MAX = 64;

__global__ void flash(const float* Q, const float* K, const float* V, float* O, int64_t H, int64_t group, int64_t Sq,
                      int64_t Sk, int D, int64_t q_b, int64_t q_h, int64_t q_s, int64_t k_b, int64_t k_h, int64_t k_s,
                      int64_t v_b, int64_t v_h, int64_t v_s, bool causal, float softmax_scale) {
    extern __shared__ float sram[];
    float *Kj = sram, *Vj = sram + Bc * D;
    const int64_t b = blockIdx.z, h = blockIdx.y, i = int64_t(blockIdx.x) * Br + threadIdx.x;
    const bool there = i < Sq;
    const int64_t seen = causal ? i + Sk - Sq + 1 : Sk;  // keys that the query sees
    Q += b * q_b + h * q_h;
    K += b * k_b + h / group * k_h;
    V += b * v_b + h / group * v_h;
    float q[D_MAX], o[D_MAX], m = -INFINITY, l = 0.0f;
    for (int d = 0; d < D; ++d) {
        q[d] = there ? Q[i * q_s + d] * softmax_scale : 0.0f;
        o[d] = 0.0f;
    }
    for (int64_t start = 0; start < Sk; start += Bc) {
        __syncthreads();  // such that no thread still reads the last tile
        for (int at = threadIdx.x; at < Bc * D; at += Br) {
            const int64_t j = start + at / D;
            Kj[at] = j < Sk ? K[j * k_s + at % D] : 0.0f;
            Vj[at] = j < Sk ? V[j * v_s + at % D] : 0.0f;
        }
        __syncthreads();
        const int64_t keys = min(int64_t(Bc), (seen < Sk ? seen : Sk) - start);
        for (int j = 0; j < keys; ++j) {
            float s = 0.0f;
            for (int d = 0; d < D; ++d) s = fmaf(q[d], Kj[j * D + d], s);
            if (s > m) {
                const float alpha = expf(m - s);
                m = s;
                l *= alpha;
                for (int d = 0; d < D; ++d) o[d] *= alpha;
            }
            const float p = s == -INFINITY ? 0.0f : expf(s - m);  // with NaN: NaN
            l += p;
            for (int d = 0; d < D; ++d) o[d] = fmaf(p, Vj[j * D + d], o[d]);
        }
    }
    if (!there) return;
    float* out = O + ((b * H + h) * Sq + i) * D;
    for (int d = 0; d < D; ++d) out[d] = seen <= 0 || Sk == 0 ? 0.0f : o[d] / l;
}

extern "C" int attention(const void* q, const void* k, const void* v, void* out, int64_t B, int64_t H, int64_t H_kv,
                         int64_t S_q, int64_t S_k, int64_t D, int64_t stride_qb, int64_t stride_qh, int64_t stride_qs,
                         int64_t stride_kb, int64_t stride_kh, int64_t stride_ks, int64_t stride_vb, int64_t stride_vh,
                         int64_t stride_vs, int64_t causal, double sm_scale, int64_t dtype, cudaStream_t stream,
                         LaunchRecord* record) {
    if (dtype != FLOAT32 || D > D_MAX) return cudaErrorNotSupported;
    const dim3 grid(unsigned(ceil_div<int64_t>(S_q, Br)), unsigned(H), unsigned(B));
    const size_t bytes = 2 * Bc * D * sizeof(float);
    record->set(grid, Br, bytes);
    flash<<<grid, Br, bytes, stream>>>((const float*)q, (const float*)k, (const float*)v, (float*)out, H, H / H_kv, S_q,
                                       S_k, int(D), stride_qb, stride_qh, stride_qs, stride_kb, stride_kh, stride_ks,
                                       stride_vb, stride_vh, stride_vs, causal != 0, float(sm_scale));
    return cudaGetLastError();
}
