// The heads of queries and keys, as the kernels of rope find them.
#pragma once

#include "common/common.cuh"

// An operand (B, S, heads, D) with strides, and its contiguous result.
template <typename T>
struct Heads {
    const T* x;
    T* out;
    int64_t heads, stride_b, stride_s, stride_h;
};

// The D features of one head of a token.
template <typename T>
struct Head {
    const T* x;
    T* out;
};

// Head number `head` of token `token`: those of q come first, then those of k.
template <typename T>
__device__ __forceinline__ Head<T> find_head(const Heads<T>& q, const Heads<T>& k, int64_t token, int64_t head,
                                             int64_t S, int64_t D) {
    const bool is_query = head < q.heads;
    const Heads<T>& from = is_query ? q : k;
    const int64_t h = is_query ? head : head - q.heads, b = token / S, s = token % S;
    return {from.x + b * from.stride_b + s * from.stride_s + h * from.stride_h,
            from.out + (token * from.heads + h) * D};
}
