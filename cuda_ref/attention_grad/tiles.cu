// dq, dk, dv: the gradients of the sum of do * o, where o = softmax(sm_scale q k^T) v
//
// With p = softmax(sm_scale q k^T), dp = do v^T, delta = a row's sum of p * dp, and ds = p * (dp - delta):
//     dq = sm_scale ds k        dk = sm_scale ds^T q        dv = p^T do
// No matrix of S_q x S_k is stored. Two kernels, without atomic operations, so that the order of all sums is fixed:
//   gradients_of_queries    keeps rows of q and do, and passes over k and v twice: for lse (the logarithm of the sum of
//                           the exponentials) and delta of each row, then for ds and dq.
//   gradients_of_keys       keeps rows of k and v, and passes over q and do of all query heads of the key head.
//
// In both kernels a warp keeps ROWS rows of two matrices and reads 32 rows of the two others in each step, one row per
// lane. A lane computes a score and a dp of its row with each kept row. Then it adds to D / 32 columns of the result,
// weighted by all 32 p or ds, which pass through shared memory.
//
// Source: T. Dao et al., "FlashAttention", 2022 (arXiv 2205.14135), without its atomic operations.
#include "common/common.cuh"

constexpr int WARPS = 4;
constexpr int ROWS = 4;              // rows that a warp keeps: one float4 of weights
constexpr int KEPT = WARPS * ROWS;   // rows that a block keeps
constexpr int MOVING = 32;           // rows per step: one per lane
constexpr float INF = INFINITY;

struct Strides {  // in elements; rows are contiguous
    int64_t batch, head, row;
};

struct Problem {
    int H, H_kv, S_q, S_k, D;
    Strides q, k, v, o;
    float scale, scale_log2;  // sm_scale, and sm_scale * log2(e)
    bool causal;

    // True if query i sees key j.
    __device__ bool visible(int i, int j) const { return i < S_q && j < S_k && (!causal || j <= i + S_k - S_q); }
};

// Shared memory of a block, in floats. BLOCK_D is D, padded with zeros. Rows of moving tiles are BLOCK_D + 4 floats
// apart, so that eight lanes read 16 bytes each in one pass.
template <int BLOCK_D>
struct Layout {
    static constexpr int PITCH = BLOCK_D + 4;
    static constexpr int KEPT_B = KEPT * BLOCK_D;
    static constexpr int MOVING_A = 2 * KEPT_B;
    static constexpr int MOVING_B = MOVING_A + MOVING * PITCH;
    static constexpr int WEIGHTS = MOVING_B + MOVING * PITCH;  // [WARPS][2][MOVING][ROWS]
    static constexpr int BYTES = (WEIGHTS + WARPS * 2 * MOVING * ROWS) * sizeof(float);
};

// Copies `rows` rows of a matrix to a tile of TILE_ROWS rows, as float32; zeros below them and from column D on.
template <int TILE_ROWS, int BLOCK_D, typename T>
__device__ void load_rows(float* tile, int pitch, const T* __restrict__ matrix, int64_t stride, int rows, int D) {
    for (int i = threadIdx.x; i < TILE_ROWS * BLOCK_D; i += WARPS * 32) {
        const int row = i / BLOCK_D, d = i % BLOCK_D;
        tile[row * pitch + d] = row < rows && d < D ? to_float(matrix[row * stride + d]) : 0.0f;
    }
}

__device__ __forceinline__ float dot(float4 x, float4 y, float sum) {
    return fmaf(x.x, y.x, fmaf(x.y, y.y, fmaf(x.z, y.z, fmaf(x.w, y.w, sum))));
}

// a[r] = kept row r of the first matrix times the lane's moving row; b[r] is the same for the second matrix.
template <int BLOCK_D>
__device__ __forceinline__ void products(const float* shared, float (&a)[ROWS], float (&b)[ROWS]) {
    using In = Layout<BLOCK_D>;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const float4* kept_a = reinterpret_cast<const float4*>(shared + warp * ROWS * BLOCK_D);
    const float4* kept_b = reinterpret_cast<const float4*>(shared + In::KEPT_B + warp * ROWS * BLOCK_D);
    const float4* moving_a = reinterpret_cast<const float4*>(shared + In::MOVING_A + lane * In::PITCH);
    const float4* moving_b = reinterpret_cast<const float4*>(shared + In::MOVING_B + lane * In::PITCH);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) a[r] = b[r] = 0.0f;
