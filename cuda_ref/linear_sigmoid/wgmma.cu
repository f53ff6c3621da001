// out[m, n] = sigma(sum over k of x[m, k] * weight[n, k] + bias[n]), on Hopper's tensor cores, in one pass
//
// requires: sm_90a
//
// This is matmul/wgmma.cu with another epilogue (linear_sigmoid.cuh), so that the M N elements of the product are
// neither written to device memory nor read again. A multiprocessor computes 16 exponentials or reciprocals per clock:
// the sigmoids of a tile take over 2 us, while the tensor cores wait. So in 16 bits, for blocks of many large tiles,
// three other warps compute them in shared memory during the products of the next tile; the product is rounded on the
// way there. Otherwise the threads that hold the sums compute them in float32. If k is divided into parts, the kernel
// that adds the parts computes them.
#include "linear_sigmoid/linear_sigmoid.cuh"

// Fewest terms of a sum, and fewest tiles of a block, for which other warps finish a tile. They then have enough time,
// and save more than they add to the last tile of a block.
constexpr int64_t ASIDE_K = 1024, ASIDE_TILES = 4;

template <typename T>
cudaError_t launch_wgmma(const void* x, const void* weight, const void* bias, void* out, int64_t M, int64_t N,
                         int64_t K, int64_t x_stride, int64_t weight_stride, Plan plan, cudaStream_t stream,
                         LaunchRecord* record) {
    const MatrixOperand left{x, false, M, x_stride}, right{weight, false, N, weight_stride};
    const T* const of_columns = static_cast<const T*>(bias);
    if constexpr (sizeof(T) == 2) {
        using Large = Tiles<true>::Large;
        const bool is_long = K >= ASIDE_K && waves<Large>(M, N, multiprocessor_count()) >= ASIDE_TILES;
        if (plan.tile == 1 && plan.parts == 1 && is_long && N % 8 == 0 && is_aligned(bias, 16)) {
            const Aside<T, SigmoidAside<T>> finish{{of_columns}, cluster_tiles<Large>(M, N).count()};
            return launch<T, false, false, false, false, Large>(left, right, out, K, Scales{}, plan, finish, stream,
                                                                record);
        }
    }
    return launch<T, false, false>(left, right, out, K, Scales{}, plan, BiasSigmoid<T>{of_columns}, stream, record);
}

// x[m, k] is at x + m * x_stride + k, weight[n, k] at weight + n * weight_stride + k. `tile` and `parts` are those of
// matmul/_tiles.py. float32 is multiplied in tf32. With several parts the sums go to `sums`: see Parts.
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
