// Shared by the attention kernels for Hopper: the schedule of tiles, copies by TMA, and the online softmax on sums of
// wgmma.
#pragma once

#include <algorithm>

#include "hopper/mbarrier.cuh"
#include "hopper/tma.cuh"
#include "attention/heads.cuh"
#include "attention/wgmma_steps.cuh"

// Assigns tiles to teams of warpgroups. A block has one or more teams. Row r of a head is its tile of the queries from
// r BLOCK_M on. Under a causal mask, rows whose queries see no key are left out: `blind_rows` per head.
//
// Without a mask all tiles take the same time. They are computed head by head, one tile per block in each turn.
//
// With a causal mask row r of n takes a time proportional to r + 1 plus a constant, so rows r and n - 1 - r together
// take the same time for all r. Such pairs are computed head by head, so that few heads share the L2 cache at a time,
// as long as they fill whole waves of teams. The tiles of the other heads come last, the long ones first, together with
// the middle row of each head if n is odd. In every second turn the teams take these tiles in the opposite order.
template <int BLOCK_M_, int BLOCK_N_, bool CAUSAL_, bool WINDOW_ = false>
struct Schedule {
    static constexpr int BLOCK_M = BLOCK_M_, BLOCK_N = BLOCK_N_;
    static constexpr bool CAUSAL = CAUSAL_, WINDOW = WINDOW_;
    static constexpr int LAST_WAVES = 1;  // waves computed as single tiles, not pairs, so that teams end together

    int blind_rows, rows, paired_heads, single_heads, teams;

    Schedule(const Heads& heads, int most_teams) {
        blind_rows = CAUSAL ? std::max(heads.S_q - heads.S_k, 0) / BLOCK_M : 0;
        rows = ceil_div(heads.S_q, BLOCK_M) - blind_rows;
        const int pairs = rows / 2;
        teams = int(std::min<int64_t>(int64_t(heads.count) * rows, most_teams));
        const int64_t waves = int64_t(heads.count) * pairs / teams - LAST_WAVES;
        paired_heads = CAUSAL && waves > 0 ? int(waves * teams / pairs) : 0;
        single_heads = heads.count - paired_heads;
    }

    // The tile that team `of_block` of this block computes in turn number `turn`, from 0 on. It has no blocks of
    // keys if there is no tile; then later turns have none either. The first teams of all blocks come first.
    __device__ __forceinline__ Tile tile(const Heads& heads, int turn, int of_block) const {
        const int team = of_block * gridDim.x + blockIdx.x;
        if (team >= teams) return {};
        int head, row;
        if constexpr (!CAUSAL) {
            const int index = turn * teams + team;
            head = index / rows, row = index - head * rows;
            if (head >= heads.count) return {};
        } else {
            const int per_head = rows / 2, pairs = paired_heads * per_head;
            const int pair = turn / 2 * teams + team;
            if (pair < pairs) {
                head = pair / per_head, row = pair - head * per_head;
                if (turn % 2 == 0) row = rows - 1 - row;
            } else {
                const int before = team < pairs ? 2 * ceil_div(pairs - team, teams) : 0;
                const int late = turn - before, first = pairs % teams;
                const int place = team >= first ? team - first : team - first + teams;
                const int index = late * teams + (late % 2 == 0 ? place : teams - 1 - place);
                const int middle = rows / 2, longer = (rows - 1 - middle) * single_heads;
                const int middles = single_heads + (rows % 2 == 0 ? 0 : paired_heads);
                if (index < longer) {
                    row = rows - 1 - index / single_heads, head = paired_heads + index % single_heads;
                } else if (index < longer + middles) {
                    row = middle, head = (paired_heads + index - longer) % heads.count;
                } else {
                    const int shorter = index - longer - middles;
                    row = middle - 1 - shorter / single_heads, head = paired_heads + shorter % single_heads;
                    if (row < 0) return {};
                }
            }
        }
        return tile_at<BLOCK_M, BLOCK_N, CAUSAL>(heads, head, blind_rows + row);
    }
};

// Bytes of the boxes of a row of D elements.
template <int D, int BYTES = 2>
constexpr int BOXED_BYTES = ceil_div(D * BYTES, ROW_BYTES) * ROW_BYTES;

// Copies ROWS rows of a head, from `row` on, in boxes of 128 bytes of columns. Rows beyond the head, and columns beyond
// the last, are zeros. BYTES: of an element.
template <int ROWS, int D, int BYTES = 2>
__device__ __forceinline__ void load_boxes(uint32_t to, const CUtensorMap* map, int row, int head, int batch,
                                           uint32_t barrier) {
#pragma unroll
    for (int column = 0; column < D; column += ROW_BYTES / BYTES) {
        tma_load(to + column * ROWS * BYTES, map, column, row, head, batch, barrier);
    }
}

