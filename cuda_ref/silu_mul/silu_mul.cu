// out[i, j] = act(a[i, j]) * b[i, j], act(a) = a / (1 + exp(-a)) or gelu
//
// One thread computes one element, in float32. vectorized.cu reads 16 bytes per thread.
//
// Source: N. Shazeer, "GLU Variants Improve Transformer", 2020 (arXiv 2002.05202).
#include "common/common.cuh"

constexpr int THREADS = 256;

__device__ __forceinline__ float silu(float a) { return a / (1.0f + expf(-a)); }

__device__ __forceinline__ float gelu(float a) {
    return 0.5f * a * (1.0f + tanhf(0.797884561f * (a + 0.044715f * a * a * a)));
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    silu_mul_naive(const T* a, const T* b, T* out, int64_t m, int64_t n, int64_t a_m, int64_t a_n, int64_t b_m,
                   int64_t b_n, bool is_gelu) {
    const int64_t index = int64_t(blockIdx.x) * THREADS + threadIdx.x;
    if (index >= m * n) return;
    const int64_t i = index / n, j = index % n;
    const float x = to_float(a[i * a_m + j * a_n]), y = to_float(b[i * b_m + j * b_n]);
    out[index] = from_float<T>((is_gelu ? gelu(x) : silu(x)) * y);
}

extern "C" int silu_mul(const void* a, const void* b, void* out, int64_t m, int64_t n, int64_t a_m, int64_t a_n,
                        int64_t b_m, int64_t b_n, int64_t gelu, int64_t dtype, cudaStream_t stream,
                        LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(m * n, THREADS))), block(THREADS);
    record->set(grid, block);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        silu_mul_naive<T><<<grid, block, 0, stream>>>(static_cast<const T*>(a), static_cast<const T*>(b),
                                                      static_cast<T*>(out), m, n, a_m, a_n, b_m, b_n, gelu != 0);
    });
}
