// Gradients of a row in registers.
#pragma once

#include "cross_entropy/loss.cuh"

// Stores zeros in a part of a row.
template <typename T, int PACKS, bool PACKED>
__device__ __forceinline__ void store_zeros(Registers<T, PACKS, PACKED>& r, const Part<T>& out) {
    r.load(Part<const T>{nullptr, 0, 1}, 0.0f);
    r.store(out, [](float v) { return v; });
}

// Sum of base - logit over a part of a row, or 0 without smoothing. The part is read again from the cache: a sum in the
// first pass would take a register. All threads of the row take part.
template <bool PACKED, typename T>
__device__ __forceinline__ float sum_below(const Part<const T>& x, float base, float smoothing, float* scratch) {
    if (!(smoothing > 0.0f)) return 0.0f;
    Registers<T, 1, PACKED> r;
    float below = 0.0f;
    const int step = int(blockDim.x) * r.LANES;
    for (int start = 0; start < x.n; start += step) {
        r.load(Part<const T>{x.data + start * x.stride, x.n - start, x.stride}, 0.0f);
        r.each_within(x.n - start, [&](float v) { below += base - v; });
    }
    return over_block(below, Addition(), scratch);
}

// Without this order the store of the target's column could come before the one that it overwrites.
__device__ __forceinline__ void order_stores() {
    if (blockDim.x == WARP) {
        __syncwarp();
    } else {
        __syncthreads();
    }
}