// load_boxes, after an arrival at the barrier that announces `bytes`: the bytes of this load and of loads that follow.
template <int ROWS, int D, int BYTES = 2>
__device__ __forceinline__ void load_rows(uint32_t to, const CUtensorMap* map, int row, int head, int batch,
                                          uint32_t barrier, int bytes = ROWS * BOXED_BYTES<D, BYTES>) {
    mbarrier_arrive_expect_tx(barrier, bytes);
    load_boxes<ROWS, D, BYTES>(to, map, row, head, batch, barrier);
}

// The factor of products of q and k, as an exponent of 2.
template <typename T>
__device__ __forceinline__ float score_scale(const Heads& heads) {
    if constexpr (std::is_same_v<T, Float8>) {
        return heads.scale_log2 * *heads.scale_q * *heads.scale_k;
    } else {
        return heads.scale_log2;
    }
}

// The factor of sums of values.
template <typename T>
__device__ __forceinline__ float value_scale(const Heads& heads) {
    if constexpr (std::is_same_v<T, Float8>) {
        return *heads.scale_v;
    } else {
        return 1;
    }
}

// Orders the products of the consumers of a block: each waits until the previous one has started its own.
template <typename P>
struct Turns {
    int consumer;

    __device__ __forceinline__ void take() const {
        if constexpr (P::TURNS) named_barrier_sync(1 + consumer, 2 * WARPGROUP);
    }
    __device__ __forceinline__ void pass() const {
        if constexpr (P::TURNS) {
            named_barrier_arrive(1 + (consumer + 1) % P::CONSUMERS, 2 * WARPGROUP);
        }
    }
};

// scores = q k^T for 64 queries and BLOCK_N keys, both in boxes of 64 columns.
template <typename T, int D, int COUNT>
__device__ __forceinline__ void multiply_keys(float (&scores)[COUNT], uint32_t q, uint32_t k) {
    constexpr int BLOCK_N = 2 * COUNT;
    const uint64_t a = wgmma_descriptor(q, 0), b = wgmma_descriptor(k, 0);
#pragma unroll
    for (int i = 0; i < D / 16; ++i) {
        const int q_step = i / 4 * (BOX_BYTES >> 4) + i % 4 * K_MAJOR_STEP;
        const int k_step = i / 4 * (BLOCK_N * ROW_BYTES >> 4) + i % 4 * K_MAJOR_STEP;
        wgmma<T, false>(scores, a + q_step, b + k_step, i > 0);
    }
}

// acc (+)= weights v for 64 queries and the keys of the weights.
template <typename T, int COUNT, int WEIGHTS>
__device__ __forceinline__ void multiply_values(float (&acc)[COUNT], const uint32_t (&weights)[WEIGHTS], uint32_t v,
                                                int add) {
    const uint64_t b = wgmma_descriptor(v, WEIGHTS * 4 * ROW_BYTES);
#pragma unroll
    for (int i = 0; i < WEIGHTS / 4; ++i) {
        wgmma<T, true>(acc, weights + 4 * i, b + i * MN_MAJOR_STEP, i > 0 ? 1 : add);
    }
}

template <typename T, int COUNT>
__device__ __forceinline__ void round_weights(uint32_t (&weights)[COUNT / 2], const float (&p)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT / 2; ++i) weights[i] = rounded_pair<T>(p[2 * i], p[2 * i + 1]);
}

// Adds up the sums of the four threads of a row; each gets the sum over all columns.
__device__ __forceinline__ void add_lanes(float& sum) {
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
}

// Adds up the sums of each row over its threads, and multiplies acc by `scale` / sum.
template <int COUNT>
__device__ __forceinline__ void divide_by_sums(float (&acc)[COUNT], float (&sum)[2], float scale) {
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        add_lanes(sum[r]);
        factor[r] = scale / sum[r];
    }
#pragma unroll
    for (int i = 0; i < COUNT; ++i) acc[i] *= factor[i / 2 % 2];
}

// The online softmax of the two rows of a thread. Four threads share a row.
//
// With SLACK, the maximum is raised only if a score exceeds it by more than 8 (as an exponent of 2). Few blocks have
// such a score; the others do not rescale the sums. Weights are at most 2^8, and as exact in 16 bits as those up to 1.
template <bool SLACK>
struct Softmax {
    float maximum[2] = {-INF, -INF};  // maximum of the scores so far, or less by the slack
    float sum[2] = {0, 0};            // sum of exp2(scale_log2 (score - maximum)) over this thread's columns
    float factor[2];                  // factor of the sums before the last block

