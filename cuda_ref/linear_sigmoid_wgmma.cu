// out[m, n] = sigma(sum over k of x[m, k] * weight[n, k] + bias[n]), on Hopper's tensor cores, in one pass
//
// requires: sm_90a
//
// matmul_wgmma.cu with another end of a tile (linear_sigmoid.cuh), so that M N elements are neither written to device
// memory nor read in between. A multiprocessor computes 16 exponentials or reciprocals a clock: the sigmoids of a tile
// take over 2 us, while the tensor cores wait. So in 16 bits, with large tiles and long sums, three other warps compute
// them, in shared memory, during the products of the next tile; the product is rounded on the way there. Elsewhere the
// threads that hold the sums do, in float32. If k is divided into parts, the kernel that adds them does.
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
        const bool is_large = plan.tile == 1 || plan.tile == 3;
        if (is_large && plan.parts == 1 && K >= ASIDE_K && N % 8 == 0 && is_aligned(bias, 16)) {
            const auto run = [&](auto config) {
                return launch<T, false, false, false, false, decltype(config)>(
                    left, right, out, K, Scales{}, plan, Aside<T, SigmoidAside<T>>{{of_columns}}, stream, record);
            };
            return plan.tile == 1 ? run(Tiles<true>::Large()) : run(Tiles<true>::Narrow());
        }
    }
    return launch<T, false, false>(left, right, out, K, Scales{}, plan, BiasSigmoid<T>{of_columns}, stream, record);
}

// x[m, k] is at x + m * x_stride + k, weight[n, k] at weight + n * weight_stride + k. `tile` and `parts` are those of
// _matmul_plan.py. float32 is multiplied in tf32. Sums of several parts go to `sums`, as Parts says.
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
