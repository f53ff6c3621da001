// Steps of attention in float8 on Hopper: the transposition of values, the online softmax, and the products.
#pragma once

#include "attention/float8_steps.cuh"
#include "attention/hopper.cuh"
#include "common/mma.cuh"

constexpr int TRANSPOSING_WARPS = 4, TRANSPOSED = 128;  // TRANSPOSED: keys of a block that transposes

struct ValueMaps {
    CUtensorMap rows, columns;
};

template <int D>
bool encode_values(ValueMaps* maps, const Heads& heads, uint8_t* columns, int64_t B, int blocks) {
    const int64_t H_kv = heads.H / heads.G, keys = int64_t(blocks) * TRANSPOSED;
    const HeadStrides& strides = heads.v_strides;
    return encode_tensor_map<4>(&maps->rows, TENSOR_MAP_TYPE<Float8>, 1, heads.v, {D, heads.S_k, H_kv, B},
                                {strides.row, strides.head, strides.batch}, {TRANSPOSED, 1, 1}) &&
           encode_tensor_map<4>(&maps->columns, TENSOR_MAP_TYPE<Float8>, 1, columns, {keys, D, H_kv, B},
                                {keys, D * keys, H_kv * D * keys}, {D, 1, 1});
}

// Transposes TRANSPOSED rows of D values to D rows of keys, both in boxes of 128 swizzled bytes. Place 16 h + 4 c + 2 b
// + i of 32 keys gets key 16 h + 8 b + 2 c + i. Each warp has 16 columns at a time.
template <int D>
__device__ __forceinline__ void transpose(const char* rows, uint32_t to, int warp) {
    const int lane = threadIdx.x % 32, row = lane % 8, matrix = lane / 8;
    // Lanes of the upper half swap the two columns of a pair: the rows of a stored matrix then cover all banks.
    const uint32_t even = lane < 16 ? 0x6420 : 0x7531, odd = lane < 16 ? 0x7531 : 0x6420;
    const int column = 16 * warp + 2 * row + (row / 4 ^ matrix % 2);  // of this lane's row of a stored matrix
    const int from = lane * ROW_BYTES + (warp ^ row) * 16, at = column * ROW_BYTES + (matrix / 2 ^ column % 8) * 16;
#pragma unroll
    for (int group = 0; group < D / 16; group += TRANSPOSING_WARPS) {
        const char* const keys = rows + group / 8 * TRANSPOSED * ROW_BYTES + (from ^ group % 8 * 16);
#pragma unroll
        for (int key = 0; key < TRANSPOSED; key += 32) {
            uint32_t x[4];  // x[2 h + b]: keys 16 h + 8 b + 2 c + {0, 1} of columns 2 g, 2 g + 1, with g = lane / 4
            ldmatrix_x4<true>(x, keys + key * ROW_BYTES);
            const uint32_t y[] = {__byte_perm(x[0], x[1], even), __byte_perm(x[0], x[1], odd),
                                  __byte_perm(x[2], x[3], even), __byte_perm(x[2], x[3], odd)};
            stmatrix_x4(to + group * 16 * ROW_BYTES + (at ^ key), y);
        }
    }
}

// The largest of this thread's scores in row r. Compared as integers, which have a three-way maximum, negative numbers
// are in the opposite order, but below all others.
template <int COUNT>
__device__ __forceinline__ float largest_score(const float (&scores)[COUNT], int r) {
    int bits = __float_as_int(scores[2 * r]);
#pragma unroll
    for (int i = 2 * r; i < COUNT; i += 4) {
        bits = max(max(__float_as_int(scores[i]), __float_as_int(scores[i + 1])), bits);
    }
    if (bits >= 0) return __int_as_float(bits);
    float largest = -INF;
#pragma unroll
    for (int i = 2 * r; i < COUNT; i += 4) largest = fmaxf(largest, fmaxf(scores[i], scores[i + 1]));
    return largest;
}

// The online softmax of the two rows of a thread, with weights up to 2^8.
struct Float8Softmax {
    static constexpr float LARGEST = 8, SLACK = 4;  // exponents of 2
    float origin[2] = {-1e30f, -1e30f};  // exponent whose weight is 1; finite, so that hidden scores give 0 and not NaN
    float sum[2] = {0, 0};               // sum of the weights of this thread's columns
    float factor[2];                     // factor of the sums before the last block

    // scores -> exp2(scale score - origin). The origin rises if a weight would exceed the largest.
    template <int COUNT>
    __device__ __forceinline__ void weigh(float (&scores)[COUNT], float scale) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            float largest = largest_score(scores, r);
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2)) * scale;
            const bool kept = largest <= origin[r] + LARGEST;
            const float next = kept ? origin[r] : largest - (LARGEST - SLACK);
            factor[r] = kept ? 1.0f : exp2_approximate(origin[r] - next);
            origin[r] = next;
            float part = 0;
#pragma unroll
            for (int i = 2 * r; i < COUNT; i += 4) {
                scores[i] = exp2_approximate(fmaf(scores[i], scale, -next));
                scores[i + 1] = exp2_approximate(fmaf(scores[i + 1], scale, -next));
                part += scores[i] + scores[i + 1];
            }
            sum[r] = sum[r] * factor[r] + part;
        }
    }

    __device__ __forceinline__ bool has_grown() const {
        return __any_sync(0xffffffffu, factor[0] != 1 || factor[1] != 1);
    }

    template <int COUNT>
    __device__ __forceinline__ void rescale(float (&acc)[COUNT]) const {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) acc[i] *= factor[i / 2 % 2];
    }
};

// The left operand: register 2 h + r of 32 keys has keys 16 h + 8 b + 2 c + {0, 1}, for b = 0 and 1, of row r.
template <int COUNT>
__device__ __forceinline__ void round_to_weights(uint32_t (&weights)[COUNT / 4], const float (&p)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT / 4; ++i) {
        const int at = i / 2 * 8 + i % 2 * 2;
        weights[i] = joined(rounded_float8_pair(p[at], p[at + 1]), rounded_float8_pair(p[at + 4], p[at + 5]));
    }
}

// scores = q k^T for 64 queries and the keys of a block.
template <typename P, int COUNT>
__device__ __forceinline__ void multiply_float8_keys(float (&scores)[COUNT], uint32_t q, uint32_t k) {
    const uint64_t a = wgmma_descriptor(q, 0), b = wgmma_descriptor(k, 0);
    wgmma<Float8, false, false, false>(scores, a, b);
#pragma unroll
    for (int i = 1; i < P::D / 32; ++i) {
        wgmma<Float8, false, false>(scores, a + (i / 4 * (BOX_BYTES >> 4) + i % 4 * K_MAJOR_STEP),
                                    b + (i / 4 * (P::BLOCK_N * ROW_BYTES >> 4) + i % 4 * K_MAJOR_STEP));
    }
}

// acc (+)= weights v for 64 queries and the keys of a block; v is transposed.
template <typename P, int COUNT, int WEIGHTS>
__device__ __forceinline__ void multiply_float8_values(float (&acc)[COUNT], const uint32_t (&weights)[WEIGHTS],
                                                       uint32_t v, int add) {
    const uint64_t b = wgmma_descriptor(v, 0);
#pragma unroll
    for (int i = 0; i < WEIGHTS / 4; ++i) {
        wgmma_float8(acc, weights + 4 * i, b + (i / 4 * (P::D * ROW_BYTES >> 4) + i % 4 * K_MAJOR_STEP),
                     i > 0 ? 1 : add);
    }
}
