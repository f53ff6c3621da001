// Parts of cross entropy: the share of a row in the mean, exponentials, and the results of a row from its sums.
#pragma once

#include "common/rows.cuh"

constexpr int COUNT_THREADS = 1024;
constexpr float LOG2_E = 1.44269504f;

// share: 1 / (number of rows that have a target). n: columns. smoothing: from 0 to 1.
template <typename T>
struct Losses {
    const T* logits;
    const int64_t* target;
    const float* share;
    float* loss;
    T* out;
    int64_t m, n, stride_m, stride_n, stride_t, ignored;
    float smoothing;
};

// *share = 1 / (number of targets that are not `ignored`), or 1 if there are none. One block. A float counts exactly up
// to 2^24; beyond, the error is one of rounding.
__global__ void __launch_bounds__(COUNT_THREADS)
    count_targets(const int64_t* __restrict__ target, float* __restrict__ share, int64_t m, int64_t stride,
                  int64_t ignored) {
    __shared__ float scratch[WARP];
    float count = 0.0f;
    for (int64_t row = threadIdx.x; row < m; row += COUNT_THREADS) count += target[row * stride] != ignored;
    count = over_block(count, Addition(), scratch);
    if (threadIdx.x == 0) *share = 1.0f / fmaxf(count, 1.0f);
}

inline void launch_count(const int64_t* target, float* share, int64_t m, int64_t stride, int64_t ignored,
                         cudaStream_t stream, LaunchRecord* record) {
    record->set(dim3(1), dim3(COUNT_THREADS));
    count_targets<<<1, COUNT_THREADS, 0, stream>>>(target, share, m, stride, ignored);
}

// e^x for x <= 0 by one instruction of the hardware; results below 2^-126 are 0.
__device__ __forceinline__ float power(float x) {
#ifdef __CUDA_ARCH__
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * LOG2_E));
    return result;
#else
    return exp2f(x * LOG2_E);
#endif
}

// Replaces a maximum of minus infinity by 0, so that exp gives 0 and not NaN.
__device__ __forceinline__ float finite_maximum(float largest) { return largest == -INFINITY ? 0.0f : largest; }

// The results of a row. base: its largest logit. sum: of exp(logit - base). below: the sum of base - logit, read only
// with smoothing. wanted: the target's logit; if the target is outside [0, V) it is NaN, and so are all results.
struct RowResult {
    float base, scale, offset, peak, wanted, loss;

    template <typename T>
    __device__ __forceinline__ RowResult(const Losses<T>& losses, int64_t row, int64_t at, float base_, float sum,
                                         float below)
        : base(base_) {
        const bool inside = at >= 0 && at < losses.n;
        wanted = inside ? to_float(losses.logits[row * losses.stride_m + at * losses.stride_n]) : NAN;
        const float share = inside ? *losses.share : NAN, smoothing = losses.smoothing, log_sum = logf(sum);
        scale = share / sum;
        offset = smoothing / float(losses.n) * share;
        peak = (1.0f - smoothing) * share;
        loss = (1.0f - smoothing) * (log_sum + (base - wanted));
        if (smoothing > 0.0f) loss += smoothing * (log_sum + below / float(losses.n));
    }

    // The gradient of a logit that is not the target's.
    __device__ __forceinline__ float operator()(float logit) const {
        return power(logit - base) * scale - offset;
    }
    __device__ __forceinline__ float of_target() const { return (*this)(wanted) - peak; }
};
