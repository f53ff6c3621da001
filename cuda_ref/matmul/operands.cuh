// Shared by the matmul kernels on CUDA cores: operands with any strides, the fragments of a thread, and dispatch by
// dtype and precision.
#pragma once

#include <type_traits>

#include "common/common.cuh"

using Quad = Pack<float, 4>;

// A factor of a product: exact, or rounded to tf32 as the tensor cores round it.
template <typename T, bool TF32>
__device__ __forceinline__ Working<T> factor(T x) {
    if constexpr (TF32) {
        return round_to_tf32(to_float(x));
    } else {
        return to_working(x);
    }
}

// One operand: element (x, k) is data[x * stride_x + k * stride_k], where x is m of a or n of b.
template <typename T>
struct StridedOperand {
    const T* __restrict__ data;
    int64_t size, stride_x, stride_k;  // size: M or N
    bool along_k;                      // k is the dimension with the smaller stride
    bool packed;                       // four elements along that dimension can be read by one instruction
};

template <typename T>
StridedOperand<T> strided_operand(const void* data, int64_t size, int64_t stride_x, int64_t stride_k) {
    const bool along_k = stride_k < stride_x;
    const int64_t inner = along_k ? stride_k : stride_x, outer = along_k ? stride_x : stride_k;
    const bool packed = inner == 1 && outer % 4 == 0 && is_aligned(data, 4 * sizeof(T));
    return {static_cast<const T*>(data), size, stride_x, stride_k, along_k, packed};
}

// The COUNT rows or columns of a thread in a row of a tile: groups of four that are `apart` elements apart.
template <int COUNT>
__device__ __forceinline__ void load_fragment(float (&values)[COUNT], const float* row, int apart) {
#pragma unroll
    for (int i = 0; i < COUNT; i += 4) {
        const Quad quad = *reinterpret_cast<const Quad*>(row + i / 4 * apart);
#pragma unroll
        for (int j = 0; j < 4; ++j) values[i + j] = quad[j];
    }
}

// Calls f(zero of the type, std::bool_constant<TF32>) for a dtype code; tf32 counts for float32 only.
template <typename F>
cudaError_t by_precision(int64_t dtype, bool tf32, F f) {
    if (tf32 && dtype == FLOAT32) {
        f(float{}, std::true_type());
        return cudaGetLastError();
    }
    return by_dtype(dtype, [&](auto zero) { f(zero, std::false_type()); });
}

// The same for a kernel that takes double too.
template <typename F>
cudaError_t by_precision_or_double(int64_t dtype, bool tf32, F f) {
    if (dtype != FLOAT64) return by_precision(dtype, tf32, f);
    f(double{}, std::false_type());
    return cudaGetLastError();
}
