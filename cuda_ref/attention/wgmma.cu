// out[b, h, i] = sum over j of softmax_j(sm_scale * q[b, h, i] . k[b, h_kv, j]) * v[b, h_kv, j], 16 bits, on Hopper's
// tensor cores, with specialized warps. The kernel is in wgmma.cuh; here it stores its output, or statistics of each
// query for the gradients.
//
// requires: sm_90a
#include "attention/statistics.cuh"
#include "attention/wgmma.cuh"

template <typename T>
struct OutputOrStatistics {
    using To = T* __restrict__;  // the output, unless there is a `heads.d_out`

    template <int D>
    static __device__ __forceinline__ bool prefetch(const Heads& heads, To, const Tile& tile, int row, int query) {
        const bool for_gradients = D <= 128 && heads.d_out != nullptr;
        if (for_gradients) prefetch_d_out<T, D>(heads, tile, query);
        return for_gradients;
    }

    template <bool CAUSAL, bool WINDOW, bool SLACK, int COUNT>
    static __device__ __forceinline__ void tile(const Heads& heads, To out, Softmax<SLACK>& softmax,
                                                float (&acc)[COUNT], const Tile& tile, int row, int query,
                                                bool for_gradients) {
        softmax.normalize(acc);
        if (for_gradients) {
            store_statistics<T, CAUSAL>(heads, softmax, acc, tile, query);
        } else {
            store_output<T, CAUSAL, WINDOW>(heads, out, acc, tile, row);
        }
    }

    template <int D, typename Schedule>
    static __device__ __forceinline__ void blind(const Heads& heads, To out, const Schedule& schedule) {
        store_blind_rows<T, D>(heads, out, schedule);
    }
};

cudaError_t launch_any(const Heads& heads, int64_t B, int64_t D, int64_t causal, int64_t plan, void* out,
                       int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    return dispatch_heads(dtype, D, causal, [&](auto zero, auto head, auto is_causal) {
        using T = decltype(zero);
        constexpr int D = decltype(head)::value;
        constexpr bool CAUSAL = decltype(is_causal)::value;
        using Store = OutputOrStatistics<T>;
        T* const to = static_cast<T*>(out);
        if constexpr (CAUSAL) {
            if (heads.window > 0) return launch_head<T, D, true, true, Store>(plan, heads, B, to, stream, record);
        }
        return launch_head<T, D, CAUSAL, false, Store>(plan, heads, B, to, stream, record);
    });
}

// Strides are in elements. window: 0 for none; with causal only.
extern "C" int attention_wgmma(const void* q, const void* k, const void* v, void* out, int64_t B, int64_t H,
                               int64_t H_kv, int64_t S_q, int64_t S_k, int64_t D, int64_t q_batch, int64_t q_head,
                               int64_t q_row, int64_t k_batch, int64_t k_head, int64_t k_row, int64_t v_batch,
                               int64_t v_head, int64_t v_row, int64_t out_batch, int64_t out_head,
                               int64_t out_row, int64_t causal, double scale_log2, int64_t plan, int64_t window,
                               int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    Heads heads{int(H),     int(H / H_kv),
                      int(S_q),   int(S_k),
                      int(B * H), float(scale_log2),
                      q,          k,
                      v,          {q_batch, q_head, q_row},
                      {k_batch, k_head, k_row}, {v_batch, v_head, v_row},
                      {out_batch, out_head, out_row}};
    heads.window = int(window);
    return launch_any(heads, B, D, causal, plan, out, dtype, stream, record);
}

// For D up to 128. lse, delta: (B, H, padded) float32.
extern "C" int attention_statistics(const void* q, const void* k, const void* v, const void* d_out, void* lse,
                                    void* delta, int64_t B, int64_t H, int64_t H_kv, int64_t S_q, int64_t S_k,
                                    int64_t D, int64_t q_batch, int64_t q_head, int64_t q_row, int64_t k_batch,
                                    int64_t k_head, int64_t k_row, int64_t v_batch, int64_t v_head, int64_t v_row,
                                    int64_t d_out_batch, int64_t d_out_head, int64_t d_out_row, int64_t padded,
                                    int64_t causal, double scale_log2, int64_t plan, int64_t window,
                                    int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    if (D > 128) return cudaErrorNotSupported;
    Heads heads{int(H),     int(H / H_kv),
                      int(S_q),   int(S_k),
                      int(B * H), float(scale_log2),
                      q,          k,
                      v,          {q_batch, q_head, q_row},
                      {k_batch, k_head, k_row}, {v_batch, v_head, v_row},
                      {},         static_cast<float*>(lse),
                      static_cast<float*>(delta), int(padded),
                      int(window), d_out, {d_out_batch, d_out_head, d_out_row}};
    return launch_any(heads, B, D, causal, plan, nullptr, dtype, stream, record);
}
