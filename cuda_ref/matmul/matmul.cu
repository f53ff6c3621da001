// out[m, n] = sum over k of a[m, k] * b[k, n], for any strides of a and b; out is row-major
//
// One thread computes one element of out: a row of a times a column of b, by fused multiply-adds in float32.
//
// The kernel follows the definition. The lanes of a warp have neighbouring n: with a row-major b they read neighbours,
// and all lanes read the same element of a. Both factors of every product are loaded from the caches.
// Two loads per multiply-add keep the load units busy and the arithmetic units idle; tiled.cu removes most of the
// loads.
//
// Precision. 16-bit inputs: products are exact in float32. float32: `ieee` multiplies the inputs as they are; `tf32`
// first rounds each factor to tf32 (8 bits of exponent, 11 of significand), as for tensor cores, which makes products
// exact too. Additions round, in float32, in order of k.
//
// Source: the definition. One thread per element: "CUDA C++ Programming Guide", section "Shared Memory", first version.
#include <algorithm>

#include "matmul/operands.cuh"

constexpr int BLOCK_M = 16;
constexpr int BLOCK_N = 64;  // 128 bytes of a row of a 16-bit b: one line of the cache
constexpr int64_t MAX_GRID_Y = 65535;

template <typename T, bool TF32>
__global__ void __launch_bounds__(BLOCK_M* BLOCK_N)
    matmul_naive(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ out, int64_t M, int64_t N, int64_t K,
                 int64_t stride_am, int64_t stride_ak, int64_t stride_bk, int64_t stride_bn) {
    const int64_t n = int64_t(blockIdx.x) * BLOCK_N + threadIdx.x;
    if (n >= N) return;
    // The y dimension of a grid is limited to 65535: taller outputs take several steps.
    for (int64_t m = int64_t(blockIdx.y) * BLOCK_M + threadIdx.y; m < M; m += int64_t(gridDim.y) * BLOCK_M) {
        const T* a_mk = a + m * stride_am;
        const T* b_kn = b + n * stride_bn;
        Working<T> acc = 0;
        for (int64_t k = 0; k < K; ++k) {
            acc = fma(factor<T, TF32>(*a_mk), factor<T, TF32>(*b_kn), acc);
            a_mk += stride_ak;
            b_kn += stride_bk;
        }
        out[m * N + n] = from_working<T>(acc);
    }
}

extern "C" int matmul(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K, int64_t stride_am,
                      int64_t stride_ak, int64_t stride_bk, int64_t stride_bn, int64_t tf32, int64_t dtype,
                      cudaStream_t stream, LaunchRecord* record) {
    const dim3 block(BLOCK_N, BLOCK_M);
    const int64_t blocks_m = ceil_div<int64_t>(M, BLOCK_M);
    const dim3 grid(unsigned(ceil_div<int64_t>(N, BLOCK_N)), unsigned(std::min(blocks_m, MAX_GRID_Y)));
    record->set(grid, block);
    return by_precision_or_double(dtype, tf32, [&](auto zero, auto rounded) {
        using T = decltype(zero);
        matmul_naive<T, decltype(rounded)::value>
            <<<grid, block, 0, stream>>>(static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(out), M, N,
                                         K, stride_am, stride_ak, stride_bk, stride_bn);
    });
}
