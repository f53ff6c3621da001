// out[i] = a[i] + b[i], for any strides of a and b
//
// One thread adds one element, in float32 (float64 in float64). The lanes of a warp have neighbouring i: with stride 1 they read 32
// neighbours of each operand, which the memory delivers together. vectorized.cu reads 16 bytes per thread instead.
//
// Source: the definition. One thread per element: "CUDA C++ Programming Guide", section "Kernels".
#include "common/common.cuh"

constexpr int THREADS = 256;

template <typename T>
__global__ void __launch_bounds__(THREADS)
    vector_add_naive(const T* a, const T* b, T* out, int64_t n, int64_t stride_a, int64_t stride_b) {
    const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
    if (i < n) out[i] = from_working<T>(to_working(a[i * stride_a]) + to_working(b[i * stride_b]));
}

extern "C" int vector_add(const void* a, const void* b, void* out, int64_t n, int64_t stride_a, int64_t stride_b,
                          int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(n, THREADS))), block(THREADS);
    record->set(grid, block);
    return by_dtype_or_double(dtype, [&](auto zero) {
        using T = decltype(zero);
        vector_add_naive<T><<<grid, block, 0, stream>>>(static_cast<const T*>(a), static_cast<const T*>(b),
                                                        static_cast<T*>(out), n, stride_a, stride_b);
    });
}
