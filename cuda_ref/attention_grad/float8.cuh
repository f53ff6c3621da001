// Shared by the kernels of float8.cu: the problem, tiles in shared memory, the transposition, and the products.
#pragma once

#include "attention/float8_steps.cuh"
#include "attention/hopper.cuh"

// Each block keeps 128 rows: queries to compute dq, keys to compute dk and dv. Two consumers have 64 of them each.
constexpr int CONSUMERS = 2, KEPT = CONSUMERS * 64;
constexpr int PRODUCER = CONSUMERS * WARPGROUP, THREADS = PRODUCER + WARPGROUP;
constexpr int KEPT_BYTES = KEPT * ROW_BYTES;     // a row of up to 128 elements takes one box
constexpr int TILE_ROWS = 64;                    // queries that a block reads at a time
constexpr int TOGETHER = 16;                     // key heads that run at the same time under a causal mask
constexpr int GROUP = 16;                        // queries that share a limit of |ds|: those of a warp
constexpr float FILLED = 256, LOG2_FILLED = 8;   // what the largest p and ds become; float8 reaches 448
constexpr float LEAST = 7.8886e-31f;             // 2^-100, the smallest divisor: ds of a row may be 0

struct GradMaps {
    CUtensorMap q, k, v, d_out;  // in boxes of 64 rows
};

// Numbers of queries and operands beyond those of Heads. Rows of a head are counted up to a multiple of KEPT.
struct Operands {
    const float* scale_d_out;
    float* limits;                                       // [B H][heads.padded / GROUP]: no |ds| is larger
    const uint8_t *q_transposed, *d_out_transposed, *k_transposed;  // tiles of `transpose`
    float scale;                                         // sm_scale
    int parts;         // of the query heads of a key head; each has its own sums of dk and dv
    float* part_sums;  // dk, then dv, each (B, H_kv * parts, S_k, D); unused with one part
};

// Both consumers of a block wait for the same loads. In turns, one computes exponentials while the tensor cores work for
// the other.
struct InTurns {
    static constexpr int CONSUMERS = ::CONSUMERS;
    static constexpr bool TURNS = true;
};

// Place in the order of tiles: a head over all batch entries, and a row of tiles.
struct Place {
    int head, row;
};

// Without a mask, heads come one after the other. With a causal mask, tiles that take long come first: `rows` is then
// counted in the opposite order. `together` heads take turns, few enough for the L2 cache.
template <bool CAUSAL>
__device__ __forceinline__ Place place_at(int index, int heads, int rows, int together) {
    if constexpr (!CAUSAL) return {index / rows, index % rows};
    const int first = index / (rows * together) * together, within = index - first * rows;
    const int count = min(together, heads - first);
    return {first + within % count, within / count};
}

