// out[b, h, i] = sum over j of softmax_j(sm_scale * q[b, h, i] . k[b, h_kv, j]) * v[b, h_kv, j], for the keys j of all
// ranks and this rank's queries i, with h_kv = h // (H // H_kv); 16 bits, on Hopper's tensor cores
//
// requires: sm_90a
//
// A launch adds the keys of one rank by the kernel of attention/wgmma.cuh. At the end of a tile it merges the tile's
// sums with those of earlier launches: the largest score (m), the sum of exp(score - m) (l), and the sum of
// exp(score - m) * v (acc). Sums that wait for more keys are float32; the launch with the last keys of a query divides.
// With R ranks, R - 1 launches write acc and R - 1 read it: 8 (R - 1) bytes for each element of the output. Partial
// results of each launch, merged by a kernel of its own, would take 8 R bytes and that kernel.
//
// acc lies in the order of the threads that hold it, 64 rows at a time, so that all of its accesses are whole lines.
// Therefore a launch begins at a row that is a multiple of 64, and may leave out rows before `from`.
//
// Registers per thread at launch: 168 for D = 128, 128 for D = 64, as in attention/wgmma.cu; nothing is spilled. With
// D = 256 the merge would spill, so D = 256 is refused.
//
// Zigzag shares need a mask for this rank's own keys only, as in a causal attention of this rank alone. All queries see
// the first half of the keys of a lower rank. The second half of the queries sees all keys of a higher rank.
//
// Source: H. Liu, M. Zaharia, P. Abbeel, "Ring Attention with Blockwise Transformers", 2023 (arXiv 2310.01889);
// attention/wgmma.cuh.
#include "attention/wgmma.cuh"

// Sums of each query in memory. Pointers are at the launch's first row; each head has `padded` rows.
template <typename T>
struct RunningSums {
    T* out;
    float *acc, *m, *l;  // m: times sm_scale log2(e)
    int padded;
    int from, done;  // rows before `from` stay as they are; rows before `done` get their output
    bool first;      // there are no earlier sums

    // The sums of 64 rows, from `row` on: 16 bytes for each thread, then the next 16 for each.
    template <int D>
    __device__ __forceinline__ float4* sums(const Heads& heads, const Tile& tile, int row) const {
        const int64_t rows = (int64_t(tile.batch) * heads.H + tile.head) * padded + row;
        return reinterpret_cast<float4*>(acc + rows * D) + threadIdx.x % WARPGROUP;
    }

    // Returns whether there are earlier sums.
    template <int D>
    __device__ __forceinline__ bool prefetch(const Heads& heads, const Tile& tile, int row) const {
        if (first || row >= heads.S_q) return false;
        const int thread = threadIdx.x % WARPGROUP;
        const char* const begin = reinterpret_cast<const char*>(sums<D>(heads, tile, row) - thread);
#pragma unroll
        for (int i = 0; i < D / 64; ++i) prefetch_l2(begin + (i * WARPGROUP + thread) * 128);
        return true;
    }

