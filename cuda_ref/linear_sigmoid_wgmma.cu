// out[m, n] = sigma(sum over k of x[m, k] * weight[n, k] + bias[n]), on Hopper's tensor cores, in one pass
//
// requires: sm_90a
//
// matmul_wgmma.cu with another end of a tile (linear_sigmoid.cuh): the sums are still in registers when the bias is
// added and the sigmoid computed, so that M N elements are neither written nor read in between. While one of the two
// consumers computes sigmoids, the tensor cores multiply for the other one.
//
// If k is divided into parts, the kernel that adds them does the same.
#include "linear_sigmoid.cuh"

constexpr int64_t ASIDE_K = 1024;

template <typename T>
cudaError_t launch_wgmma(const void* x, const void* weight, const void* bias, void* out, int64_t M, int64_t N,
                         int64_t K, int64_t x_stride, int64_t weight_stride, Plan plan, cudaStream_t stream,
                         LaunchRecord* record) {
    const MatrixOperand left{x, false, M, x_stride}, right{weight, false, N, weight_stride};
    const T* const of_columns = static_cast<const T*>(bias);
    if constexpr (sizeof(T) == 2) {
        // Large tiles with long sums, during which the other warps have time.
        if (plan.tile % 2 == 1 && plan.parts == 1 && K >= ASIDE_K && N % 8 == 0 && is_aligned(bias, 16)) {
            const auto run = [&](auto config) {
                return launch<T, false, false, false, false, decltype(config)>(
                    left, right, out, K, Scales{}, plan, Aside<T, SigmoidAside<T>>{{of_columns}}, stream,
                    record);
            };
            return plan.tile == 1 ? run(Tiles<true>::Large()) : run(Tiles<true>::Narrow());
        }
    }
    return launch<T, false, false>(left, right, out, K, Scales{}, plan, BiasSigmoid<T>{of_columns}, stream, record);
}

// x[m, k] is at x + m * x_stride + k, weight[n, k] at weight + n * weight_stride + k. `tile` and `parts` are those of
// _matmul_plan.py. float32 is multiplied in tf32. Sums of several parts go to `sums`, float32 (parts, M, N), and
// finish_parts makes out of them.
extern "C" int linear_sigmoid_wgmma(const void* x, const void* weight, const void* bias, void* out, int64_t M,
                                    int64_t N, int64_t K, int64_t x_stride, int64_t weight_stride, int64_t tile,
                                    int64_t parts, float* sums, int64_t dtype, cudaStream_t stream,
                                    LaunchRecord* record) {
    cudaError_t error = cudaSuccess;
    const cudaError_t known = by_dtype(dtype, [&](auto zero) {
        error = launch_wgmma<decltype(zero)>(x, weight, bias, out, M, N, K, x_stride, weight_stride,
                                             {tile, parts, sums}, stream, record);
    });
    return known != cudaSuccess ? known : error;
}

constexpr int PARTS_BLOCK = 256;

template <typename T>
__global__ void __launch_bounds__(PARTS_BLOCK)
    finish_parts_kernel(const float* __restrict__ sums, const T* __restrict__ bias, T* __restrict__ out, int64_t count,
                        int N, int parts) {
    const int64_t i = int64_t(blockIdx.x) * PARTS_BLOCK + threadIdx.x;
    if (i >= count) return;
    float total = sums[i];
#pragma unroll 4
    for (int part = 1; part < parts; ++part) total += sums[part * count + i];
    out[i] = from_float<T>(sigmoid_for<T>(total + to_float(bias[i % N])));
}

// out = sigma(sum over p of sums[p] + bias); sums: (parts, M, N)
extern "C" int finish_parts(const float* sums, const void* bias, void* out, int64_t M, int64_t N, int64_t parts,
                            int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(M * N, PARTS_BLOCK)));
    record->set(grid, PARTS_BLOCK);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        finish_parts_kernel<T><<<grid, PARTS_BLOCK, 0, stream>>>(sums, static_cast<const T*>(bias),
                                                                 static_cast<T*>(out), M * N, int(N), int(parts));
    });
}
