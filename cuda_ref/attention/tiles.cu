// out[b, h, i] = sum over j of softmax_j(sm_scale * q[b, h, i] . k[b, h_kv, j]) * v[b, h_kv, j]
// with h_kv = h // (H // H_kv): every key head serves H // H_kv query heads
//
// A block computes BLOCK_M queries of one head, a warp ROWS of them, in steps of 32 keys. The S_q x S_k scores are
// never stored: a warp holds ROWS x 32 of them, one key per lane.
//
// Online softmax. Each row keeps the largest score so far (m), the sum of exp(score - m) (l), and the sum of
// exp(score - m) * v (acc), in float32. When a tile has a larger maximum, l and acc are multiplied by
// exp(old m - new m). Exponents are never positive, so nothing overflows. At the end the row is acc / l.
//   - Scores include a factor log2(e), since the hardware computes exp2.
//   - While a row has seen no key, m is -inf. Exponents are then relative to 0, since -inf - (-inf) is NaN.
//   - Each lane keeps l of its own keys. The lanes are summed once, at the end; only the maximum is exchanged in each
//     step.
//
// The two matrix products are divided among the lanes in two ways:
//   scores    lane = key. A lane reads its row of the K tile, and the queries, which are broadcast.
//   output    lane = D / 32 columns. A lane reads these columns of a row of the V tile, and the weights of that key,
//             which are broadcast.
// Between the products, the weights pass through shared memory. A lane uses each element of K or V for ROWS queries, a
// block for BLOCK_M queries.
//
// Shared memory serves 16-byte reads of eight lanes at a time, without conflict if they are in eight different groups
// of four banks; so rows of the K tile are BLOCK_D + 4 floats apart. V reuses the memory of K. Small blocks let more of
// them share a multiprocessor, so that one computes while another waits for memory.
//
// Source: online softmax: M. Milakov, N. Gimelshein, 2018 (arXiv 1805.02867); tiles of keys without a matrix of scores:
// T. Dao et al., "FlashAttention", 2022 (arXiv 2205.14135).
#include <algorithm>

#include "common/common.cuh"

constexpr int WARPS = 4;
constexpr int ROWS = 8;                // queries per warp; a multiple of 4
constexpr int BLOCK_M = WARPS * ROWS;  // queries per block
constexpr int BLOCK_N = 32;            // keys per tile: one per lane
constexpr float INF = INFINITY;

struct Strides {  // in elements; rows are contiguous
    int64_t batch, head, row;
};

struct Problem {
    int H, H_kv, S_q, S_k, D;
    Strides q, k, v, out;
    float scale_log2;  // sm_scale * log2(e)
    bool causal;
    bool packed;  // four elements can be read by one instruction: all rows of q, k and v start at multiples of four
};

// Shared memory of a block, in units of four floats. BLOCK_D is D, padded with zeros to 64, 128 or 256.
template <int BLOCK_D>
struct Layout {
    static constexpr int Q_PITCH = BLOCK_D / 4;        // q_tile[BLOCK_M][Q_PITCH]
    static constexpr int KV_PITCH = BLOCK_D / 4 + 1;   // kv_tile[BLOCK_N][KV_PITCH]: K, then V
    static constexpr int KV = BLOCK_M * Q_PITCH;       // offset of kv_tile
    static constexpr int P = KV + BLOCK_N * KV_PITCH;  // p_tile[WARPS][ROWS / 4][BLOCK_N]: weights of four rows
    static constexpr int BYTES = (P + WARPS * ROWS / 4 * BLOCK_N) * sizeof(float4);
};

