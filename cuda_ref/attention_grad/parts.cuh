// Float32 sums of dk and dv for parts of the query heads of a key head, and the kernel that adds them.
#pragma once

#include "attention/hopper.cuh"

// Stores float32 sums of a warpgroup, 64 rows of 2 COUNT elements from `row` on. `out` is the start of the head; its
// rows are `pitch` elements apart.
template <int COUNT>
__device__ __forceinline__ void store_sums(float* __restrict__ out, int pitch, const float (&acc)[COUNT], int row,
                                           int rows) {
    const int thread = threadIdx.x % WARPGROUP, first = row + thread / 32 * 16 + thread % 32 / 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        if (first + 8 * r >= rows) continue;
        float2* const to = reinterpret_cast<float2*>(out + int64_t(first + 8 * r) * pitch) + thread % 4;
#pragma unroll
        for (int i = 0; i < COUNT / 4; ++i) to[4 * i] = make_float2(acc[4 * i + 2 * r], acc[4 * i + 2 * r + 1]);
    }
}

// Computes dk or dv, four elements per thread: adds the parts of a key head in order and rounds once. sums: dk, then
// dv, each of key_heads * parts heads of `head_quads` times four elements.
template <typename T>
__global__ void add_parts(const float* __restrict__ sums, int key_heads, int parts, T* __restrict__ dk,
                          T* __restrict__ dv, int64_t head_quads) {
    const int64_t quads = key_heads * head_quads, at = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at >= 2 * quads) return;
    const int64_t index = at % quads, head = index / head_quads;
    const float4* from = reinterpret_cast<const float4*>(sums) + at / quads * quads * parts +
                         head * parts * head_quads + index % head_quads;
    float4 sum = __ldcg(from);
    for (int i = 1; i < parts; ++i) {
        const float4 x = __ldcg(from += head_quads);
        sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
    }
    reinterpret_cast<uint2*>(at < quads ? dk : dv)[index] = {rounded_pair<T>(sum.x, sum.y),
                                                             rounded_pair<T>(sum.z, sum.w)};
}