    // scores -> exp2(scale_log2 (score - maximum))
    template <int COUNT>
    __device__ __forceinline__ void weigh(float (&scores)[COUNT], float scale_log2) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            float largest = maximum[r];
#pragma unroll
            for (int i = 2 * r; i < COUNT; i += 4) largest = fmaxf(largest, fmaxf(scores[i], scores[i + 1]));
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
            const bool kept = SLACK && (largest - maximum[r]) * scale_log2 <= 8;
            if (kept) largest = maximum[r];
            const float scaled = largest == -INF ? 0.0f : largest * scale_log2;  // exp2(-inf - 0) is 0, not NaN
            factor[r] = kept ? 1.0f : exp2_approximate(maximum[r] * scale_log2 - scaled);
            maximum[r] = largest;
            float part = 0;
#pragma unroll
            for (int i = 2 * r; i < COUNT; i += 4) {
                scores[i] = exp2_approximate(fmaf(scores[i], scale_log2, -scaled));
                scores[i + 1] = exp2_approximate(fmaf(scores[i + 1], scale_log2, -scaled));
                part += scores[i] + scores[i + 1];
            }
            sum[r] = sum[r] * factor[r] + part;
        }
    }

    template <int COUNT>
    __device__ __forceinline__ void rescale(float (&acc)[COUNT]) const {
        if (SLACK && !__any_sync(0xffffffffu, factor[0] != 1 || factor[1] != 1)) return;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) acc[i] *= factor[i / 2 % 2];
    }

    template <int COUNT>
    __device__ __forceinline__ void normalize(float (&acc)[COUNT]) {
        divide_by_sums(acc, sum, 1);
    }
};

// Transposes 4 x 4 words within a quad: thread t gets word t of each thread.
__device__ __forceinline__ void transpose_in_quad(uint32_t (&x)[4], int t) {
    const uint32_t all = 0xffffffffu;
    uint32_t low = __shfl_xor_sync(all, t & 1 ? x[0] : x[1], 1), high = __shfl_xor_sync(all, t & 1 ? x[2] : x[3], 1);
    if (t & 1) {
        x[0] = low, x[2] = high;
    } else {
        x[1] = low, x[3] = high;
    }
    low = __shfl_xor_sync(all, t & 2 ? x[0] : x[2], 2), high = __shfl_xor_sync(all, t & 2 ? x[1] : x[3], 2);
    if (t & 2) {
        x[0] = low, x[1] = high;
    } else {
        x[2] = low, x[3] = high;
    }
}

// Unpacks the two 16-bit numbers of a pair.
template <typename T>
__device__ __forceinline__ void unpack(float& low, float& high, uint32_t pair) {
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
        low = __uint_as_float(pair << 16), high = __uint_as_float(pair & 0xffff0000u);
    } else {
        low = to_float(__ushort_as_half(uint16_t(pair))), high = to_float(__ushort_as_half(uint16_t(pair >> 16)));
    }
}

// Stores the sums of a warpgroup, 64 rows of 2 COUNT elements from `row` on, for which is_stored(row) is true. `out` is
// the start of the head; its rows are `pitch` elements apart. Each thread stores 16 bytes at a time.
template <typename T, int COUNT, typename IsStored>
__device__ __forceinline__ void store_rows_if(T* __restrict__ out, int64_t pitch, const float (&acc)[COUNT], int row,
                                              IsStored is_stored) {
    const int thread = threadIdx.x % WARPGROUP, t = thread % 4, first = row + thread / 32 * 16 + thread % 32 / 4;
#pragma unroll
    for (int j = 0; j < COUNT / 4; j += 4) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            uint32_t x[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) x[i] = rounded_pair<T>(acc[(j + i) * 4 + 2 * r], acc[(j + i) * 4 + 2 * r + 1]);
            transpose_in_quad(x, t);
            if (is_stored(first + 8 * r)) {
                *reinterpret_cast<uint4*>(out + (first + 8 * r) * pitch + (j + t) * 8) = {x[0], x[1], x[2], x[3]};
            }
        }
    }
}

// The same, up to row `rows` of the head.
template <typename T, int COUNT>
__device__ __forceinline__ void store_rows(T* __restrict__ out, int64_t pitch, const float (&acc)[COUNT], int row,
                                           int rows) {
    store_rows_if(out, pitch, acc, row, [&](int i) { return i < rows; });
}

