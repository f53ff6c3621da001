// out[m, n] = sigma(sum over k of x[m, k] * weight[n, k] + bias[n]); any strides of x and weight; out is row-major
//
// A block of 32 x 8 threads computes a tile of 32 x 32 elements of out, a thread four of them, 8 rows apart. The
// product is that of matmul/tiled.cu (tiles.cuh). This adds the epilogue: the thread that holds a sum adds the bias,
// computes the sigmoid, and only then rounds and stores. A second kernel would read and write all M N elements once
// more, and would get sums rounded to 16 bits.
#include "linear_sigmoid/tiles.cuh"

extern "C" int linear_sigmoid(const void* x, const void* weight, const void* bias, void* out, int64_t M, int64_t N,
                              int64_t K, int64_t stride_xm, int64_t stride_xk, int64_t stride_wn, int64_t stride_wk,
                              int64_t stride_b, int64_t tf32, int64_t dtype, cudaStream_t stream,
                              LaunchRecord* record) {
    return by_precision(dtype, tf32, [&](auto zero, auto rounded) {
        using T = decltype(zero);
        const BiasSigmoid<T> finish{static_cast<const T*>(bias), stride_b};
        launch_product<T, decltype(rounded)::value>(strided_operand<T>(x, M, stride_xm, stride_xk),
                                                    strided_operand<T>(weight, N, stride_wn, stride_wk), out, K,
                                                    finish, stream, record);
    });
}
