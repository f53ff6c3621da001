// dz[m, n] = dy[m, n] * s * (1 - s), s = sigma(sum over k of x[m, k] * weight[n, k] + bias[n]), on Hopper's tensor
// cores, and dbias[n] = sum over m of dz[m, n]
//
// requires: sm_90a
//
// The forward product ends with its derivative (linear_sigmoid.cuh): neither the product nor s is ever stored. A tile of
// dy waits in shared memory before the products end; dz leaves through the same memory. The sums over the columns of dz
// begin in registers: 16 rows each are added by shuffles, and stored for a second kernel, a sixteenth of the elements
// in float32 instead of all of dz in 16 bits. The gradients dx = dz W and dW = dz^T x are products of matmul_wgmma.cu.
#include "linear_sigmoid.cuh"

template <typename T>
cudaError_t launch_dz(const void* x, const void* weight, const void* bias, const void* dy, void* dz, float* sums,
                      int64_t M, int64_t N, int64_t K, int64_t x_stride, int64_t weight_stride, int64_t dy_stride,
                      int64_t tile, cudaStream_t stream, LaunchRecord* record) {
    const MatrixOperand left{x, false, M, x_stride}, right{weight, false, N, weight_stride};
    SigmoidGradient<T> finish = {};
    finish.bias = static_cast<const T*>(bias), finish.sums = sums;
    if (!encode_tensor_map(&finish.dy, TENSOR_MAP_TYPE<T>, sizeof(T), dy, N, M, dy_stride, 64)) {
        return cudaErrorInvalidValue;
    }
    return launch<T, false, false>(left, right, dz, K, Scales{}, {tile, 1, nullptr}, finish, stream, record);
}

// dy[m, n] is at dy + m * dy_stride + n; x and weight as in linear_sigmoid_wgmma.cu. N is a multiple of 8, dz
// contiguous. sums: float32 (ceil(M / 16), N).
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

// A block adds 32 columns: a warp every WARPS-th row, then one warp the sums of all.
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
