// y[i, j] = sum over k <= j of x[i, k], for any strides of x
//
// One warp computes one row, 32 elements at a time: the prefix sums of these in five shuffles, plus the sum of all
// before. registers.cu gives a long row to a block, and each thread 16 bytes at a time.
//
// Source: W. D. Hillis and G. L. Steele, "Data parallel algorithms", 1986 (the sum in log2 steps).
#include "cumsum/prefix.cuh"

constexpr int ROWS = 4;  // rows per block, one per warp

template <typename T>
__global__ void __launch_bounds__(WARP* ROWS)
    cumsum_naive(const T* x, T* y, int64_t m, int64_t n, int64_t stride_m, int64_t stride_n) {
    const int64_t row = int64_t(blockIdx.x) * ROWS + threadIdx.y;
    if (row >= m) return;  // true for all lanes of the warp
    float before = 0.0f;
    for (int64_t start = 0; start < n; start += WARP) {
        const int64_t j = start + threadIdx.x;
        const float sum = before + prefix_sum(j < n ? to_float(x[row * stride_m + j * stride_n]) : 0.0f);
        if (j < n) y[row * n + j] = from_float<T>(sum);
        before = __shfl_sync(0xffffffffu, sum, WARP - 1);
    }
}

extern "C" int cumsum(const void* x, void* y, int64_t m, int64_t n, int64_t stride_m, int64_t stride_n, int64_t dtype,
                      cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(m, ROWS))), block(WARP, ROWS);
    record->set(grid, block);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        cumsum_naive<T><<<grid, block, 0, stream>>>(static_cast<const T*>(x), static_cast<T*>(y), m, n, stride_m,
                                                    stride_n);
    });
}
