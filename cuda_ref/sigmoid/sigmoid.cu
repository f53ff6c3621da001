// out[i] = 1 / (1 + exp(-x[i]))
//
// One thread computes one element, in float32. With e = exp(-|x|) <= 1 the result is 1 / (1 + e) for x >= 0 and
// e / (1 + e) for x < 0. Nothing overflows, and results near 0 keep their precision: exp(-x) alone is infinite for
// x < -88, where the sigmoid is not yet 0. vectorized.cu reads 16 bytes per thread and needs fewer instructions.
//
// Source: the definition.
#include "common/common.cuh"

constexpr int THREADS = 256;

template <typename W>
__device__ __forceinline__ W stable_sigmoid(W x) {
    const W e = exp(-fabs(x));
    return (x < W(0) ? e : W(1)) / (W(1) + e);
}

template <typename T>
__global__ void __launch_bounds__(THREADS) sigmoid_naive(const T* x, T* out, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
    if (i < n) out[i] = from_working<T>(stable_sigmoid(to_working(x[i])));
}

extern "C" int sigmoid(const void* x, void* out, int64_t n, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(n, THREADS))), block(THREADS);
    record->set(grid, block);
    return by_dtype_or_double(dtype, [&](auto zero) {
        using T = decltype(zero);
        sigmoid_naive<T><<<grid, block, 0, stream>>>(static_cast<const T*>(x), static_cast<T*>(out), n);
    });
}
