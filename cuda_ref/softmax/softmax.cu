// out[i, j] = exp(x[i, j] - max_i) / sum over k of exp(x[i, k] - max_i), where max_i is the largest of row i
//
// One warp computes one row, in float32, and reads it three times: for the maximum, for the sum and for the result. A
// lane takes every 32nd column, so that the lanes read neighbours. Subtracting the maximum keeps exponentials from
// overflowing.
//
// A row of a few KB comes from the L1 or L2 cache the second time, but each lane has only one load of 2 or 4 bytes in
// flight. registers.cu reads 16 bytes per lane and keeps the row.
//
// Source: the definition. Lanes that combine their results by shuffles: J. Luitjens, "Faster Parallel Reductions on
// Kepler", NVIDIA developer blog, 2014.
#include "common/warp.cuh"

constexpr int ROWS = 4;  // rows per block, one per warp

template <typename T>
__global__ void __launch_bounds__(WARP* ROWS)
    softmax_naive(const T* __restrict__ x, T* __restrict__ out, int64_t m, int64_t n, int64_t stride_m,
                  int64_t stride_n) {
    const int64_t row = int64_t(blockIdx.x) * ROWS + threadIdx.y;
    if (row >= m) return;  // true for all lanes of the warp
    x += row * stride_m;
    out += row * n;

    using W = Working<T>;
    W largest = -INFINITY;
    for (int64_t j = threadIdx.x; j < n; j += WARP) largest = Maximum()(largest, to_working(x[j * stride_n]));
    largest = over_warp(largest, Maximum());

    W sum = 0;
    for (int64_t j = threadIdx.x; j < n; j += WARP) sum += exp(to_working(x[j * stride_n]) - largest);
    sum = over_warp(sum, Addition());

    for (int64_t j = threadIdx.x; j < n; j += WARP) {
        out[j] = from_working<T>(exp(to_working(x[j * stride_n]) - largest) / sum);
    }
}

extern "C" int softmax(const void* x, void* out, int64_t m, int64_t n, int64_t stride_m, int64_t stride_n,
                       int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(m, ROWS)));
    const dim3 block(WARP, ROWS);
    record->set(grid, block);
    return by_dtype_or_double(dtype, [&](auto zero) {
        using T = decltype(zero);
        softmax_naive<T><<<grid, block, 0, stream>>>(static_cast<const T*>(x), static_cast<T*>(out), m, n, stride_m,
                                                     stride_n);
    });
}
