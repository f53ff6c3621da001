// dz = dy s (1 - s), s = sigma(x weight^T + bias); dx = dz weight, dweight = dz^T x, dbias = sum over the rows of dz
//
// There are three products by tiles (linear_sigmoid/tiles.cuh) and a sum. The first product ends with the derivative of
// the sigmoid, so that neither the product nor s is stored. dx adds over n, and dweight over m, by the same kernel with
// exchanged strides for a transposed matrix. For dbias a thread adds up a column; the lanes of a warp read neighbours.
#include "linear_sigmoid/tiles.cuh"

constexpr int COLUMNS = 256;  // columns that a block of `column_sums` adds up

template <typename T>
struct SigmoidGradient {
    BiasSigmoid<T> sigmoid;
    const T* dy;
    int64_t stride_m, stride_n;

    __device__ __forceinline__ float operator()(float sum, int64_t m, int64_t n) const {
        const float s = sigmoid(sum, m, n);
        return to_float(dy[m * stride_m + n * stride_n]) * (s * (1.0f - s));
    }
};

struct TheSum {
    __device__ __forceinline__ float operator()(float sum, int64_t, int64_t) const { return sum; }
};

template <typename T>
__global__ void __launch_bounds__(COLUMNS) column_sums(const T* __restrict__ dz, T* __restrict__ out, int64_t M,
                                                       int64_t N) {
    const int64_t n = int64_t(blockIdx.x) * COLUMNS + threadIdx.x;
    if (n >= N) return;
    float total = 0.0f;
#pragma unroll 8
    for (int64_t m = 0; m < M; ++m) total += to_float(dz[m * N + n]);
    out[n] = from_float<T>(total);
}

// dz, dx, dweight and dbias are row-major; dz is memory for M N elements. dx may be null: then it is left out.
extern "C" int linear_sigmoid_grad(const void* x, const void* weight, const void* bias, const void* dy, void* dz,
                                   void* dx, void* dweight, void* dbias, int64_t M, int64_t N, int64_t K,
                                   int64_t stride_xm, int64_t stride_xk, int64_t stride_wn, int64_t stride_wk,
                                   int64_t stride_b, int64_t stride_ym, int64_t stride_yn, int64_t tf32, int64_t dtype,
                                   cudaStream_t stream, LaunchRecord* record) {
    return by_precision(dtype, tf32, [&](auto zero, auto rounded) {
        using T = decltype(zero);
        constexpr bool TF32 = decltype(rounded)::value;
        const SigmoidGradient<T> gradient{
            {static_cast<const T*>(bias), stride_b}, static_cast<const T*>(dy), stride_ym, stride_yn};
        const auto of_x = strided_operand<T>(x, M, stride_xm, stride_xk);
        const auto of_weight = strided_operand<T>(weight, N, stride_wn, stride_wk);
        const int64_t one = 1;
        launch_product<T, TF32>(of_x, of_weight, dz, K, gradient, stream, record);
        if (dx != nullptr)
            launch_product<T, TF32>(strided_operand<T>(dz, M, N, one),
                                    strided_operand<T>(weight, K, stride_wk, stride_wn), dx, N, TheSum(), stream, record);
        launch_product<T, TF32>(strided_operand<T>(dz, N, one, N), strided_operand<T>(x, K, stride_xk, stride_xm),
                                dweight, M, TheSum(), stream, record);
        if (N == 0) return;
        const dim3 grid(unsigned(ceil_div<int64_t>(N, COLUMNS)));
        record->set(grid, COLUMNS);
        column_sums<T><<<grid, COLUMNS, 0, stream>>>(static_cast<const T*>(dz), static_cast<T*>(dbias), M, N);
    });
}