// Transposes tiles of ROWS rows of x for wgmma, which reads them as a right operand and sums over the rows. One block
// transposes one tile. A column becomes a row of 128 swizzled bytes: 128 rows of x or, in tiles of 64 rows, the 64 rows
// of column d and of column 64 + d, if there is one. Place 4 c + 2 b + i of 16 rows gets row 8 b + 2 c + i, the order
// in which a thread holds sums of wgmma. Rows beyond the head are zeros.
template <int D, int ROWS>
__global__ void transpose(const uint8_t* __restrict__ x, HeadStrides strides, uint8_t* __restrict__ out, int H, int S,
                          int tiles) {
    static_assert(ROWS == TILE_ROWS || ROWS == KEPT, "");
    constexpr int CHUNKS = D / 16, OUT_ROWS = ROWS == TILE_ROWS ? 64 : D, OUT_CHUNKS = ROWS * CHUNKS / OUT_ROWS;
    __shared__ uint4 rows[ROWS * CHUNKS];  // chunk c of row r in the place of chunk c ^ r / 16, to avoid bank conflicts
    const int head = blockIdx.x / tiles, first = blockIdx.x % tiles * ROWS;
    x += head / H * strides.batch + head % H * strides.head;
    for (int i = threadIdx.x; i < ROWS * CHUNKS; i += blockDim.x) {
        const int row = i / CHUNKS, chunk = i % CHUNKS;
        const uint8_t* const from = x + (first + row) * strides.row + chunk * 16;
        const bool inside = first + row < S;
        rows[row * CHUNKS + (chunk ^ row / 16 % CHUNKS)] = inside ? *reinterpret_cast<const uint4*>(from) : uint4{};
    }
    __syncthreads();
    uint8_t* const tile = out + int64_t(blockIdx.x) * OUT_ROWS * ROW_BYTES;
    for (int i = threadIdx.x; i < ROWS * CHUNKS; i += blockDim.x) {
        const int row = i / OUT_CHUNKS, chunk = i % OUT_CHUNKS;
        const int column = row + chunk / (ROWS / 16) * 64, group = chunk % (ROWS / 16);  // of 16 rows of x
        const uint8_t* const from = reinterpret_cast<const uint8_t*>(rows) + group * 16 * D +
                                    (column / 16 ^ group % CHUNKS) * 16 + column % 16;
        uint32_t x4[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            x4[c] = from[2 * c * D] | from[(2 * c + 1) * D] << 8 | from[(2 * c + 8) * D] << 16 |
                    uint32_t(from[(2 * c + 9) * D]) << 24;
        }
        *reinterpret_cast<uint4*>(tile + row * ROW_BYTES + (chunk ^ row % 8) * 16) = {x4[0], x4[1], x4[2], x4[3]};
    }
}

// Copies ROWS rows of a head from `row` on.
template <int ROWS>
__device__ __forceinline__ void load_rows_of(uint32_t to, const CUtensorMap* map, int row, int head, int batch,
                                             uint32_t barrier) {
#pragma unroll
    for (int i = 0; i < ROWS; i += 64) tma_load(to + i * ROW_BYTES, map, 0, row + i, head, batch, barrier);
}

// sums = a b^T over D columns, for 64 rows of a and 2 COUNT rows of b.
template <int D, int COUNT>
__device__ __forceinline__ void multiply_rows(float (&sums)[COUNT], uint32_t a, uint32_t b) {
    const uint64_t left = wgmma_descriptor(a, 0), right = wgmma_descriptor(b, 0);
    wgmma<Float8, false, false, false>(sums, left, right);
#pragma unroll
    for (int i = 1; i < D / 32; ++i) {
        wgmma<Float8, false, false>(sums, left + i * K_MAJOR_STEP, right + i * K_MAJOR_STEP);
    }
}

// acc (+)= a b^T for a left operand of `round_to_operand`, and rows of 128 bytes of b from `transpose`.
template <int COUNT, int TERMS>
__device__ __forceinline__ void add_product(float (&acc)[COUNT], const uint32_t (&a)[TERMS], uint32_t b, int add) {
    const uint64_t right = wgmma_descriptor(b, 0);
#pragma unroll
    for (int i = 0; i < TERMS / 4; ++i) wgmma_float8(acc, a + 4 * i, right + i * K_MAJOR_STEP, i > 0 ? 1 : add);
}

// Rounds sums to the left operand of the next product: see `transpose`.
template <int COUNT>
__device__ __forceinline__ void round_to_operand(uint32_t (&x)[COUNT / 4], const float (&sums)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT / 4; ++i) {
        const int at = i / 2 * 8 + i % 2 * 2;
        x[i] = joined(rounded_float8_pair(sums[at], sums[at + 1]), rounded_float8_pair(sums[at + 4], sums[at + 5]));
    }
}

// The factor of products of q and k as an exponent of 2; not 0, since 0 times a hidden score is NaN.
__device__ __forceinline__ float exponent_scale(const Heads& heads) {
    const float scale = score_scale<Float8>(heads);
    return scale == 0 ? 1.17549435e-38f : scale;
}

template <int COUNT>
__device__ __forceinline__ void negate(float (&scores)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) scores[i] = -scores[i];
}

__device__ __forceinline__ float largest_of_rows(float x) {  // of the eight rows of a warp with the same lane % 4
    for (int lanes = 4; lanes < 32; lanes *= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lanes));
    return x;
}
