// (a, b) -> (a cos - b sin, b cos + a sin) for each pair of features of queries and keys
//
// A block rotates heads of one token. Its cos and sin come from memory once, and for the other heads from the L1 cache.
// A thread rotates WIDTH pairs of one head, which it loads and stores by 16 bytes: two packs of a head's halves, or one
// pack of neighbouring pairs.
#include "common/packs.cuh"
#include "rope/rope.cuh"

constexpr int BLOCK = 512;  // most threads per block

// Replaces the pair a, b by its rotation.
template <typename T>
__device__ __forceinline__ void rotate(T& a, T& b, float c, float s) {
    const float x = to_float(a), y = to_float(b);
    a = from_float<T>(x * c - y * s);
    b = from_float<T>(y * c + x * s);
}

// blockIdx.x: token; blockIdx.y and threadIdx.y: head; threadIdx.x: pairs.
template <typename T, int WIDTH, bool NEIGHBOURS>
__global__ void __launch_bounds__(BLOCK)
    rope_packed(Heads<T> q, Heads<T> k, const T* __restrict__ cos, const T* __restrict__ sin, int64_t S, int64_t half,
                float sign) {
    const int64_t token = blockIdx.x, number = int64_t(blockIdx.y) * blockDim.y + threadIdx.y;
    if (number >= q.heads + k.heads) return;
    const Head<T> head = find_head(q, k, token, number, S, 2 * half);
    const int64_t angles = token % S * half;
    for (int64_t i = int64_t(threadIdx.x) * WIDTH; i < half; i += int64_t(blockDim.x) * WIDTH) {
        const auto c = read_pack<T, WIDTH>(cos + angles + i), s = read_pack<T, WIDTH>(sin + angles + i);
        if constexpr (NEIGHBOURS && WIDTH > 1) {
            auto both = read_pack<T, 2 * WIDTH>(head.x + 2 * i);
#pragma unroll
            for (int lane = 0; lane < WIDTH; ++lane) {
                rotate(both[2 * lane], both[2 * lane + 1], to_float(c[lane]), sign * to_float(s[lane]));
            }
            write_pack<T, 2 * WIDTH>(head.out + 2 * i, both);
        } else {
            const int64_t first = NEIGHBOURS ? 2 * i : i, second = NEIGHBOURS ? 2 * i + 1 : i + half;
            auto a = read_pack<T, WIDTH>(head.x + first), b = read_pack<T, WIDTH>(head.x + second);
#pragma unroll
            for (int lane = 0; lane < WIDTH; ++lane) {
                rotate(a[lane], b[lane], to_float(c[lane]), sign * to_float(s[lane]));
            }
            write_pack<T, WIDTH>(head.out + first, a);
            write_pack<T, WIDTH>(head.out + second, b);
        }
    }
}

// True if each head begins at a multiple of 16 bytes, in x and in its result.
template <typename T>
bool are_packed(const Heads<T>& x) {
    constexpr int64_t LANES = 16 / sizeof(T);
    return is_aligned(x.x, 16) && is_aligned(x.out, 16) && x.stride_b % LANES == 0 && x.stride_s % LANES == 0 &&
           x.stride_h % LANES == 0;
}

template <typename T, int WIDTH, bool NEIGHBOURS>
void launch(const Heads<T>& q, const Heads<T>& k, const T* cos, const T* sin, int64_t tokens, int64_t S, int64_t half,
            float sign, cudaStream_t stream, LaunchRecord* record) {
    const int64_t heads = q.heads + k.heads, across = min(ceil_div<int64_t>(half, WIDTH), int64_t(BLOCK));
    const int64_t blocks = ceil_div(heads, max(BLOCK / across, int64_t(1)));  // of one token, as full as each other
    const dim3 grid{unsigned(tokens), unsigned(blocks)}, block{unsigned(across), unsigned(ceil_div(heads, blocks))};
    record->set(grid, block);
    rope_packed<T, WIDTH, NEIGHBOURS><<<grid, block, 0, stream>>>(q, k, cos, sin, S, half, sign);
}

// neighbours: a pair is 2i and 2i + 1, otherwise i and i + D/2. Strides are those of B, S and H.
extern "C" int rope_vectorized(const void* q, const void* k, const void* cos, const void* sin, void* q_out, void* k_out,
                               int64_t B, int64_t S, int64_t H, int64_t H_kv, int64_t D, int64_t q_b, int64_t q_s,
                               int64_t q_h, int64_t k_b, int64_t k_s, int64_t k_h, int64_t neighbours, int64_t inverse,
                               int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const float sign = inverse ? -1.0f : 1.0f;
    const int64_t half = D / 2;
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int LANES = 16 / sizeof(T);
        const Heads<T> queries = {static_cast<const T*>(q), static_cast<T*>(q_out), H, q_b, q_s, q_h};
        const Heads<T> keys = {static_cast<const T*>(k), static_cast<T*>(k_out), H_kv, k_b, k_s, k_h};
        const T *c = static_cast<const T*>(cos), *s = static_cast<const T*>(sin);
        const bool packed = are_packed(queries) && are_packed(keys) && is_aligned(c, 16) && is_aligned(s, 16) &&
                            half % LANES == 0;
        if (neighbours) {
            packed ? launch<T, LANES / 2, true>(queries, keys, c, s, B * S, S, half, sign, stream, record)
                   : launch<T, 1, true>(queries, keys, c, s, B * S, S, half, sign, stream, record);
        } else {
            packed ? launch<T, LANES, false>(queries, keys, c, s, B * S, S, half, sign, stream, record)
                   : launch<T, 1, false>(queries, keys, c, s, B * S, S, half, sign, stream, record);
        }
    });
}
