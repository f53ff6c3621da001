// out[b, h, i] = sum over j of softmax_j(sm_scale * q[b, h, i] . k[b, h_kv, j]) * v[b, h_kv, j]
// with h_kv = h // (H // H_kv): every key head serves H // H_kv query heads
//
// A block takes BLOCK_M queries of one head, a warp ROWS of them, and walks over the keys in tiles of 32.
// The S_q x S_k matrix of scores never exists: a warp holds ROWS x 32 of them, one key a lane.
//
// Online softmax. A row keeps the largest score so far (m), the sum of exp(score - m) (l), and the sum of
// exp(score - m) * v (acc), all in float32. When a tile brings a larger maximum, l and acc are multiplied by
// exp(old m - new m). No exponent is ever positive, so nothing overflows, and at the end the row is acc / l.
//   - Scores carry a factor log2(e), for exp2 is what the hardware has.
//   - As long as a row has seen no key, m is -inf. Exponents are then taken from 0: -inf - (-inf) would make a NaN.
//   - Every lane keeps l for its own keys. A sum is linear, so the lanes are added once, at the end; only the maximum
//     is exchanged in every tile.
//
// Two matrix products, two ways to divide them among the lanes:
//   scores    lane = key. It reads its row of the K tile, and the queries, the same for all lanes: a broadcast.
//   output    lane = D / 32 columns. It reads these of a row of the V tile, and the key's weights: a broadcast.
// Between them the weights change hands through shared memory. What a lane reads of K or V it uses for ROWS queries,
// and what a block fetches of them from global memory for BLOCK_M.
//
// Shared memory serves 16-byte reads of eight lanes at a time, without conflict if they meet eight different groups of
// four banks. So rows of the K tile lie BLOCK_D + 4 floats apart. V takes the same room once K has been used: the
// smaller a block, the more of them share a multiprocessor, and one computes while another waits for memory.
//
// Online softmax: M. Milakov, N. Gimelshein, 2018 (arXiv 1805.02867). Tiles of keys, and no matrix of scores: T. Dao
// et al., "FlashAttention", 2022 (arXiv 2205.14135).
#include <algorithm>

#include "common.cuh"

constexpr int WARPS = 4;
constexpr int ROWS = 8;                // queries of a warp; a multiple of 4
constexpr int BLOCK_M = WARPS * ROWS;  // queries of a block
constexpr int BLOCK_N = 32;            // keys of a tile: one a lane
constexpr float INF = INFINITY;

struct Strides {  // in elements; a row's elements lie side by side
    int64_t batch, head, row;
};

struct Problem {
    int H, H_kv, S_q, S_k, D;
    Strides q, k, v;
    float scale_log2;  // sm_scale * log2(e)
    bool causal;
    bool packed;  // four elements can be read at once: every row of q, k and v starts on a multiple of them
};

// Shared memory of a block, in groups of four floats. BLOCK_D is D, filled up with zeros to 64, 128 or 256.
template <int BLOCK_D>
struct Layout {
    static constexpr int Q_PITCH = BLOCK_D / 4;        // q_tile[BLOCK_M][Q_PITCH]
    static constexpr int KV_PITCH = BLOCK_D / 4 + 1;   // kv_tile[BLOCK_N][KV_PITCH]: K, then V
    static constexpr int KV = BLOCK_M * Q_PITCH;       // where kv_tile begins
    static constexpr int P = KV + BLOCK_N * KV_PITCH;  // p_tile[WARPS][ROWS / 4][BLOCK_N]: a key's weights in four rows
    static constexpr int BYTES = (P + WARPS * ROWS / 4 * BLOCK_N) * sizeof(float4);
};

