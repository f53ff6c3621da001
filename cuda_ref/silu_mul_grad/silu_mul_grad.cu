// da[i, j] = dy b act'(a), db[i, j] = dy act(a), act(a) = a s: act'(a) = s + a w' s (1 - s)
//
// One thread computes one element of both gradients, in float32. s is the sigmoid of w = a for silu; for gelu it is
// (1 + tanh(w / 2)) / 2 with w = sqrt(8 / pi) (a + 0.044715 a^3). vectorized.cu reads 16 bytes per thread.
#include "common/common.cuh"

constexpr int THREADS = 256;

template <typename T>
__global__ void __launch_bounds__(THREADS)
    silu_mul_grad_naive(const T* a, const T* b, const T* dy, T* da, T* db, int64_t m, int64_t n, int64_t a_m,
                        int64_t a_n, int64_t b_m, int64_t b_n, int64_t dy_m, int64_t dy_n, bool is_gelu) {
    const int64_t index = int64_t(blockIdx.x) * THREADS + threadIdx.x;
    if (index >= m * n) return;
    const int64_t i = index / n, j = index % n;
    const float x = to_float(a[i * a_m + j * a_n]), y = to_float(b[i * b_m + j * b_n]);
    const float d = to_float(dy[i * dy_m + j * dy_n]);
    const float s = is_gelu ? 0.5f * (1.0f + tanhf(0.797884561f * (x + 0.044715f * x * x * x))) : 1.0f / (1.0f + expf(-x));
    const float steep = is_gelu ? 1.59576912f * (1.0f + 0.134145f * x * x) : 1.0f;
    da[index] = from_float<T>(d * y * (s + x * steep * s * (1.0f - s)));
    db[index] = from_float<T>(d * (x * s));
}

extern "C" int silu_mul_grad(const void* a, const void* b, const void* dy, void* da, void* db, int64_t m, int64_t n,
                             int64_t a_m, int64_t a_n, int64_t b_m, int64_t b_n, int64_t dy_m, int64_t dy_n,
                             int64_t gelu, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(m * n, THREADS))), block(THREADS);
    record->set(grid, block);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        silu_mul_grad_naive<T><<<grid, block, 0, stream>>>(
            static_cast<const T*>(a), static_cast<const T*>(b), static_cast<const T*>(dy), static_cast<T*>(da),
            static_cast<T*>(db), m, n, a_m, a_n, b_m, b_n, dy_m, dy_n, gelu != 0);
    });
}
