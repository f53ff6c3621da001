// out[m, n] = sum over k of a[m, k] * b[k, n], for any strides of a and b; out is row-major
//
// One thread computes one element of out: a row of a times a column of b, by fused multiply-adds in float32.
//
// The formula and nothing else: the first rung of the ladder, from which the others are understood. The lanes of a warp
// have neighbouring n, so with a row-major b they read neighbours, and all of them the same element of a. Both factors
// of every product come from the caches: two loads for one multiply-add, so the load units are busy and the arithmetic
// idles. matmul_tiled.cu takes the next step.
//
// Precision. 16-bit inputs: their products are exact in float32. float32: `ieee` multiplies what it is given; `tf32`
// rounds each factor to tf32 (8 bits of exponent, 11 of significand) first, as tensor cores want it done, and then has
// exact products too. Only the additions round, in float32, in order of k.
//
// Source: the definition. One thread an element: "CUDA C++ Programming Guide", section "Shared Memory", first version.
#include <algorithm>

#include "common.cuh"

constexpr int BLOCK_M = 16;
constexpr int BLOCK_N = 64;  // a line of a row-major 16-bit b, 128 bytes; narrower blocks fetch it twice
constexpr int64_t MAX_GRID_Y = 65535;

template <typename T, bool TF32>
__device__ __forceinline__ float factor(T x) {
    return TF32 ? round_to_tf32(to_float(x)) : to_float(x);
}

template <typename T, bool TF32>
__global__ void __launch_bounds__(BLOCK_M* BLOCK_N)
    matmul_naive(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ out, int64_t M, int64_t N, int64_t K,
                 int64_t stride_am, int64_t stride_ak, int64_t stride_bk, int64_t stride_bn) {
    const int64_t n = int64_t(blockIdx.x) * BLOCK_N + threadIdx.x;
    if (n >= N) return;
    // A grid's y counts to 65535 only: taller outputs take several steps.
    for (int64_t m = int64_t(blockIdx.y) * BLOCK_M + threadIdx.y; m < M; m += int64_t(gridDim.y) * BLOCK_M) {
        const T* a_mk = a + m * stride_am;
        const T* b_kn = b + n * stride_bn;
        float acc = 0.0f;
        for (int64_t k = 0; k < K; ++k) {
            acc = fmaf(factor<T, TF32>(*a_mk), factor<T, TF32>(*b_kn), acc);
            a_mk += stride_ak;
            b_kn += stride_bk;
        }
        out[m * N + n] = from_float<T>(acc);
    }
}

extern "C" int matmul(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K, int64_t stride_am,
                      int64_t stride_ak, int64_t stride_bk, int64_t stride_bn, int64_t tf32, int64_t dtype,
                      cudaStream_t stream, LaunchRecord* record) {
    const dim3 block(BLOCK_N, BLOCK_M);
    const int64_t blocks_m = ceil_div<int64_t>(M, BLOCK_M);
    const dim3 grid(unsigned(ceil_div<int64_t>(N, BLOCK_N)), unsigned(std::min(blocks_m, MAX_GRID_Y)));
    record->set(grid, block);
    auto launch = [&](auto kernel, auto zero) {
        using T = decltype(zero);
        kernel<<<grid, block, 0, stream>>>(static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(out), M,
                                           N, K, stride_am, stride_ak, stride_bk, stride_bn);
    };
    if (tf32 && dtype == FLOAT32) {
        launch(matmul_naive<float, true>, float());
        return cudaGetLastError();
    }
    return by_dtype(dtype, [&](auto zero) { launch(matmul_naive<decltype(zero), false>, zero); });
}
