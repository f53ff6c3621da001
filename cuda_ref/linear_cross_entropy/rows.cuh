// Steps of linear_cross_entropy on a block of logits (rows, n), n columns from `first` on, contiguous: sums of
// exponentials over the columns of each row, and gradients. A block of threads computes one row, LANES elements of a
// thread at a time.
#pragma once

#include "common/packs.cuh"
#include "cross_entropy/loss.cuh"

constexpr int ROW_THREADS = 128, AT_ONCE = 4;  // AT_ONCE: loads of a thread in flight

// State that the blocks of a row share. sums: three vectors (T,): the largest logit, the sum of exp(logit - largest), and the
// target's logit, which is NaN until its block is seen. share: of a row in the mean. rows: T.
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

// The rows from `row` on, and the columns from `first` on, of a block of logits.
struct LogitBlock {
    int64_t row, first, n;
};

template <typename T, int LANES>
__global__ void __launch_bounds__(ROW_THREADS) add_logits(const T* __restrict__ logits, RowSums of, LogitBlock block) {
    __shared__ float scratch[2][WARP];
    const int64_t row = block.row + blockIdx.x;
    logits += int64_t(blockIdx.x) * block.n;
    float largest = -INFINITY, sum = 0.0f;  // of this thread
#pragma unroll 4
    for (int64_t j = int64_t(threadIdx.x) * LANES; j < block.n; j += ROW_THREADS * LANES) {
        const Pack<T, LANES> pack = read_pack<T, LANES>(logits + j);
        float above = largest;
#pragma unroll
        for (int lane = 0; lane < LANES; ++lane) above = fmaxf(above, to_float(pack[lane]));
        const float base = finite_maximum(above);
        sum *= power(largest - base);
#pragma unroll
        for (int lane = 0; lane < LANES; ++lane) sum += power(to_float(pack[lane]) - base);
        largest = above;
    }
    const float before = block.first == 0 ? -INFINITY : of.largest(row);
    const float above = over_block(fmaxf(largest, before), Maximum(), scratch[0]), base = finite_maximum(above);
    sum = over_block(sum * power(largest - base), Addition(), scratch[1]);
    if (threadIdx.x != 0) return;
    const int64_t column = of.target[row * of.stride] - block.first;
    const bool found = column >= 0 && column < block.n;
    of.largest(row) = above;
    of.sum(row) = sum + (block.first == 0 ? 0.0f : of.sum(row) * power(before - base));
    if (found || block.first == 0) of.wanted(row) = found ? to_float(logits[column]) : NAN;
}

// Stores the gradients of the logits, which may replace them, and the losses.
template <typename T, int LANES>
__global__ void __launch_bounds__(ROW_THREADS) to_gradients(const T* logits, T* gradients, RowSums of, LogitBlock block) {
    const int64_t row = block.row + blockIdx.x, target = of.target[row * of.stride];
    logits += int64_t(blockIdx.x) * block.n;
    gradients += int64_t(blockIdx.x) * block.n;
    const bool counted = target != of.ignored;
    const float base = finite_maximum(of.largest(row)), sum = of.sum(row), wanted = of.wanted(row);
    const float share = wanted == wanted ? *of.share : NAN, scale = 1.0f / sum;
    if (threadIdx.x == 0) of.loss[row] = counted ? logf(sum) + (base - wanted) : 0.0f;
    constexpr int STEP = ROW_THREADS * LANES;
    for (int64_t start = int64_t(threadIdx.x) * LANES; start < block.n; start += AT_ONCE * STEP) {
        Pack<T, LANES> packs[AT_ONCE];  // all read before the first is written: the compiler must not reorder these
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            if (start + i * STEP < block.n) packs[i] = read_pack<T, LANES>(logits + start + i * STEP);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            const int64_t j = start + i * STEP, at = target - block.first - j;  // at: the target's lane, if it is here
            if (j >= block.n) break;
#pragma unroll
            for (int lane = 0; lane < LANES; ++lane) {
                const float p = power(to_float(packs[i][lane]) - base) * scale;
                packs[i][lane] = from_float<T>(counted ? (p - (lane == at ? 1.0f : 0.0f)) * share : 0.0f);
            }
            write_pack(gradients + j, packs[i]);
        }
    }
}

template <typename T, int LANES>
void launch_add(const T* logits, const RowSums& of, int64_t rows, LogitBlock block, cudaStream_t stream,
                LaunchRecord* record) {
    const dim3 grid{unsigned(rows)};
    record->set(grid, ROW_THREADS);
    add_logits<T, LANES><<<grid, ROW_THREADS, 0, stream>>>(logits, of, block);
}

template <typename T, int LANES>
void launch_gradients(const T* logits, T* gradients, const RowSums& of, int64_t rows, LogitBlock block,
                      cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid{unsigned(rows)};
    record->set(grid, ROW_THREADS);
    to_gradients<T, LANES><<<grid, ROW_THREADS, 0, stream>>>(logits, gradients, of, block);
}
