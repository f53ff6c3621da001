// loss[i] = (1 - s) nll(i, target_i) + s (mean over j of nll(i, j)), with the label smoothing s (0 without) and
// nll(i, j) = log(sum over k of exp(x[i, k] - max_i)) + max_i - x[i, j]
// out[i, j] = (softmax(x[i])[j] - (1 - s) [j = target_i] - s / n) / (number of rows with a target)
//
// A block counts the targets. Then one warp computes one row, in float32, and reads it three times: for the maximum, for
// the sum, and for the gradient. A lane takes every 32nd column, so that the lanes read neighbours. A row without a
// target gets zeros. A row whose target is outside [0, V) gets NaN.
//
// registers.cu reads 16 bytes per lane and keeps the row.
//
// Source: the definition. Loss and gradient in one kernel: Hsu et al., "Liger Kernel", 2024.
#include "cross_entropy/loss.cuh"

constexpr int ROWS = 4;  // rows per block, one per warp

template <typename T>
__global__ void __launch_bounds__(WARP* ROWS) cross_entropy_naive(Losses<T> losses) {
    const int64_t row = int64_t(blockIdx.x) * ROWS + threadIdx.y, n = losses.n;
    if (row >= losses.m) return;  // true for all lanes of the warp
    const T* x = losses.logits + row * losses.stride_m;
    T* out = losses.out + row * n;
    const int64_t at = losses.target[row * losses.stride_t];
    if (at == losses.ignored) {
        for (int64_t j = threadIdx.x; j < n; j += WARP) out[j] = from_float<T>(0.0f);
        if (threadIdx.x == 0) losses.loss[row] = 0.0f;
        return;
    }

    float largest = -INFINITY;
    for (int64_t j = threadIdx.x; j < n; j += WARP) largest = fmaxf(largest, to_float(x[j * losses.stride_n]));
    const float base = finite_maximum(over_warp(largest, Maximum()));

    float sum = 0.0f, below = 0.0f;
    for (int64_t j = threadIdx.x; j < n; j += WARP) {
        const float difference = to_float(x[j * losses.stride_n]) - base;
        sum += power(difference);
        below -= difference;
    }
    const RowResult result(losses, row, at, base, over_warp(sum, Addition()), over_warp(below, Addition()));

    if (threadIdx.x == 0) losses.loss[row] = result.loss;
    for (int64_t j = threadIdx.x; j < n; j += WARP) {
        out[j] = from_float<T>(j == at ? result.of_target() : result(to_float(x[j * losses.stride_n])));
    }
}

// share: memory for one float.
extern "C" int cross_entropy(const void* logits, const void* target, void* share, void* loss, void* out, int64_t m,
                             int64_t n, int64_t stride_m, int64_t stride_n, int64_t stride_t, int64_t ignored,
                             double smoothing, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const Losses<T> losses{static_cast<const T*>(logits), static_cast<const int64_t*>(target),
                               static_cast<const float*>(share), static_cast<float*>(loss), static_cast<T*>(out), m, n,
                               stride_m, stride_n, stride_t, ignored, float(smoothing)};
        launch_count(losses.target, static_cast<float*>(share), m, stride_t, ignored, stream, record);
        const dim3 grid(unsigned(ceil_div<int64_t>(m, ROWS))), block(WARP, ROWS);
        record->set(grid, block);
        cross_entropy_naive<T><<<grid, block, 0, stream>>>(losses);
    });
}
