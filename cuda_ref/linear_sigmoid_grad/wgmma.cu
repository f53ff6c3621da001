// dz[m, n] = dy[m, n] * s * (1 - s), s = sigma(sum over k of x[m, k] * weight[n, k] + bias[n]), on Hopper's tensor
// cores, and dbias[n] = sum over m of dz[m, n]
//
// requires: sm_90a
//
// The forward product ends with its derivative (linear_sigmoid/linear_sigmoid.cuh): neither the product nor s goes to
// device memory. Three warps read dy, compute dz in shared memory, and store it, while the others multiply the next
// tile. They also begin the sums over the rows of dz: about 21 rows each are added in registers and by shuffles. The
// results, an eighth of the bytes of dz, are stored for a second kernel. The gradients dx = dz W and dW = dz^T x are
// products of matmul.
#include "linear_sigmoid/linear_sigmoid.cuh"

template <typename T>
cudaError_t launch_dz(const void* x, const void* weight, const void* bias, const void* dy, void* dz, float* sums,
                      int64_t M, int64_t N, int64_t K, int64_t x_stride, int64_t weight_stride, int64_t dy_stride,
                      int64_t tile, cudaStream_t stream, LaunchRecord* record) {
    const MatrixOperand left{x, false, M, x_stride}, right{weight, false, N, weight_stride};
    const auto run = [&](auto config) {
        using C = decltype(config);
        const Aside<T, SigmoidGradientAside<T>> finish{
            {static_cast<const T*>(bias), static_cast<const T*>(dy), dy_stride, sums}, cluster_tiles<C>(M, N).count()};
        const Plan plan = {tile, 1, nullptr};
        return launch<T, false, false, false, false, C>(left, right, dz, K, Scales{}, plan, finish, stream, record);
    };
    using Shapes = Tiles<true>;
    return tile == 1 ? run(Shapes::Large()) : tile == 2 ? run(Shapes::Square()) : run(Shapes::Narrow());
}

// dy[m, n] is at dy + m * dy_stride + n; x and weight as in linear_sigmoid/wgmma.cu. N is a multiple of 8, dz
// contiguous; bias and the rows of dy begin at multiples of 16 bytes. tile: 1, 2 or 3. sums: float32, 4 rows for each
// 64 of dz.
extern "C" int sigmoid_gradient(const void* x, const void* weight, const void* bias, const void* dy, void* dz,
                                float* sums, int64_t M, int64_t N, int64_t K, int64_t x_stride, int64_t weight_stride,
                                int64_t dy_stride, int64_t tile, int64_t dtype, cudaStream_t stream,
                                LaunchRecord* record) {
    switch (dtype) {
        case FLOAT16:
            return launch_dz<__half>(x, weight, bias, dy, dz, sums, M, N, K, x_stride, weight_stride, dy_stride, tile,
                                     stream, record);
        case BFLOAT16:
            return launch_dz<__nv_bfloat16>(x, weight, bias, dy, dz, sums, M, N, K, x_stride, weight_stride, dy_stride,
                                            tile, stream, record);
        default: return cudaErrorInvalidValue;
    }
}

// A block adds 32 columns: each warp adds every WARPS-th row, then one warp adds the sums of all warps.
constexpr int WARPS = 16;

template <typename T>
__global__ void __launch_bounds__(WARPS * 32)
    add_rows_kernel(const float* __restrict__ sums, T* __restrict__ out, int rows, int N) {
    __shared__ float of_warps[WARPS][32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n = blockIdx.x * 32 + lane;
    float total = 0.0f;
    if (n < N) {
#pragma unroll 8
        for (int row = warp; row < rows; row += WARPS) total += sums[int64_t(row) * N + n];
    }
    of_warps[warp][lane] = total;
    __syncthreads();
    if (warp > 0 || n >= N) return;
#pragma unroll
    for (int i = 1; i < WARPS; ++i) total += of_warps[i][lane];
    out[n] = from_float<T>(total);
}

// out[n] = sum over r of sums[r, n]; sums: (rows, N)
extern "C" int add_rows(const float* sums, void* out, int64_t rows, int64_t N, int64_t dtype, cudaStream_t stream,
                        LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(N, 32)));
    record->set(grid, WARPS * 32);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        add_rows_kernel<T><<<grid, WARPS * 32, 0, stream>>>(sums, static_cast<T*>(out), int(rows), int(N));
    });
}
