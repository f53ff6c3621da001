// out[m, n] = sum over groups g of scale_a[m, g] * scale_b[n / 128, g] * (sum over k in g of a[m, k] * b[n, k])
//
// One thread computes one element of out, one group of 128 k after the other: the products of a group, then the sum
// times its two scales.
//
// Each group has scales of its own, so its sum is scaled before it joins the others. wgmma.cu computes the sums of
// groups by tensor cores.
//
// Precision: products of two codes are exact; additions and the products with scales round, in float32.
#include <algorithm>

#include "block_scaled_matmul/codes.cuh"

constexpr int BLOCK_M = 16, BLOCK_N = 32;
constexpr int64_t MAX_GRID_Y = 65535;

__global__ void __launch_bounds__(BLOCK_M* BLOCK_N)
    block_scaled_matmul_naive(const uint8_t* __restrict__ a, const float* __restrict__ scale_a,
                              const uint8_t* __restrict__ b, const float* __restrict__ scale_b,
                              __nv_bfloat16* __restrict__ out, int64_t M, int64_t N, int64_t K, int64_t stride_am,
                              int64_t stride_ak, int64_t stride_sam, int64_t stride_sak, int64_t stride_bn,
                              int64_t stride_bk, int64_t stride_sbn, int64_t stride_sbk) {
    const int64_t n = int64_t(blockIdx.x) * BLOCK_N + threadIdx.x;
    if (n >= N) return;
    // The y dimension of a grid is limited to 65535: taller outputs take several steps.
    for (int64_t m = int64_t(blockIdx.y) * BLOCK_M + threadIdx.y; m < M; m += int64_t(gridDim.y) * BLOCK_M) {
        float acc = 0.0f;
        for (int64_t first = 0; first < K; first += GROUP) {
            float sum = 0.0f;
            for (int64_t k = first; k < min(first + GROUP, K); ++k) {
                sum = fma(float8_to_float(a[m * stride_am + k * stride_ak]),
                          float8_to_float(b[n * stride_bn + k * stride_bk]), sum);
            }
            const int64_t group = first / GROUP;
            acc += sum * (scale_a[m * stride_sam + group * stride_sak] *
                          scale_b[n / GROUP * stride_sbn + group * stride_sbk]);
        }
        out[m * N + n] = from_float<__nv_bfloat16>(acc);
    }
}

extern "C" int block_scaled_matmul(const void* a, const float* scale_a, const void* b, const float* scale_b, void* out,
                                   int64_t M, int64_t N, int64_t K, int64_t stride_am, int64_t stride_ak,
                                   int64_t stride_sam, int64_t stride_sak, int64_t stride_bn, int64_t stride_bk,
                                   int64_t stride_sbn, int64_t stride_sbk, cudaStream_t stream, LaunchRecord* record) {
    const dim3 block(BLOCK_N, BLOCK_M);
    const int64_t blocks_m = ceil_div<int64_t>(M, BLOCK_M);
    const dim3 grid(unsigned(ceil_div<int64_t>(N, BLOCK_N)), unsigned(std::min(blocks_m, MAX_GRID_Y)));
    record->set(grid, block);
    block_scaled_matmul_naive<<<grid, block, 0, stream>>>(
        static_cast<const uint8_t*>(a), scale_a, static_cast<const uint8_t*>(b), scale_b,
        static_cast<__nv_bfloat16*>(out), M, N, K, stride_am, stride_ak, stride_sam, stride_sak, stride_bn, stride_bk,
        stride_sbn, stride_sbk);
    return cudaGetLastError();
}
