// Parts of decoding, attention of a few queries: a warp's ring of keys and values, the sums of its keys on tensor cores,
// and the sums of warps and parts. decode.cu has the kernel, and paged_attention/decode.cu that for pages.
#pragma once

#include <cuda_pipeline.h>

#include "common/mma.cuh"

constexpr int WARPS = 4, ROWS = 16, KEYS = 16;  // rows per block; keys per step of a warp
constexpr int MOST_PARTS = 1024;                // most parts that the second kernel adds, as in decode.py
constexpr float LOWEST = -3.4028234663852886e38f;  // first maximum: unlike -inf, it can be subtracted from -inf
constexpr unsigned ALL = 0xffffffffu;

// S: type of keys and values.
template <typename S, int D>
struct Ring {
    static constexpr int ROW = D * int(sizeof(S));  // bytes
    static constexpr int PITCH = ROW + 16;  // bytes from row to row; lets ldmatrix read without bank conflicts
    static constexpr int TILE = KEYS * PITCH, STAGES = ROW <= 128 ? 6 : 3;
    static constexpr int RESIDENT = ROW == 512 ? 0 : 2;  // blocks per multiprocessor; 0: no bound on registers
    static constexpr int BYTES = WARPS * STAGES * 2 * TILE;
    static_assert(BYTES >= WARPS * ROWS * (D + 2) * 4, "the sums of the warps fit too");
};

// Starts the copy of rows [first, end) of a matrix, at most KEYS, to shared memory, into a tile of the ring R; zeros
// below them. Called by one warp. row_at(i): address of row first + i, or of any row if that is not before `end`.
template <typename R, typename RowAt>
__device__ __forceinline__ void copy_rows(char* to, const RowAt& row_at, int first, int end) {
    constexpr int CHUNKS = R::ROW / 16;
#pragma unroll 8
    for (int i = threadIdx.x % 32; i < KEYS * CHUNKS; i += 32) {
        const int row = i / CHUNKS, chunk = i % CHUNKS;
        char* const at = to + row * R::PITCH + chunk * 16;
        const bool inside = first + row < end;
        copy_async(at, reinterpret_cast<const char*>(row_at(row, inside)) + chunk * 16, inside ? 16 : 0);
    }
}

template <typename T>
__device__ __forceinline__ uint32_t pair(float low, float high) {
    const Pack<T, 2> both = {{from_float<T>(low), from_float<T>(high)}};
    uint32_t bits;
    memcpy(&bits, &both, 4);
    return bits;
}

__device__ __forceinline__ float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(ALL, x, 1));
    return fmaxf(x, __shfl_xor_sync(ALL, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
    x += __shfl_xor_sync(ALL, x, 1);
    return x + __shfl_xor_sync(ALL, x, 2);
}

// A lane's state for rows g and g + 8, with g = lane / 4: sums of columns 8 i + 2 (lane % 4) and the next one, or of
// those that Products<S, D>::column gives.
template <int D>
struct Rows {
    float m[2], l[2], acc[D / 8][4];
    int last[2];  // the last key that the row sees
};

// The products of KEYS keys or values of 16 bits, in a tile of the ring. float8.cuh has those of float8.
template <typename S, int D>
struct Products {
    using R = Ring<S, D>;
    using Operand = S;

    // The column of a row's sum that add_warps calls `column`.
    __device__ __forceinline__ static int column(int column) { return column; }

    __device__ __forceinline__ static float value(const char* row, int column) {
        return to_float(reinterpret_cast<const S*>(row)[column]);
    }

    // s = q k^T: rows g and g + 8, keys 8 n + 2 quad and the next one.
    __device__ __forceinline__ static void scores(float (&s)[2][4], const uint32_t (&q)[D / 16][4], const char* k) {
        const int lane = threadIdx.x % 32, low = lane / 8 % 2, high = lane / 16;
#pragma unroll
        for (int i = 0; i < D / 16; ++i) {
            uint32_t x[4];
            ldmatrix_x4<false>(x, k + (high * 8 + lane % 8) * R::PITCH + (i * 16 + low * 8) * 2);
            mma<S>(s[0], q[i], x[0], x[1]);
            mma<S>(s[1], q[i], x[2], x[3]);
        }
    }

    // acc += p v
    __device__ __forceinline__ static void add(float (&acc)[D / 8][4], const uint32_t (&p)[4], const char* v) {
        const int lane = threadIdx.x % 32, low = lane / 8 % 2, high = lane / 16;
#pragma unroll
        for (int i = 0; i < D / 16; ++i) {
            uint32_t x[4];
            ldmatrix_x4<true>(x, v + (low * 8 + lane % 8) * R::PITCH + (i * 16 + high * 8) * 2);
            mma<S>(acc[2 * i], p, x[0], x[1]);
            mma<S>(acc[2 * i + 1], p, x[2], x[3]);
        }
    }
};

// Adds the KEYS keys from `first` on, which are in shared memory. All rows see the keys before `common`. scale: of the
// scores of rows g and g + 8.
template <typename S, int D>
__device__ __forceinline__ void add_keys(Rows<D>& rows, const uint32_t (&q)[D / 16][4], const char* k, const char* v,
                                         int first, int end, int common, const float (&scale)[2]) {
    using P = Products<S, D>;
    const int lane = threadIdx.x % 32, quad = lane % 4;
    float s[2][4] = {};  // rows g and g + 8, keys 8 n + 2 quad and the next one
    P::scores(s, q, k);
    if (first + KEYS > min(common, end)) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const int key = first + 8 * n + 2 * quad + j % 2;
                if (key >= end || key > rows.last[j / 2]) s[n][j] = -INFINITY;
            }
        }
    }
    float alpha[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const float largest = fmaxf(fmaxf(s[0][2 * h], s[0][2 * h + 1]), fmaxf(s[1][2 * h], s[1][2 * h + 1]));
        const float m = fmaxf(rows.m[h], quad_max(largest) * scale[h]);
        alpha[h] = exp2f(rows.m[h] - m);
        rows.m[h] = m;
#pragma unroll
        for (int n = 0; n < 2; ++n) {
#pragma unroll
            for (int j = 2 * h; j < 2 * h + 2; ++j) s[n][j] = exp2f(fmaf(s[n][j], scale[h], -m));
        }
        rows.l[h] = fmaf(rows.l[h], alpha[h], (s[0][2 * h] + s[0][2 * h + 1]) + (s[1][2 * h] + s[1][2 * h + 1]));
    }
    if (__any_sync(ALL, alpha[0] != 1.0f || alpha[1] != 1.0f)) {  // seldom after the first steps
#pragma unroll
        for (int i = 0; i < D / 8; ++i) {
#pragma unroll
            for (int j = 0; j < 4; ++j) rows.acc[i][j] *= alpha[j / 2];
        }
    }
    if (common < end && first + KEYS > common) {  // a key may be hidden from some rows
        for (int key = 0; key < min(KEYS, end - first); ++key) {
            const int from = lane / 4 * 4 + key % 8 / 2;
            float p[2];
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const float even = key < 8 ? s[0][2 * h] : s[1][2 * h];
                const float odd = key < 8 ? s[0][2 * h + 1] : s[1][2 * h + 1];
                p[h] = __shfl_sync(ALL, key % 2 ? odd : even, from);
            }
            const char* const row = v + key * Ring<S, D>::PITCH;
#pragma unroll
            for (int i = 0; i < D / 8; ++i) {
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    if (first + key <= rows.last[j / 2]) {
                        const float value = P::value(row, P::column(8 * i + 2 * quad + j % 2));
                        rows.acc[i][j] = fmaf(p[j / 2], value, rows.acc[i][j]);
                    }
                }
            }
        }
        return;
    }
    using Operand = typename P::Operand;
    const uint32_t p[4] = {pair<Operand>(s[0][0], s[0][1]), pair<Operand>(s[0][2], s[0][3]),
                           pair<Operand>(s[1][0], s[1][1]), pair<Operand>(s[1][2], s[1][3])};
    P::add(rows.acc, p, v);
}

