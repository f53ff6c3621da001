// m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2;
// param = param - lr m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps)
//
// One thread updates one parameter. Four arrays are read once and three written once: memory traffic limits the kernel,
// and separate kernels for m, v and param would read and write all of them again.
//
// Source: Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015; the decoupled decay is that of AdamW,
// Loshchilov and Hutter, 2019.
#include "adam_step/adam_step.cuh"

constexpr int THREADS = 256;

template <typename T>
__global__ void __launch_bounds__(THREADS)
    adam_step_naive(const T* param, const T* grad, const float* m, const float* v, T* new_param, float* new_m,
                    float* new_v, int64_t n, const AdamFactors by) {
    const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
    if (i >= n) return;
    float p = to_float(param[i]), first = m[i], second = v[i];
    adam_update(p, to_float(grad[i]), first, second, by);
    new_param[i] = from_float<T>(p);
    new_m[i] = first;
    new_v[i] = second;
}

extern "C" int adam_step(const void* param, const void* grad, const void* m, const void* v, void* new_param,
                         void* new_m, void* new_v, int64_t n, int64_t step, double lr, double beta1, double beta2,
                         double eps, double weight_decay, int64_t decoupled, int64_t dtype, cudaStream_t stream,
                         LaunchRecord* record) {
    const AdamFactors by(step, lr, beta1, beta2, eps, weight_decay, decoupled != 0);
    const dim3 grid(unsigned(ceil_div<int64_t>(n, THREADS))), block(THREADS);
    record->set(grid, block);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        adam_step_naive<T><<<grid, block, 0, stream>>>(
            static_cast<const T*>(param), static_cast<const T*>(grad), static_cast<const float*>(m),
            static_cast<const float*>(v), static_cast<T*>(new_param), static_cast<float*>(new_m),
            static_cast<float*>(new_v), n, by);
    });
}
