// out[m, n] = sum over groups g of scale[n, g] * (sum over k in g of x[m, k] * (code[n, k] - zero[n, g]))
//
// One thread computes one element of out, one group of 128 k after the other: the products of a group, then the sum
// times its scale.
//
// A weight of 4 bits is a code from 0 to 15. Two codes share a byte: that of an even k is in the lower half. The code
// less the zero point of its group, 8 if there is none, times the scale of the group is the weight.
//
// Precision: code less zero is an integer, and exact; products, additions and scaled sums are float32.
#include <algorithm>

#include "common/common.cuh"

constexpr int64_t GROUP = 128, MAX_GRID_Y = 65535;
constexpr int BLOCK_M = 16, BLOCK_N = 32, MIDDLE = 8;

template <typename T>
__global__ void __launch_bounds__(BLOCK_M* BLOCK_N)
    int4_matmul_naive(const T* __restrict__ x, const uint8_t* __restrict__ weight, const T* __restrict__ scale,
                      const uint8_t* __restrict__ zero, T* __restrict__ out, int64_t M, int64_t N, int64_t K,
                      int64_t stride_xm, int64_t stride_xk, int64_t stride_wn, int64_t stride_wk, int64_t stride_sn,
                      int64_t stride_sk, int64_t stride_zn, int64_t stride_zk) {
    const int64_t n = int64_t(blockIdx.x) * BLOCK_N + threadIdx.x;
    if (n >= N) return;
    // The y dimension of a grid is limited to 65535: taller outputs take several steps.
    for (int64_t m = int64_t(blockIdx.y) * BLOCK_M + threadIdx.y; m < M; m += int64_t(gridDim.y) * BLOCK_M) {
        float acc = 0.0f;
        for (int64_t first = 0; first < K; first += GROUP) {
            const int64_t group = first / GROUP;
            const int middle = zero == nullptr ? MIDDLE : zero[n * stride_zn + group * stride_zk];
            float sum = 0.0f;
            for (int64_t k = first; k < min(first + GROUP, K); ++k) {
                const int code = weight[n * stride_wn + k / 2 * stride_wk] >> k % 2 * 4 & 15;
                sum = fma(to_float(x[m * stride_xm + k * stride_xk]), float(code - middle), sum);
            }
            acc += sum * to_float(scale[n * stride_sn + group * stride_sk]);
        }
        out[m * N + n] = from_float<T>(acc);
    }
}

// Strides are in elements. zero: null if there are no zero points.
extern "C" int int4_matmul(const void* x, const uint8_t* weight, const void* scale, const uint8_t* zero, void* out,
                           int64_t M, int64_t N, int64_t K, int64_t stride_xm, int64_t stride_xk, int64_t stride_wn,
                           int64_t stride_wk, int64_t stride_sn, int64_t stride_sk, int64_t stride_zn,
                           int64_t stride_zk, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const dim3 block(BLOCK_N, BLOCK_M);
    const int64_t blocks_m = ceil_div<int64_t>(M, BLOCK_M);
    const dim3 grid(unsigned(ceil_div<int64_t>(N, BLOCK_N)), unsigned(std::min(blocks_m, MAX_GRID_Y)));
    record->set(grid, block);
    return by_dtype(dtype, [&](auto of_type) {
        using T = decltype(of_type);
        int4_matmul_naive<<<grid, block, 0, stream>>>(
            static_cast<const T*>(x), weight, static_cast<const T*>(scale), zero, static_cast<T*>(out), M, N, K,
            stride_xm, stride_xk, stride_wn, stride_wk, stride_sn, stride_sk, stride_zn, stride_zk);
    });
}