// Copies rows [0, rows) of a matrix to a tile of TILE_ROWS rows, as float32; zeros below them and from column D on.
template <int TILE_ROWS, int BLOCK_D, typename T>
__device__ __forceinline__ void load_tile(float4* tile, int pitch, const T* __restrict__ matrix, int64_t stride_row,
                                          int rows, int D, bool packed) {
    constexpr int GROUPS = BLOCK_D / 4, STEP = WARPS * 32 / GROUPS;  // groups of four per row; rows per pass
    if (packed) {
        const int group = threadIdx.x % GROUPS;
        const T* from = matrix + threadIdx.x / GROUPS * stride_row + group * 4;
#pragma unroll 4
        for (int row = threadIdx.x / GROUPS; row < TILE_ROWS; row += STEP, from += STEP * stride_row) {
            Pack<T, 4> x = {};
            if (row < rows && group * 4 < D) x = *reinterpret_cast<const Pack<T, 4>*>(from);
            tile[row * pitch + group] = make_float4(to_float(x[0]), to_float(x[1]), to_float(x[2]), to_float(x[3]));
        }
    } else {
#pragma unroll 1
        for (int i = threadIdx.x; i < TILE_ROWS * BLOCK_D; i += WARPS * 32) {
            const int row = i / BLOCK_D, d = i % BLOCK_D;
            const float x = row < rows && d < D ? to_float(matrix[row * stride_row + d]) : 0.0f;
            reinterpret_cast<float*>(tile + row * pitch)[d] = x;
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

// One block per multiprocessor: a thread may use as many registers as it needs, without spilling.
template <typename T, int BLOCK_D>
__global__ void __launch_bounds__(WARPS * 32, 1)
    attention_tiles(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v, T* __restrict__ out,
                      const Problem problem) {
    using In = Layout<BLOCK_D>;
    constexpr int WIDTH = BLOCK_D / 32 < 4 ? BLOCK_D / 32 : 4;  // contiguous columns per lane
    constexpr int SPANS = BLOCK_D / 32 / WIDTH;                 // groups of them, 32 * WIDTH columns apart
    extern __shared__ float4 shared[];
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);  // warp-uniform for the compiler
    const int lane = threadIdx.x % 32;
    const int S_q = problem.S_q, S_k = problem.S_k;

    // Under a causal mask later queries see more keys: the longest blocks of a head start first.
    const int tiles = ceil_div(S_q, BLOCK_M);
    const int first = (tiles - 1 - blockIdx.x % tiles) * BLOCK_M;  // first query of the block
    const int head = blockIdx.x / tiles, b = head / problem.H, h = head % problem.H;
    const int h_kv = h / (problem.H / problem.H_kv);
    q += b * problem.q.batch + h * problem.q.head + first * problem.q.row;
    k += b * problem.k.batch + h_kv * problem.k.head;
    v += b * problem.v.batch + h_kv * problem.v.head;
    out += b * problem.out.batch + h * problem.out.head + first * problem.out.row;
    load_tile<BLOCK_M, BLOCK_D>(shared, In::Q_PITCH, q, problem.q.row, S_q - first, problem.D, problem.packed);

    // Row r of this warp sees the keys below min(S_k, visible + r).
    const int visible = problem.causal ? first + warp * ROWS + 1 + S_k - S_q : S_k;
    const int warp_visible = first + warp * ROWS < S_q ? min(S_k, visible + ROWS - 1) : 0;  // most that a row sees
    const int block_visible = problem.causal ? min(S_k, first + BLOCK_M + S_k - S_q) : S_k;

    float m[ROWS], l[ROWS], acc[ROWS][SPANS * WIDTH];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        m[r] = -INF;
        l[r] = 0.0f;
#pragma unroll
        for (int c = 0; c < SPANS * WIDTH; ++c) acc[r][c] = 0.0f;
    }

    for (int start = 0; start < block_visible; start += BLOCK_N) {
        const bool active = start < warp_visible;  // the same in all lanes
        __syncthreads();  // the previous V tile has been read
        load_tile<BLOCK_N, BLOCK_D>(shared + In::KV, In::KV_PITCH, k, problem.k.row, S_k - start, problem.D,
                                    problem.packed);
        k += BLOCK_N * problem.k.row;
        __syncthreads();
        if (active) {
            float s[ROWS] = {};
            const float4* q_row = shared + warp * ROWS * In::Q_PITCH;
            const float4* k_row = shared + In::KV + lane * In::KV_PITCH;
#pragma unroll 1  // unrolling takes registers, and leaves room for fewer warps on the multiprocessor
            for (int d = 0; d < BLOCK_D / 4; ++d) {
                const float4 y = k_row[d];
#pragma unroll
                for (int r = 0; r < ROWS; ++r) {
                    const float4 x = q_row[r * In::Q_PITCH + d];
                    s[r] = fmaf(x.x, y.x, s[r]);
                    s[r] = fmaf(x.y, y.y, s[r]);
                    s[r] = fmaf(x.z, y.z, s[r]);
                    s[r] = fmaf(x.w, y.w, s[r]);
                }
            }
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                const float score = start + lane < min(S_k, visible + r) ? s[r] * problem.scale_log2 : -INF;
                const float m_new = fmaxf(m[r], warp_max(score));
                const float origin = m_new == -INF ? 0.0f : m_new;
                const float alpha = exp2f(m[r] - origin);
                s[r] = exp2f(score - origin);
                l[r] = fmaf(l[r], alpha, s[r]);
                m[r] = m_new;
#pragma unroll
                for (int c = 0; c < SPANS * WIDTH; ++c) acc[r][c] *= alpha;
            }
#pragma unroll
            for (int r = 0; r < ROWS; r += 4) {
                float4* p_tile = shared + In::P + (warp * ROWS + r) / 4 * BLOCK_N;
                p_tile[lane] = make_float4(s[r], s[r + 1], s[r + 2], s[r + 3]);
            }
        }
        __syncthreads();  // the K tile has been read
        load_tile<BLOCK_N, BLOCK_D>(shared + In::KV, In::KV_PITCH, v, problem.v.row, S_k - start, problem.D,
                                    problem.packed);
        v += BLOCK_N * problem.v.row;
        __syncthreads();
        if (active) {
#pragma unroll 1
            for (int j = 0; j < BLOCK_N; ++j) {
                const float* v_row = reinterpret_cast<const float*>(shared + In::KV + j * In::KV_PITCH);
                float y[SPANS * WIDTH];
#pragma unroll
                for (int c = 0; c < SPANS; ++c) {
                    memcpy(y + c * WIDTH, v_row + (c * 32 + lane) * WIDTH, WIDTH * sizeof(float));
                }
                if (start + j >= visible) {  // masked in some row: its weight is 0, but 0 * inf and 0 * NaN are NaN
#pragma unroll
                    for (int r = 0; r < ROWS; ++r) {
                        if (start + j >= min(S_k, visible + r)) continue;
                        const float p = reinterpret_cast<const float*>(
                            shared + In::P + (warp * ROWS + r) / 4 * BLOCK_N + j)[r % 4];
#pragma unroll
                        for (int c = 0; c < SPANS * WIDTH; ++c) acc[r][c] = fmaf(p, y[c], acc[r][c]);
                    }
                    continue;
                }
#pragma unroll
                for (int r = 0; r < ROWS; r += 4) {
                    const float4 p = shared[In::P + (warp * ROWS + r) / 4 * BLOCK_N + j];
#pragma unroll
                    for (int c = 0; c < SPANS * WIDTH; ++c) {
                        acc[r + 0][c] = fmaf(p.x, y[c], acc[r + 0][c]);
                        acc[r + 1][c] = fmaf(p.y, y[c], acc[r + 1][c]);
                        acc[r + 2][c] = fmaf(p.z, y[c], acc[r + 2][c]);
                        acc[r + 3][c] = fmaf(p.w, y[c], acc[r + 3][c]);
                    }
                }
            }
        }
    }

#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int row = warp * ROWS + r;
        const float sum = warp_sum(l[r]);
        // A query that sees no key gives zeros. If all keys that it sees score -inf, 1 / 0 times 0 gives NaN.
        const float inverse = min(S_k, visible + r) > 0 ? 1.0f / sum : 0.0f;
#pragma unroll
        for (int c = 0; c < SPANS * WIDTH; ++c) {
            const int d = (c / WIDTH * 32 + lane) * WIDTH + c % WIDTH;
            if (first + row < S_q && d < problem.D) out[row * problem.out.row + d] = from_float<T>(acc[r][c] * inverse);
        }
    }
}

