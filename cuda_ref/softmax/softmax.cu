// softmax.cu as a first rung: a warp reads its row three times, element by element
//
// The three passes are for the maximum, the sum and the result. A row of a few KB comes from the L1 or L2 cache the
// second time, but each lane has only one load of 2 or 4 bytes under way.
#include "common/rows.cuh"

template <typename T>
__global__ void __launch_bounds__(WARP* WARP_ROWS)
    softmax_passes(const T* __restrict__ x, T* __restrict__ out, int64_t m, int64_t n, int64_t stride_m,
                   int64_t stride_n) {
    const int64_t row = int64_t(blockIdx.x) * WARP_ROWS + threadIdx.y;
    if (row >= m) return;  // all lanes of the warp
    x += row * stride_m;
    out += row * n;

    float largest = -INFINITY;
    for (int64_t j = threadIdx.x; j < n; j += WARP) largest = fmaxf(largest, to_float(x[j * stride_n]));
    largest = over_warp(largest, Maximum());

    float sum = 0.0f;
    for (int64_t j = threadIdx.x; j < n; j += WARP) sum += expf(to_float(x[j * stride_n]) - largest);
    sum = over_warp(sum, Addition());

    for (int64_t j = threadIdx.x; j < n; j += WARP) {
        out[j] = from_float<T>(expf(to_float(x[j * stride_n]) - largest) / sum);
    }
}

extern "C" int softmax_passes(const void* x, void* out, int64_t m, int64_t n, int64_t stride_m, int64_t stride_n,
                              int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(m, WARP_ROWS)));
    const dim3 block(WARP, WARP_ROWS);
    record->set(grid, block);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const auto kernel = softmax_passes<T>;
        kernel<<<grid, block, 0, stream>>>(static_cast<const T*>(x), static_cast<T*>(out), m, n, stride_m, stride_n);
    });
}