#pragma unroll 2
    for (int d = 0; d < BLOCK_D / 4; ++d) {
        const float4 x = moving_a[d], y = moving_b[d];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            a[r] = dot(kept_a[r * BLOCK_D / 4 + d], x, a[r]);
            b[r] = dot(kept_b[r * BLOCK_D / 4 + d], y, b[r]);
        }
    }
}

// sum[r][c] += sum over the 32 moving rows of their weight for row r times their column lane + 32 c.
template <int COLUMNS>
__device__ __forceinline__ void add_weighted(float (&sum)[ROWS][COLUMNS], const float* weights, const float* moving,
                                             int pitch) {
    const int lane = threadIdx.x % 32;
#pragma unroll 2
    for (int j = 0; j < MOVING; ++j) {
        const float4 w = reinterpret_cast<const float4*>(weights)[j];
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            const float x = moving[j * pitch + lane + 32 * c];
            sum[0][c] = fmaf(w.x, x, sum[0][c]);
            sum[1][c] = fmaf(w.y, x, sum[1][c]);
            sum[2][c] = fmaf(w.z, x, sum[2][c]);
            sum[3][c] = fmaf(w.w, x, sum[3][c]);
        }
    }
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, distance));
    return x;
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
    return x;
}

template <typename T, int COLUMNS>
__device__ __forceinline__ void store_rows(T* out, const float (&sum)[ROWS][COLUMNS], float scale, int rows, int D) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            const int row = warp * ROWS + r, d = lane + 32 * c;
            if (row < rows && d < D) out[int64_t(row) * D + d] = from_float<T>(sum[r][c] * scale);
        }
    }
}

template <typename T, int BLOCK_D>
__global__ void __launch_bounds__(WARPS * 32)
    gradients_of_queries(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                         const T* __restrict__ d_out, float* __restrict__ lse_out, float* __restrict__ delta_out,
                         T* __restrict__ dq, const Problem problem) {
    using In = Layout<BLOCK_D>;
    extern __shared__ float4 memory[];
    float* shared = reinterpret_cast<float*>(memory);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int S_q = problem.S_q, S_k = problem.S_k, D = problem.D;
    const int tiles = ceil_div(S_q, KEPT);
    const int start = (tiles - 1 - blockIdx.x % tiles) * KEPT;  // the longest blocks of a causal mask come first
    const int head = blockIdx.x / tiles, b = head / problem.H, h = head % problem.H;
    const int h_kv = h / (problem.H / problem.H_kv);
    q += b * problem.q.batch + h * problem.q.head + start * problem.q.row;
    d_out += b * problem.o.batch + h * problem.o.head + start * problem.o.row;
    k += b * problem.k.batch + h_kv * problem.k.head;
    v += b * problem.v.batch + h_kv * problem.v.head;
    load_rows<KEPT, BLOCK_D>(shared, BLOCK_D, q, problem.q.row, S_q - start, D);
    load_rows<KEPT, BLOCK_D>(shared + In::KEPT_B, BLOCK_D, d_out, problem.o.row, S_q - start, D);

    const int first = start + warp * ROWS;  // first query of the warp
    const int end = problem.causal ? min(S_k, max(0, start + KEPT + S_k - S_q)) : S_k;
    float a[ROWS], dp[ROWS], m[ROWS], l[ROWS], delta[ROWS];
    auto next_keys = [&](int key) {
        __syncthreads();  // the previous tiles have been read
        load_rows<MOVING, BLOCK_D>(shared + In::MOVING_A, In::PITCH, k + key * problem.k.row, problem.k.row, S_k - key,
                                   D);
        load_rows<MOVING, BLOCK_D>(shared + In::MOVING_B, In::PITCH, v + key * problem.v.row, problem.v.row, S_k - key,
                                   D);
        __syncthreads();
        products<BLOCK_D>(shared, a, dp);
    };

    // Each lane keeps the maximum of the scores of its own keys, and two sums relative to it.
#pragma unroll
    for (int r = 0; r < ROWS; ++r) m[r] = -INF, l[r] = delta[r] = 0.0f;
    for (int key = 0; key < end; key += MOVING) {
        next_keys(key);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            if (!problem.visible(first + r, key + lane)) continue;
            const float score = a[r] * problem.scale_log2, m_new = fmaxf(m[r], score);
            const float origin = m_new == -INF ? 0.0f : m_new;
            const float alpha = exp2f(m[r] - origin), p = exp2f(score - origin);
            l[r] = fmaf(l[r], alpha, p);
            delta[r] = fmaf(delta[r], alpha, p * dp[r]);
            m[r] = m_new;
        }
    }
    float lse[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const float largest = warp_max(m[r]), origin = largest == -INF ? 0.0f : largest;
        const float alpha = exp2f(m[r] - origin);
        const float sum = warp_sum(l[r] * alpha), weighted = warp_sum(delta[r] * alpha);
        const bool blind = !problem.visible(first + r, 0);  // true if the row sees no key
        lse[r] = blind ? INF : origin + log2f(sum);
        delta[r] = blind ? 0.0f : weighted / sum;
        if (lane == 0 && first + r < S_q) {
            lse_out[int64_t(head) * S_q + first + r] = lse[r];
            delta_out[int64_t(head) * S_q + first + r] = delta[r];
        }
    }

    float sum[ROWS][BLOCK_D / 32] = {};
    float* weights = shared + In::WEIGHTS + warp * 2 * MOVING * ROWS;
    for (int key = 0; key < end; key += MOVING) {
        next_keys(key);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const float p = exp2f(fmaf(a[r], problem.scale_log2, -lse[r]));
            weights[lane * ROWS + r] = problem.visible(first + r, key + lane) ? p * (dp[r] - delta[r]) : 0.0f;
        }
        __syncwarp();
        add_weighted(sum, weights, shared + In::MOVING_A, In::PITCH);
    }
    store_rows(dq + (int64_t(head) * S_q + start) * D, sum, problem.scale, S_q - start, D);
}