template <typename T>
bool rows_start_aligned(const void* at, const Strides& strides) {
    return is_aligned(at, 4 * sizeof(T)) && strides.batch % 4 == 0 && strides.head % 4 == 0 && strides.row % 4 == 0;
}

template <typename T, int BLOCK_D>
void launch(const void* q, const void* k, const void* v, void* out, int64_t B, Problem problem, cudaStream_t stream,
            LaunchRecord* record) {
    problem.packed = problem.D % 4 == 0 && rows_start_aligned<T>(q, problem.q) && rows_start_aligned<T>(k, problem.k) &&
                     rows_start_aligned<T>(v, problem.v);
    // One dimension for all blocks, since y and z are limited to 65535. The launcher refuses more than 2^30 blocks.
    const dim3 grid(unsigned(B * problem.H * ceil_div(problem.S_q, BLOCK_M))), block(WARPS * 32);
    constexpr int bytes = Layout<BLOCK_D>::BYTES;
    record->set(grid, block, bytes);
    if (bytes > 48 * 1024) {  // above the default limit
        cudaFuncSetAttribute(attention_tiles<T, BLOCK_D>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    }
    attention_tiles<T, BLOCK_D><<<grid, block, bytes, stream>>>(
        static_cast<const T*>(q), static_cast<const T*>(k), static_cast<const T*>(v), static_cast<T*>(out), problem);
}

// Takes strides of the output too; its rows are contiguous.
extern "C" int attention_tiles_into(const void* q, const void* k, const void* v, void* out, int64_t B, int64_t H,
                                    int64_t H_kv, int64_t S_q, int64_t S_k, int64_t D, int64_t stride_qb,
                                    int64_t stride_qh, int64_t stride_qs, int64_t stride_kb, int64_t stride_kh,
                                    int64_t stride_ks, int64_t stride_vb, int64_t stride_vh, int64_t stride_vs,
                                    int64_t stride_ob, int64_t stride_oh, int64_t stride_os, int64_t causal,
                                    double sm_scale, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    Problem problem{int(H), int(H_kv), int(S_q), int(S_k), int(D)};
    problem.q = {stride_qb, stride_qh, stride_qs};
    problem.k = {stride_kb, stride_kh, stride_ks};
    problem.v = {stride_vb, stride_vh, stride_vs};
    problem.out = {stride_ob, stride_oh, stride_os};
    problem.scale_log2 = float(sm_scale * 1.4426950408889634);
    problem.causal = causal != 0;
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        if (D <= 64) {
            launch<T, 64>(q, k, v, out, B, problem, stream, record);
        } else if (D <= 128) {
            launch<T, 128>(q, k, v, out, B, problem, stream, record);
        } else {
            launch<T, 256>(q, k, v, out, B, problem, stream, record);
        }
    });
}

extern "C" int attention_tiles(const void* q, const void* k, const void* v, void* out, int64_t B, int64_t H,
                               int64_t H_kv, int64_t S_q, int64_t S_k, int64_t D, int64_t stride_qb, int64_t stride_qh,
                               int64_t stride_qs, int64_t stride_kb, int64_t stride_kh, int64_t stride_ks,
                               int64_t stride_vb, int64_t stride_vh, int64_t stride_vs, int64_t causal, double sm_scale,
                               int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    return attention_tiles_into(q, k, v, out, B, H, H_kv, S_q, S_k, D, stride_qb, stride_qh, stride_qs, stride_kb,
                                stride_kh, stride_ks, stride_vb, stride_vh, stride_vs, H * S_q * D, S_q * D, D, causal,
                                sm_scale, dtype, stream, record);
}
