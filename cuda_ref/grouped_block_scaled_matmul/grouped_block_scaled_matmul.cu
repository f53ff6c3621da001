// out[t, n] = sum over groups g of scale_x[t, g] * scale_weight[e, n / 128, g] * (sum over k in g of
// x[t, k] * weight[e, n, k]), where row t is among the sizes[e] rows of expert e
//
// One thread computes one element of out, one group of 128 k after the other, as in
// block_scaled_matmul/block_scaled_matmul.cu. It finds the expert of its row by itself: it adds the sizes of one expert
// after the other until they exceed t. Every thread does so, hence tiles need not begin with an expert.
//
// Precision: products of two codes are exact; additions and the products with scales round, in float32.
//
// wgmma.cu adds tensor cores and persistent blocks.
#include <algorithm>

#include "block_scaled_matmul/codes.cuh"

constexpr int BLOCK_M = 16, BLOCK_N = 32;
constexpr int64_t MAX_GRID_Y = 65535;

__device__ int64_t find_expert(const int* sizes, int64_t stride, int64_t experts, int64_t t) {
    int64_t expert = 0;
    for (int64_t end = sizes[0]; t >= end && expert + 1 < experts; end += sizes[expert * stride]) ++expert;
    return expert;
}

__global__ void __launch_bounds__(BLOCK_M* BLOCK_N)
    grouped_block_scaled_naive(const uint8_t* __restrict__ x, const float* __restrict__ scale_x,
                               const uint8_t* __restrict__ weight, const float* __restrict__ scale_weight,
                               const int* __restrict__ sizes, __nv_bfloat16* __restrict__ out, int64_t T, int64_t E,
                               int64_t K, int64_t N, int64_t stride_xt, int64_t stride_xk, int64_t stride_sxt,
                               int64_t stride_sxk, int64_t stride_we, int64_t stride_wn, int64_t stride_wk,
                               int64_t stride_swe, int64_t stride_swn, int64_t stride_swk, int64_t stride_sizes) {
    const int64_t n = int64_t(blockIdx.x) * BLOCK_N + threadIdx.x;
    if (n >= N) return;
    // The y dimension of a grid is limited to 65535: taller outputs take several steps.
    for (int64_t t = int64_t(blockIdx.y) * BLOCK_M + threadIdx.y; t < T; t += int64_t(gridDim.y) * BLOCK_M) {
        const int64_t expert = find_expert(sizes, stride_sizes, E, t);
        const uint8_t* const weight_n = weight + expert * stride_we + n * stride_wn;
        const float* const scale_n = scale_weight + expert * stride_swe + n / GROUP * stride_swn;
        float acc = 0.0f;
        for (int64_t first = 0; first < K; first += GROUP) {
            float sum = 0.0f;
            for (int64_t k = first; k < min(first + GROUP, K); ++k) {
                sum = fma(float8_to_float(x[t * stride_xt + k * stride_xk]), float8_to_float(weight_n[k * stride_wk]),
                          sum);
            }
            const int64_t group = first / GROUP;
            acc += sum * (scale_x[t * stride_sxt + group * stride_sxk] * scale_n[group * stride_swk]);
        }
        out[t * N + n] = from_float<__nv_bfloat16>(acc);
    }
}

extern "C" int grouped_block_scaled_matmul(const void* x, const float* scale_x, const void* weight,
                                           const float* scale_weight, const void* sizes, void* out, int64_t T,
                                           int64_t E, int64_t K, int64_t N, int64_t stride_xt, int64_t stride_xk,
                                           int64_t stride_sxt, int64_t stride_sxk, int64_t stride_we, int64_t stride_wn,
                                           int64_t stride_wk, int64_t stride_swe, int64_t stride_swn,
                                           int64_t stride_swk, int64_t stride_sizes, cudaStream_t stream,
                                           LaunchRecord* record) {
    const dim3 block(BLOCK_N, BLOCK_M);
    const dim3 grid(unsigned(ceil_div<int64_t>(N, BLOCK_N)),
                    unsigned(std::min(ceil_div<int64_t>(T, BLOCK_M), MAX_GRID_Y)));
    record->set(grid, block);
    grouped_block_scaled_naive<<<grid, block, 0, stream>>>(
        static_cast<const uint8_t*>(x), scale_x, static_cast<const uint8_t*>(weight), scale_weight,
        static_cast<const int*>(sizes), static_cast<__nv_bfloat16*>(out), T, E, K, N, stride_xt, stride_xk, stride_sxt,
        stride_sxk, stride_we, stride_wn, stride_wk, stride_swe, stride_swn, stride_swk, stride_sizes);
    return cudaGetLastError();
}