template <typename T, int BLOCK_D>
__global__ void __launch_bounds__(WARPS * 32)
    gradients_of_keys(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                      const T* __restrict__ d_out, const float* __restrict__ lse, const float* __restrict__ delta,
                      T* __restrict__ dk, T* __restrict__ dv, const Problem problem) {
    using In = Layout<BLOCK_D>;
    extern __shared__ float4 memory[];
    float* shared = reinterpret_cast<float*>(memory);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int S_q = problem.S_q, S_k = problem.S_k, D = problem.D, group = problem.H / problem.H_kv;
    const int tiles = ceil_div(S_k, KEPT);
    const int start = blockIdx.x % tiles * KEPT, head_kv = blockIdx.x / tiles;
    const int b = head_kv / problem.H_kv, h_kv = head_kv % problem.H_kv;
    k += b * problem.k.batch + h_kv * problem.k.head + start * problem.k.row;
    v += b * problem.v.batch + h_kv * problem.v.head + start * problem.v.row;
    load_rows<KEPT, BLOCK_D>(shared, BLOCK_D, k, problem.k.row, S_k - start, D);
    load_rows<KEPT, BLOCK_D>(shared + In::KEPT_B, BLOCK_D, v, problem.v.row, S_k - start, D);

    const int first = problem.causal ? max(0, start + S_q - S_k) / MOVING * MOVING : 0;  // first query that sees a key
    float sum_k[ROWS][BLOCK_D / 32] = {}, sum_v[ROWS][BLOCK_D / 32] = {};
    float* weights = shared + In::WEIGHTS + warp * 2 * MOVING * ROWS;
    for (int g = 0; g < group; ++g) {
        const int h = h_kv * group + g;
        const int64_t row = (int64_t(b) * problem.H + h) * S_q;
        const T* q_head = q + b * problem.q.batch + h * problem.q.head;
        const T* o_head = d_out + b * problem.o.batch + h * problem.o.head;
        for (int query = first; query < S_q; query += MOVING) {
            __syncthreads();  // the previous tiles have been read
            load_rows<MOVING, BLOCK_D>(shared + In::MOVING_A, In::PITCH, q_head + query * problem.q.row, problem.q.row,
                                       S_q - query, D);
            load_rows<MOVING, BLOCK_D>(shared + In::MOVING_B, In::PITCH, o_head + query * problem.o.row, problem.o.row,
                                       S_q - query, D);
            __syncthreads();
            float a[ROWS], dp[ROWS];
            products<BLOCK_D>(shared, a, dp);
            const int i = query + lane;
            const float lse_i = i < S_q ? lse[row + i] : INF, delta_i = i < S_q ? delta[row + i] : 0.0f;
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                const bool seen = problem.visible(i, start + warp * ROWS + r);
                const float p = seen ? exp2f(fmaf(a[r], problem.scale_log2, -lse_i)) : 0.0f;
                weights[lane * ROWS + r] = p;
                weights[(MOVING + lane) * ROWS + r] = seen ? p * (dp[r] - delta_i) : 0.0f;
            }
            __syncwarp();
            add_weighted(sum_v, weights, shared + In::MOVING_B, In::PITCH);
            add_weighted(sum_k, weights + MOVING * ROWS, shared + In::MOVING_A, In::PITCH);
        }
    }
    const int64_t at = (int64_t(head_kv) * S_k + start) * D;
    store_rows(dk + at, sum_k, problem.scale, S_k - start, D);
    store_rows(dv + at, sum_v, 1.0f, S_k - start, D);
}