// A warp computes 16 rows of a head with a causal mask, from `row` on, one key at a time. Hidden keys are left out
// instead of weighted by 0, because 0 times NaN or infinity is NaN.
template <typename T, int D, bool WINDOW>
__device__ __noinline__ void attend_by_key(const Heads& heads, Output<T>* __restrict__ out, int batch, int head,
                                           int row) {
    constexpr int EACH = D / 32;  // columns per lane
    const int lane = threadIdx.x % 32, later = heads.S_k - heads.S_q;
    auto rows_of = [&](const void* x, const HeadStrides& strides, int h) {
        return static_cast<const T*>(x) + batch * strides.batch + h * strides.head + lane * EACH;
    };
    const T* const queries = rows_of(heads.q, heads.q_strides, head);
    const T* const keys = rows_of(heads.k, heads.k_strides, head / heads.G);
    const T* const values = rows_of(heads.v, heads.v_strides, head / heads.G);
    for (int i = row; i < min(row + 16, heads.S_q); ++i) {
        float q[EACH], acc[EACH] = {}, maximum = -INF, sum = 0;
        for (int c = 0; c < EACH; ++c) q[c] = to_float(queries[i * heads.q_strides.row + c]);
        const int from = WINDOW ? max(i + later + 1 - heads.window, 0) : 0;
        for (int key = from; key < min(i + later + 1, heads.S_k); ++key) {
            float score = 0;
            for (int c = 0; c < EACH; ++c) score += q[c] * to_float(keys[key * heads.k_strides.row + c]);
            for (int offset = 16; offset > 0; offset /= 2) score += __shfl_xor_sync(0xffffffffu, score, offset);
            score *= score_scale<T>(heads);
            const float largest = fmaxf(maximum, score), origin = largest == -INF ? 0.0f : largest;
            const float weight = exp2_approximate(score - origin), factor = exp2_approximate(maximum - origin);
            sum = sum * factor + weight;
            for (int c = 0; c < EACH; ++c) {
                acc[c] = acc[c] * factor + weight * to_float(values[key * heads.v_strides.row + c]);
            }
            maximum = largest;
        }
        const bool blind = i + later < 0;
        for (int c = 0; c < EACH; ++c) {
            const float result = blind ? 0.0f : acc[c] / sum * value_scale<T>(heads);
            out[i * heads.out_strides.row + lane * EACH + c] = from_float<Output<T>>(result);
        }
    }
}

// Stores 64 rows of a tile's output, from operands of type T. Under a causal mask, queries that see no key give zeros,
// and rows with a NaN are computed again.
template <typename T, bool CAUSAL, bool WINDOW = false, int COUNT>
__device__ __forceinline__ void store_output(const Heads& heads, Output<T>* __restrict__ out, float (&acc)[COUNT],
                                             const Tile& tile, int row) {
    Output<T>* const head = out + tile.batch * heads.out_strides.batch + tile.head * heads.out_strides.head;
    if constexpr (CAUSAL) {
        const int thread = threadIdx.x % WARPGROUP, first = row + thread / 32 * 16;
        const int last_key = first + thread % 32 / 4 + heads.S_k - heads.S_q;
        bool any_nan = false;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            if (last_key + i / 2 % 2 * 8 < 0) acc[i] = 0;
            any_nan |= acc[i] != acc[i];
        }
        if (__any_sync(0xffffffffu, any_nan)) {
            attend_by_key<T, 2 * COUNT, WINDOW>(heads, head, tile.batch, tile.head, first);
            return;
        }
    }
    store_rows(head, heads.out_strides.row, acc, row, heads.S_q);
}

// Encodes TMA maps for tiles of 64 queries and of `block_n` keys.
template <typename T, int D>
bool encode_maps(HeadMaps* maps, const Heads& heads, int64_t B, int block_n) {
    auto encode = [&](CUtensorMap* map, const void* x, int64_t H, int64_t S, const HeadStrides& strides, int rows) {
        return encode_tensor_map<4>(map, TENSOR_MAP_TYPE<T>, sizeof(T), x, {D, S, H, B},
                                    {strides.row, strides.head, strides.batch}, {rows, 1, 1});
    };
    const int64_t H_kv = heads.H / heads.G;
    return encode(&maps->q, heads.q, heads.H, heads.S_q, heads.q_strides, 64) &&
           encode(&maps->k, heads.k, H_kv, heads.S_k, heads.k_strides, block_n) &&
           encode(&maps->v, heads.v, H_kv, heads.S_k, heads.v_strides, block_n);
}

// Calls f(zero of the type, D, CAUSAL) for a 16-bit dtype code, the last two as std::integral_constant.
template <typename F>
cudaError_t dispatch_heads(int64_t dtype, int64_t D, bool causal, F f) {
    const auto dispatch_mask = [&](auto zero, auto head) {
        return causal ? f(zero, head, std::true_type()) : f(zero, head, std::false_type());
    };
    const auto dispatch_head = [&](auto zero) {
        switch (D) {
            case 64: return dispatch_mask(zero, std::integral_constant<int, 64>());
            case 128: return dispatch_mask(zero, std::integral_constant<int, 128>());
            case 256: return dispatch_mask(zero, std::integral_constant<int, 256>());
            default: return cudaErrorNotSupported;
        }
    };
    switch (dtype) {
        case FLOAT16: return dispatch_head(__half());
        case BFLOAT16: return dispatch_head(__nv_bfloat16());
        default: return cudaErrorInvalidValue;
    }
}
