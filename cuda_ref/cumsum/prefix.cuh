// Prefix sums over the lanes of a warp.
#pragma once

#include "common/warp.cuh"

// The sum of the values of all lanes up to this one, in five steps: each adds the sum of the `distance` lanes before.
__device__ __forceinline__ float prefix_sum(float value) {
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int distance = 1; distance < WARP; distance *= 2) {
        const float before = __shfl_up_sync(0xffffffffu, value, distance);
        if (lane >= distance) value += before;
    }
    return value;
}

// The sum of the lanes before this one. prefix_sum minus the lane's own value would be NaN for an infinity.
__device__ __forceinline__ float sum_before(float prefix) {
    const float before = __shfl_up_sync(0xffffffffu, prefix, 1);
    return threadIdx.x % WARP == 0 ? 0.0f : before;
}
