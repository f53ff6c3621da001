// Steps of attention in float8 on Hopper: the transposition of values, the online softmax, and the products.
#pragma once

#include "attention/float8_steps.cuh"
#include "attention/hopper.cuh"
#include "common/mma.cuh"

constexpr int TRANSPOSING_WARPS = 2;

// Transposes a block of values from rows of keys to rows of columns, both in boxes of 128 swizzled bytes. Place
// 16 h + 4 c + 2 b + i of 32 keys gets key 16 h + 8 b + 2 c + i. A warp has every second group of 16 columns. It loads
// the next two squares of 32 keys and 16 columns while it waits for none: one after the other, loads would take longer
// than a step of the consumers.
template <typename P>
__device__ __forceinline__ void transpose(const char* rows, uint32_t to, int warp) {
    constexpr int LOADED = 2, HIGH = P::BLOCK_N / 32, SQUARES = P::D / 16 / TRANSPOSING_WARPS * HIGH;
    static_assert(SQUARES % LOADED == 0, "");
    const int lane = threadIdx.x % 32, row = lane % 8, matrix = lane / 8;
    // Lanes of the upper half swap the two columns of a pair: the rows of a stored matrix then cover all banks.
    const uint32_t even = lane < 16 ? 0x6420 : 0x7531, odd = lane < 16 ? 0x7531 : 0x6420;
    const int column = 16 * warp + 2 * row + (row / 4 ^ matrix % 2);  // of this lane's row of a stored matrix
    const int from = lane * ROW_BYTES + (warp ^ row) * 16, at = column * ROW_BYTES + (matrix / 2 ^ column % 8) * 16;
#pragma unroll
    for (int first = 0; first < SQUARES; first += LOADED) {
        uint32_t x[LOADED][4];  // x[i][2 h + b]: keys 16 h + 8 b + 2 c + {0, 1} of columns 2 g, 2 g + 1, with g = lane / 4
#pragma unroll
        for (int i = 0; i < LOADED; ++i) {
            const int group = (first + i) / HIGH * TRANSPOSING_WARPS, key = (first + i) % HIGH * 32;
            const char* const keys = rows + group / 8 * P::BLOCK_N * ROW_BYTES + (from ^ group % 8 * 16);
            ldmatrix_x4<true>(x[i], keys + key * ROW_BYTES);
        }
#pragma unroll
        for (int i = 0; i < LOADED; ++i) {
            const int group = (first + i) / HIGH * TRANSPOSING_WARPS, key = (first + i) % HIGH * 32;
            const int box = key / ROW_BYTES * P::D, chunk = key % ROW_BYTES / 16;
            const uint32_t y[] = {__byte_perm(x[i][0], x[i][1], even), __byte_perm(x[i][0], x[i][1], odd),
                                  __byte_perm(x[i][2], x[i][3], even), __byte_perm(x[i][2], x[i][3], odd)};
            stmatrix_x4(to + (box + group * 16) * ROW_BYTES + (at ^ chunk * 16), y);
        }
    }
}

// The online softmax of the two rows of a thread, with weights up to 2^8. Few blocks move the origin of a row: the first
// with a visible key, and those in which its maximum grows by more than 2^SLACK.
struct Float8Softmax {
    static constexpr float LARGEST = 8, SLACK = 4;  // exponents of 2
    static constexpr float SEEN = 1e-30f;  // added to a sum: not 0, even if other threads have all visible keys
    float origin[2] = {0, 0};              // exponent whose weight is 1
    float sum[2] = {0, 0};                 // of the weights of this thread's columns; 0 before the first visible key

    // scores -> exponents of their weights. Returns in all lanes whether a row of the warp needs another origin: it has
    // no weights yet, or one would exceed the largest.
    template <int COUNT>
    __device__ __forceinline__ bool subtract_origin(float (&scores)[COUNT], float scale) const {
        int bits[4] = {};  // of the largest exponent, or 0: compared as integers, which have a three-way maximum
#pragma unroll
        for (int i = 0; i < COUNT; ++i) scores[i] = fmaf(scores[i], scale, -origin[i / 2 % 2]);
#pragma unroll
        for (int i = 0; i < COUNT; i += 2) {
            int& largest = bits[i / 2 % 4];
            largest = max(max(__float_as_int(scores[i]), __float_as_int(scores[i + 1])), largest);
        }
        const int largest = max(max(bits[0], bits[1]), max(bits[2], bits[3]));
        return __any_sync(0xffffffffu, largest > __float_as_int(LARGEST) || sum[0] == 0 || sum[1] == 0);
    }

    // Moves the origins of the rows that need it. factor: of their sums so far.
    template <int COUNT>
    __device__ __forceinline__ void move_origin(float (&exponents)[COUNT], float (&factor)[2]) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            float largest = -INF, total = sum[r];
#pragma unroll
            for (int i = 2 * r; i < COUNT; i += 4) largest = fmaxf(largest, fmaxf(exponents[i], exponents[i + 1]));
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
            add_lanes(total);
            const float rise = largest > (total == 0 ? -INF : LARGEST) ? largest - (LARGEST - SLACK) : 0.0f;
#pragma unroll
            for (int i = 2 * r; i < COUNT; i += 4) exponents[i] -= rise, exponents[i + 1] -= rise;
            origin[r] += rise;
            factor[r] = total == 0 ? 1.0f : exp2_approximate(-rise);
            sum[r] = fmaf(sum[r], factor[r], largest > -INF ? SEEN : 0.0f);
        }
    }

    // Adds the weights to the sums, and rounds those of neighbouring columns to pairs of float8 numbers.
    template <int COUNT>
    __device__ __forceinline__ void weigh(uint16_t (&pairs)[COUNT / 2], const float (&exponents)[COUNT]) {
        float part[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < COUNT / 2; ++i) {
            const float low = exp2_approximate(exponents[2 * i]), high = exp2_approximate(exponents[2 * i + 1]);
            part[i % 2] += low + high;
            pairs[i] = rounded_float8_pair(low, high);
        }
        sum[0] += part[0], sum[1] += part[1];
    }
};

template <int COUNT>
__device__ __forceinline__ void rescale(float (&acc)[COUNT], const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) acc[i] *= factor[i / 2 % 2];
}

// The left operand: register 2 h + r of 32 keys has keys 16 h + 8 b + 2 c + {0, 1}, for b = 0 and 1, of row r.
template <int COUNT>
__device__ __forceinline__ void join_pairs(uint32_t (&weights)[COUNT], const uint16_t (&pairs)[2 * COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        weights[i] = joined(pairs[i / 2 * 4 + i % 2], pairs[i / 2 * 4 + i % 2 + 2]);
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