    template <bool SLACK, int COUNT>
    __device__ __forceinline__ void store(const Heads& heads, Softmax<SLACK>& softmax, float (&acc)[COUNT],
                                          const Tile& tile, int row, int query, bool earlier) const {
        if (row >= heads.S_q) return;
        add_lanes(softmax.sum[0]);
        add_lanes(softmax.sum[1]);
        float4* const stored = sums<2 * COUNT>(heads, tile, row);
        const int64_t at = (int64_t(tile.batch) * heads.H + tile.head) * padded + query;
        float largest[] = {softmax.maximum[0] * heads.scale_log2, softmax.maximum[1] * heads.scale_log2};
        float sum[] = {softmax.sum[0], softmax.sum[1]};
        if (earlier) merge(acc, largest, sum, stored, at);
        __syncwarp();  // four threads have read m and l, before one of them writes
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int i = query + 8 * r;
            if (i < from || i < done || i >= heads.S_q) continue;
#pragma unroll
            for (int c = 2 * r; c < COUNT; c += 8) {
                stored[(c / 8 * 2 + r) * WARPGROUP] = {acc[c], acc[c + 1], acc[c + 4], acc[c + 5]};
            }
            if (threadIdx.x % 4 == 0) m[at + 8 * r] = largest[r], l[at + 8 * r] = sum[r];
        }
        if (row >= done) return;
        const float inverse[] = {1.0f / sum[0], 1.0f / sum[1]};
#pragma unroll
        for (int i = 0; i < COUNT; ++i) acc[i] *= inverse[i / 2 % 2];
        T* const head = out + tile.batch * heads.out_strides.batch + tile.head * heads.out_strides.head;
        store_rows_if(head, heads.out_strides.row, acc, row, [&](int i) { return i >= from && i < done; });
    }

    // Adds the earlier sums of a thread's rows, numbers `at` and `at` + 8.
    template <int COUNT>
    __device__ __forceinline__ void merge(float (&acc)[COUNT], float (&largest)[2], float (&sum)[2],
                                          const float4* stored, int64_t at) const {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const float now = largest[r], before = m[at + 8 * r];
            largest[r] = fmaxf(now, before);
            const float origin = largest[r] == -INF ? 0.0f : largest[r];  // exp2(-inf - 0) is 0, not NaN
            const float of_now = exp2_approximate(now - origin), of_before = exp2_approximate(before - origin);
            sum[r] = sum[r] * of_now + l[at + 8 * r] * of_before;
#pragma unroll
            for (int c = 2 * r; c < COUNT; c += 8) {
                const float4 earlier = stored[(c / 8 * 2 + r) * WARPGROUP];
                acc[c] = acc[c] * of_now + earlier.x * of_before;
                acc[c + 1] = acc[c + 1] * of_now + earlier.y * of_before;
                acc[c + 4] = acc[c + 4] * of_now + earlier.z * of_before;
                acc[c + 5] = acc[c + 5] * of_now + earlier.w * of_before;
            }
        }
    }
};

template <typename T>
struct AddToSums {
    using To = RunningSums<T>;

    template <int D>
    static __device__ __forceinline__ bool prefetch(const Heads& heads, const To& sums, const Tile& tile, int row,
                                                    int query) {
        return sums.template prefetch<D>(heads, tile, row);
    }

    template <bool CAUSAL, bool WINDOW, bool SLACK, int COUNT>
    static __device__ __forceinline__ void tile(const Heads& heads, const To& sums, Softmax<SLACK>& softmax,
                                                float (&acc)[COUNT], const Tile& tile, int row, int query,
                                                bool earlier) {
        sums.store(heads, softmax, acc, tile, row, query, earlier);
    }

    template <int D, typename Schedule>
    static __device__ __forceinline__ void blind(const Heads&, const To&, const Schedule&) {}  // each sees its own key
};

// acc, m, l: see RunningSums. Strides are in elements; rows of q, k, v and out are contiguous.
extern "C" int ring_attention_wgmma(const void* q, const void* k, const void* v, void* out, float* acc, float* m,
                                    float* l, int64_t B, int64_t H, int64_t H_kv, int64_t S_q, int64_t S_k, int64_t D,
                                    int64_t q_batch, int64_t q_head, int64_t q_row, int64_t k_batch, int64_t k_head,
                                    int64_t k_row, int64_t v_batch, int64_t v_head, int64_t v_row, int64_t out_batch,
                                    int64_t out_head, int64_t out_row, int64_t padded, int64_t from, int64_t done,
                                    int64_t first, int64_t causal, double scale_log2, int64_t plan, int64_t dtype,
                                    cudaStream_t stream, LaunchRecord* record) {
    const Heads heads{int(H),     int(H / H_kv),
                      int(S_q),   int(S_k),
                      int(B * H), float(scale_log2),
                      q,          k,
                      v,          {q_batch, q_head, q_row},
                      {k_batch, k_head, k_row}, {v_batch, v_head, v_row},
                      {out_batch, out_head, out_row}};
    return dispatch_heads(dtype, D, causal, [&](auto zero, auto head, auto is_causal) {
        using T = decltype(zero);
        constexpr int D = decltype(head)::value;
        if constexpr (D > 128) {
            return cudaErrorNotSupported;  // the merge would spill registers
        } else {
            const RunningSums<T> sums{static_cast<T*>(out), acc, m, l, int(padded), int(from), int(done), first != 0};
            return launch_head<T, D, decltype(is_causal)::value, false, AddToSums<T>>(plan, heads, B, sums, stream,
                                                                                      record);
        }
    });
}
