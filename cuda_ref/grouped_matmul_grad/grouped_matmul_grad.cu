// dw[e, k, n] = sum over the sizes[e] rows t of expert e of x[t, k] * dy[t, n]; zeros for an expert without rows
//
// One block computes 16 x 64 elements of one expert, one thread each. A thread counts the rows of the experts before its
// own, and adds the products of the rows of its expert. Each element is written, also where there is nothing to add.
//
// Precision. Products of 16-bit inputs are exact in float32. Sums are float32, in order of t, rounded once at the end.
//
// wgmma.cu adds tensor cores and persistent blocks.
#include <algorithm>

#include "common/common.cuh"

constexpr int BLOCK_K = 16;
constexpr int BLOCK_N = 64;
constexpr int64_t MAX_GRID = 65535;

template <typename T>
__global__ void __launch_bounds__(BLOCK_K* BLOCK_N)
    grouped_matmul_grad_naive(const T* __restrict__ x, const T* __restrict__ dy, const int* __restrict__ sizes,
                              T* __restrict__ dw, int64_t E, int64_t K, int64_t N, int64_t stride_xt,
                              int64_t stride_xk, int64_t stride_dt, int64_t stride_dn, int64_t stride_sizes) {
    const int64_t n = int64_t(blockIdx.x) * BLOCK_N + threadIdx.x;
    if (n >= N) return;
    int64_t start = 0, counted = 0;  // rows of the experts that have been counted
    // The y and z dimensions of a grid are limited to 65535: more experts and more K take several steps.
    for (int64_t e = blockIdx.z; e < E; e += gridDim.z) {
        for (; counted < e; ++counted) start += sizes[counted * stride_sizes];
        const int64_t end = start + sizes[e * stride_sizes];
        for (int64_t k = int64_t(blockIdx.y) * BLOCK_K + threadIdx.y; k < K; k += int64_t(gridDim.y) * BLOCK_K) {
            float acc = 0.0f;
            for (int64_t t = start; t < end; ++t) {
                acc = fmaf(to_float(x[t * stride_xt + k * stride_xk]), to_float(dy[t * stride_dt + n * stride_dn]), acc);
            }
            dw[(e * K + k) * N + n] = from_float<T>(acc);
        }
    }
}

extern "C" int grouped_matmul_grad(const void* x, const void* dy, const void* sizes, void* dw, int64_t E, int64_t K,
                                   int64_t N, int64_t stride_xt, int64_t stride_xk, int64_t stride_dt,
                                   int64_t stride_dn, int64_t stride_sizes, int64_t dtype, cudaStream_t stream,
                                   LaunchRecord* record) {
    const dim3 block(BLOCK_N, BLOCK_K);
    const dim3 grid(unsigned(ceil_div<int64_t>(N, BLOCK_N)),
                    unsigned(std::min(ceil_div<int64_t>(K, BLOCK_K), MAX_GRID)), unsigned(std::min(E, MAX_GRID)));
    record->set(grid, block);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        grouped_matmul_grad_naive<T><<<grid, block, 0, stream>>>(
            static_cast<const T*>(x), static_cast<const T*>(dy), static_cast<const int*>(sizes), static_cast<T*>(dw), E,
            K, N, stride_xt, stride_xk, stride_dt, stride_dn, stride_sizes);
    });
}