// Adds the sums of the warps, in order, and passes those of each row and column to `store`: row, column, the largest
// score, the sum of weights and the sum of weighted values. Called by all threads, after their last copy.
template <int D, typename Store>
__device__ __forceinline__ void add_warps(const Rows<D>& rows, float4* shared, int count, const Store& store) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    __pipeline_wait_prior(0);
    __syncthreads();  // the sums of the warps reuse the memory of the rings

    float* const all = reinterpret_cast<float*>(shared);              // [WARPS][ROWS][D]
    float2* const of_warps = reinterpret_cast<float2*>(all + WARPS * ROWS * D);  // [WARPS][ROWS]: m and l
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int row = lane / 4 + 8 * h;
        const float l = quad_sum(rows.l[h]);
        if (lane % 4 == 0) of_warps[warp * ROWS + row] = make_float2(rows.m[h], l);
        float* const to = all + (warp * ROWS + row) * D + 2 * (lane % 4);
#pragma unroll
        for (int i = 0; i < D / 8; ++i) {
            to[8 * i] = rows.acc[i][2 * h];
            to[8 * i + 1] = rows.acc[i][2 * h + 1];
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < ROWS * D; i += WARPS * 32) {
        const int r = i / D, d = i % D;
        if (r >= count) break;
        float m = LOWEST, l = 0.0f, acc = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) m = fmaxf(m, of_warps[w * ROWS + r].x);
#pragma unroll
        for (int w = 0; w < WARPS; ++w) {
            const float weight = exp2f(of_warps[w * ROWS + r].x - m);
            l = fmaf(weight, of_warps[w * ROWS + r].y, l);
            acc = fmaf(weight, all[(w * ROWS + r) * D + d], acc);
        }
        store(r, d, m, l, acc);
    }
}

// Adds the parts of a row, in order, and divides by the sum of weights. Called by the D threads of a block, one for each
// column. blind: the row sees no key, so that its result is 0.
template <int D>
__device__ __forceinline__ float add_parts(const float* sums, const float2* statistics, int parts, bool blind) {
    __shared__ float weights[MOST_PARTS], l_of_parts[MOST_PARTS];
    for (int i = threadIdx.x; i < parts; i += D) {
        const float2 of_part = statistics[i];
        weights[i] = of_part.x;
        l_of_parts[i] = of_part.y;
    }
    __syncthreads();
    float m = LOWEST, l = 0.0f, acc = 0.0f;
    for (int i = 0; i < parts; ++i) m = fmaxf(m, weights[i]);
    __syncthreads();  // all threads have read the maxima
    for (int i = threadIdx.x; i < parts; i += D) weights[i] = exp2f(weights[i] - m);
    __syncthreads();
#pragma unroll 8
    for (int i = 0; i < parts; ++i) {
        l = fmaf(weights[i], l_of_parts[i], l);
        acc = fmaf(weights[i], sums[int64_t(i) * D + threadIdx.x], acc);
    }
    return blind ? 0.0f : acc / l;
}