template <typename T, int BLOCK_D>
void launch(const void* q, const void* k, const void* v, const void* d_out, float* lse, float* delta, void* dq,
            void* dk, void* dv, int64_t B, const Problem& problem, cudaStream_t stream, LaunchRecord* record) {
    constexpr int bytes = Layout<BLOCK_D>::BYTES;
    const T *q_at = static_cast<const T*>(q), *k_at = static_cast<const T*>(k), *v_at = static_cast<const T*>(v),
            *o_at = static_cast<const T*>(d_out);
    cudaFuncSetAttribute(gradients_of_queries<T, BLOCK_D>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    cudaFuncSetAttribute(gradients_of_keys<T, BLOCK_D>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    const dim3 block(WARPS * 32);
    const dim3 of_queries(unsigned(B * problem.H * ceil_div(problem.S_q, KEPT)));
    record->set(of_queries, block, bytes);
    gradients_of_queries<T, BLOCK_D><<<of_queries, block, bytes, stream>>>(q_at, k_at, v_at, o_at, lse, delta,
                                                                          static_cast<T*>(dq), problem);
    const dim3 of_keys(unsigned(B * problem.H_kv * ceil_div(problem.S_k, KEPT)));
    record->set(of_keys, block, bytes);
    gradients_of_keys<T, BLOCK_D><<<of_keys, block, bytes, stream>>>(
        q_at, k_at, v_at, o_at, lse, delta, static_cast<T*>(dk), static_cast<T*>(dv), problem);
}

extern "C" int attention_grad_tiles(const void* q, const void* k, const void* v, const void* d_out, void* lse,
                                    void* delta, void* dq, void* dk, void* dv, int64_t B, int64_t H, int64_t H_kv,
                                    int64_t S_q, int64_t S_k, int64_t D, int64_t stride_qb, int64_t stride_qh,
                                    int64_t stride_qs, int64_t stride_kb, int64_t stride_kh, int64_t stride_ks,
                                    int64_t stride_vb, int64_t stride_vh, int64_t stride_vs, int64_t stride_ob,
                                    int64_t stride_oh, int64_t stride_os, int64_t causal, double sm_scale,
                                    int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    Problem problem{int(H), int(H_kv), int(S_q), int(S_k), int(D)};
    problem.q = {stride_qb, stride_qh, stride_qs};
    problem.k = {stride_kb, stride_kh, stride_ks};
    problem.v = {stride_vb, stride_vh, stride_vs};
    problem.o = {stride_ob, stride_oh, stride_os};
    problem.scale = float(sm_scale);
    problem.scale_log2 = float(sm_scale * 1.4426950408889634);
    problem.causal = causal != 0;
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const auto run = D <= 64 ? launch<T, 64> : launch<T, 128>;
        run(q, k, v, d_out, static_cast<float*>(lse), static_cast<float*>(delta), dq, dk, dv, B, problem, stream,
            record);
    });
}