// Copies rows [0, rows) of a matrix to a tile of TILE_ROWS, as float32; zeros below them, and right of column D.
template <int TILE_ROWS, int BLOCK_D, typename T>
__device__ __forceinline__ void load_tile(float4* tile, int pitch, const T* __restrict__ matrix, int64_t stride_row,
                                          int rows, int D, bool packed) {
    constexpr int GROUPS = BLOCK_D / 4, STEP = WARPS * 32 / GROUPS;  // groups of four in a row; rows that a turn copies
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

// The 1 lets a thread take the registers that it needs: nothing is spilled.
template <typename T, int BLOCK_D>
__global__ void __launch_bounds__(WARPS * 32, 1)
    attention_forward(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v, T* __restrict__ out,
                      const Problem problem) {
    using In = Layout<BLOCK_D>;
    constexpr int WIDTH = BLOCK_D / 32 < 4 ? BLOCK_D / 32 : 4;  // neighbouring columns of a lane
    constexpr int SPANS = BLOCK_D / 32 / WIDTH;                 // such groups, 32 * WIDTH columns apart
    extern __shared__ float4 shared[];
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);  // tells the compiler that all lanes agree on it
    const int lane = threadIdx.x % 32;
    const int S_q = problem.S_q, S_k = problem.S_k;

    // Later queries see more keys under a causal mask, so the last ones of a head go first.
    const int tiles = ceil_div(S_q, BLOCK_M);
    const int first = (tiles - 1 - blockIdx.x % tiles) * BLOCK_M;  // the block's first query
    const int head = blockIdx.x / tiles, b = head / problem.H, h = head % problem.H;
    const int h_kv = h / (problem.H / problem.H_kv);
    q += b * problem.q.batch + h * problem.q.head + first * problem.q.row;
    k += b * problem.k.batch + h_kv * problem.k.head;
    v += b * problem.v.batch + h_kv * problem.v.head;
    out += (int64_t(head) * S_q + first) * problem.D;
    load_tile<BLOCK_M, BLOCK_D>(shared, In::Q_PITCH, q, problem.q.row, S_q - first, problem.D, problem.packed);

    // Row r of this warp sees the keys below min(S_k, sees + r).
    const int sees = problem.causal ? first + warp * ROWS + 1 + S_k - S_q : S_k;
    const int warp_sees = first + warp * ROWS < S_q ? min(S_k, sees + ROWS - 1) : 0;  // the most of its rows
    const int block_sees = problem.causal ? min(S_k, first + BLOCK_M + S_k - S_q) : S_k;

    float m[ROWS], l[ROWS], acc[ROWS][SPANS * WIDTH];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        m[r] = -INF;
        l[r] = 0.0f;
#pragma unroll
        for (int c = 0; c < SPANS * WIDTH; ++c) acc[r][c] = 0.0f;
    }

    for (int start = 0; start < block_sees; start += BLOCK_N) {
        const bool works = start < warp_sees;  // the same in all lanes
        __syncthreads();                       // the last V tile has been used
        load_tile<BLOCK_N, BLOCK_D>(shared + In::KV, In::KV_PITCH, k, problem.k.row, S_k - start, problem.D,
                                    problem.packed);
        k += BLOCK_N * problem.k.row;
        __syncthreads();
        if (works) {
            float s[ROWS] = {};
            const float4* q_row = shared + warp * ROWS * In::Q_PITCH;
            const float4* k_row = shared + In::KV + lane * In::KV_PITCH;
#pragma unroll 1  // 32 multiply-adds are enough of a loop; registers are better spent on more warps
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
                const float score = start + lane < min(S_k, sees + r) ? s[r] * problem.scale_log2 : -INF;
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
        __syncthreads();  // the K tile has been used
        load_tile<BLOCK_N, BLOCK_D>(shared + In::KV, In::KV_PITCH, v, problem.v.row, S_k - start, problem.D,
                                    problem.packed);
        v += BLOCK_N * problem.v.row;
        __syncthreads();
        if (works) {
#pragma unroll 1
            for (int j = 0; j < BLOCK_N; ++j) {
                const float* v_row = reinterpret_cast<const float*>(shared + In::KV + j * In::KV_PITCH);
                float y[SPANS * WIDTH];
#pragma unroll
                for (int c = 0; c < SPANS; ++c) {
                    memcpy(y + c * WIDTH, v_row + (c * 32 + lane) * WIDTH, WIDTH * sizeof(float));
                }
                if (start + j >= sees) {  // hidden from a row: its weight is 0, but 0 times an infinity or NaN is not
#pragma unroll
                    for (int r = 0; r < ROWS; ++r) {
                        if (start + j >= min(S_k, sees + r)) continue;
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
        const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;  // no key seen: zeros
#pragma unroll
        for (int c = 0; c < SPANS * WIDTH; ++c) {
            const int d = (c / WIDTH * 32 + lane) * WIDTH + c % WIDTH;
            if (first + row < S_q && d < problem.D) out[row * problem.D + d] = from_float<T>(acc[r][c] * inverse);
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
    // One dimension for all blocks, as y and z count to 65535 only. attention.py refuses more than 2^30 of them.
    const dim3 grid(unsigned(B * problem.H * ceil_div(problem.S_q, BLOCK_M))), block(WARPS * 32);
    constexpr int bytes = Layout<BLOCK_D>::BYTES;
    record->set(grid, block, bytes);
    if (bytes > 48 * 1024) {  // more than a kernel gets unasked
        cudaFuncSetAttribute(attention_forward<T, BLOCK_D>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    }
    attention_forward<T, BLOCK_D><<<grid, block, bytes, stream>>>(
        static_cast<const T*>(q), static_cast<const T*>(k), static_cast<const T*>(v), static_cast<T*>(out), problem);
}

extern "C" int attention(const void* q, const void* k, const void* v, void* out, int64_t B, int64_t H, int64_t H_kv,
                         int64_t S_q, int64_t S_k, int64_t D, int64_t stride_qb, int64_t stride_qh, int64_t stride_qs,
                         int64_t stride_kb, int64_t stride_kh, int64_t stride_ks, int64_t stride_vb, int64_t stride_vh,
                         int64_t stride_vs, int64_t causal, double sm_scale, int64_t dtype, cudaStream_t stream,
                         LaunchRecord* record) {
    Problem problem{int(H), int(H_kv), int(S_q), int(S_k), int(D)};
    problem.q = {stride_qb, stride_qh, stride_qs};
    problem.k = {stride_kb, stride_kh, stride_ks};
    problem.v = {stride_vb, stride_vh, stride_vs};
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
