// out[m, n] = sigma(sum over k of x[m, k] * weight[n, k] + bias[n]) for M <= 32, in one pass
//
// requires: sm_90a
//
// This is matmul/skinny.cu, where the threads that add up the sums of a cluster also add the bias and compute the
// sigmoid. The time is that of reading the weights; a second kernel would take a tenth of it, mostly to start and end.
#include "matmul/skinny.cuh"
#include "common/sigmoid.cuh"

template <typename T>
struct BiasSigmoid {
    const T* __restrict__ bias;

    __device__ __forceinline__ float operator()(float sum, int n) const {
        return sigmoid_for<T>(sum + to_float(bias[n]));
    }
};

// x[m, k] is at x + m * x_stride + k, weight[n, k] at weight + n * weight_stride + k. Tiles have 64 or 128 `columns`;
// `parts` divide k.
extern "C" int linear_sigmoid_skinny(const void* x, const void* weight, const void* bias, void* out, int64_t M,
                                     int64_t N, int64_t K, int64_t x_stride, int64_t weight_stride, int64_t columns,
                                     int64_t parts, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const MatrixOperand left{x, false, M, x_stride}, right{weight, false, N, weight_stride};
    const auto run = [&](auto zero) {
        using T = decltype(zero);
        const BiasSigmoid<T> finish{static_cast<const T*>(bias)};
        return launch_skinny<T, false>(left, right, out, K, columns, parts, finish, stream, record);
    };
    switch (dtype) {
        case FLOAT16: return run(__half());
        case BFLOAT16: return run(__nv_bfloat16());
        default: return cudaErrorInvalidValue;
    }
}
