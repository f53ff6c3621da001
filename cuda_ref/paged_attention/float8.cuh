// The products of decoding.cuh for keys and values of float8_e4m3fn: codes become float16, exactly, for tensor cores of
// 16 bits. A word of shared memory has 4 codes, and two instructions convert them.
#pragma once

#include "attention/decoding.cuh"
#include "common/float8.cuh"

struct Float8 {
    uint8_t bits;
};

__device__ __forceinline__ uint32_t low_halves(uint32_t codes) { return float8_to_halves(uint16_t(codes)); }
__device__ __forceinline__ uint32_t high_halves(uint32_t codes) { return float8_to_halves(uint16_t(codes >> 16)); }

// The fragments' order of columns differs from that of 16 bits, for keys as for q: the 16 columns of product i are, for
// the lanes of a quad, columns first_column(i, quad) to that + 3. So a lane loads 16 codes of a key at once.
template <int D>
__device__ __forceinline__ int first_column(int i, int quad) {
    const int load = i / 4, chunk = D == 64 ? quad : 2 * quad + load % 2 + load / 2 * 8;  // avoids bank conflicts
    return chunk * 16 + i % 4 * 4;
}

template <int D>
struct Products<Float8, D> {
    using R = Ring<Float8, D>;
    using Operand = __half;

    // ldmatrix transposes pairs of codes: the even columns of 16 are one product, the odd ones the next.
    __device__ __forceinline__ static int column(int column) {
        return column / 16 * 16 + column % 8 * 2 + column / 8 % 2;
    }

    __device__ __forceinline__ static float value(const char* row, int column) {
        return float8_to_float(uint8_t(row[column]));
    }

    __device__ __forceinline__ static void scores(float (&s)[2][4], const uint32_t (&q)[D / 16][4], const char* k) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < D / 16; i += 4) {
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                const auto codes = read_words(k + (8 * n + lane / 4) * R::PITCH + first_column<D>(i, lane % 4));
#pragma unroll
                for (int j = 0; j < 4; ++j) mma<__half>(s[n], q[i + j], low_halves(codes[j]), high_halves(codes[j]));
            }
        }
    }

    __device__ __forceinline__ static void add(float (&acc)[D / 8][4], const uint32_t (&p)[4], const char* v) {
        const int lane = threadIdx.x % 32, low = lane / 8 % 2, high = lane / 16;
#pragma unroll
        for (int i = 0; i < D / 32; ++i) {
            uint32_t x[4];
            ldmatrix_x4<true>(x, v + (low * 8 + lane % 8) * R::PITCH + i * 32 + high * 16);
#pragma unroll
            for (int j = 0; j < 4; ++j) x[j] = __byte_perm(x[j], 0, 0x3120);  // even column of two keys, odd column
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                mma<__half>(acc[4 * i + 2 * j], p, low_halves(x[2 * j]), low_halves(x[2 * j + 1]));
                mma<__half>(acc[4 * i + 2 * j + 1], p, high_halves(x[2 * j]), high_halves(x[2 * j + 1]));
            }
        }
    }

private:
    __device__ __forceinline__ static Pack<uint32_t, 4> read_words(const char* from) {
        return *reinterpret_cast<const Pack<uint32_t, 4>*>(from);
    }
};

constexpr float LARGEST_QUERY = 16384.0f, LEAST_UNIT = 7.88860905e-31f,
                LARGEST_UNIT = 1.70141183e38f;  // 2^14; 2^-100; 2^127

// Loads row h of a lane's fragments as float16, times a power of two that gives the row's largest number the exponent
// 14. Returns the factor that the scores then need. from: null for a row of zeros. negative: whether to change the
// signs.
template <int D, typename T>
__device__ __forceinline__ float load_query(uint32_t (&fragments)[D / 16][4], int h, const T* from, bool negative) {
    const int quad = threadIdx.x % 4;
    float largest = 0.0f;  // a NaN gives NaN anyway
    for (int i = 0; from != nullptr && i < D / 16; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) largest = fmaxf(largest, fabsf(to_float(from[first_column<D>(i, quad) + j])));
    }
    const float power = __uint_as_float(__float_as_uint(quad_max(largest)) & 0x7f800000u);  // at most `largest`
    const float unit = fminf(fmaxf(power, LEAST_UNIT), LARGEST_UNIT);
    const float factor = (negative ? -LARGEST_QUERY : LARGEST_QUERY) / unit;
    if (from != nullptr) {
#pragma unroll
        for (int i = 0; i < D / 16; ++i) {
            const T* const x = from + first_column<D>(i, quad);
            fragments[i][h] = pair<__half>(to_float(x[0]) * factor, to_float(x[1]) * factor);
            fragments[i][2 + h] = pair<__half>(to_float(x[2]) * factor, to_float(x[3]) * factor);
        }
    }
    return unit / LARGEST_QUERY;
}
