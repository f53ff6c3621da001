// Steps of linear_cross_entropy on a block of logits (T, n), n columns from `first` on, contiguous: sums of exponentials
// over the columns of each row, and gradients. One warp computes one row.
#pragma once

#include "cross_entropy/loss.cuh"

constexpr int ROWS = 4;  // rows per block, one per warp

// State that the blocks of a row share. sums: three vectors (T,): the largest logit, the sum of exp(logit - largest), and the
// target's logit, which is NaN until its block is seen. share: of a row in the mean.
struct RowSums {
    const int64_t* target;
    float* sums;
    const float* share;
    float* loss;
    int64_t rows, stride, ignored;

    __device__ __forceinline__ float& largest(int64_t row) const { return sums[row]; }
    __device__ __forceinline__ float& sum(int64_t row) const { return sums[rows + row]; }
    __device__ __forceinline__ float& wanted(int64_t row) const { return sums[2 * rows + row]; }
};

template <typename T>
__global__ void __launch_bounds__(WARP* ROWS) add_logits(const T* __restrict__ logits, RowSums of, int64_t first, int64_t n) {
    const int64_t row = int64_t(blockIdx.x) * ROWS + threadIdx.y;
    if (row >= of.rows) return;  // true for all lanes of the warp
    logits += row * n;
    const float before = first == 0 ? -INFINITY : of.largest(row);
    float largest = before;
    for (int64_t j = threadIdx.x; j < n; j += WARP) largest = fmaxf(largest, to_float(logits[j]));
    largest = over_warp(largest, Maximum());
    const float base = finite_maximum(largest);
    float sum = 0.0f;
    for (int64_t j = threadIdx.x; j < n; j += WARP) sum += power(to_float(logits[j]) - base);
    sum = over_warp(sum, Addition());
    if (threadIdx.x != 0) return;
    const int64_t column = of.target[row * of.stride] - first;
    const bool found = column >= 0 && column < n;
    of.largest(row) = largest;
    of.sum(row) = sum + (first == 0 ? 0.0f : of.sum(row) * power(before - base));
    if (found || first == 0) of.wanted(row) = found ? to_float(logits[column]) : NAN;
}

// Replaces the logits by their gradients, and stores the losses.
template <typename T>
__global__ void __launch_bounds__(WARP* ROWS) to_gradients(T* __restrict__ logits, RowSums of, int64_t first, int64_t n) {
    const int64_t row = int64_t(blockIdx.x) * ROWS + threadIdx.y;
    if (row >= of.rows) return;
    logits += row * n;
    const int64_t target = of.target[row * of.stride];
    const bool counted = target != of.ignored;
    const float base = finite_maximum(of.largest(row)), sum = of.sum(row), wanted = of.wanted(row);
    const float share = wanted == wanted ? *of.share : NAN, scale = 1.0f / sum;
    if (threadIdx.x == 0) of.loss[row] = counted ? logf(sum) + (base - wanted) : 0.0f;
    for (int64_t j = threadIdx.x; j < n; j += WARP) {
        const float p = power(to_float(logits[j]) - base) * scale;
        logits[j] = from_float<T>(counted ? (p - (first + j == target ? 1.0f : 0.0f)) * share : 0.0f);
    }
}

template <typename T>
void launch_rows(void (*kernel)(T, RowSums, int64_t, int64_t), T logits, const RowSums& of, int64_t first, int64_t n,
                 cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(of.rows, ROWS))), block(WARP, ROWS);
    record->set(grid, block);
    kernel<<<grid, block, 0, stream>>>(logits, of, first, n);
}
