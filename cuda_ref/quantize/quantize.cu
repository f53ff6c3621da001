// scale = max |x| / 448 (int8: 127) over a group, at least 2^-126; code = x / scale, rounded to nearest
//
// One warp computes one group, of any rows and columns. It reads the group twice, one element a lane: for the largest
// number and for the codes. registers.cu reads 16 bytes per lane and reads once.
#include "common/codes.cuh"

constexpr int GROUPS = 4;  // per block, one per warp

template <typename T>
__global__ void __launch_bounds__(WARP* GROUPS)
    quantize_naive(const T* x, uint8_t* codes, float* scales, Codes kind, int64_t m, int64_t n, int64_t stride_m, int64_t stride_n,
                   int64_t rows, int64_t columns) {
    const int64_t group = int64_t(blockIdx.x) * GROUPS + threadIdx.y, across = ceil_div(n, columns);
    if (group >= ceil_div(m, rows) * across) return;  // true for all lanes of the warp
    const int64_t top = group / across * rows, left = group % across * columns;
    const int64_t width = min(columns, n - left), count = width * min(rows, m - top);

    unsigned size = 0;
    for (int64_t i = threadIdx.x; i < count; i += WARP) {
        const T value = x[(top + i / width) * stride_m + (left + i % width) * stride_n];
        size = max(size, magnitude_of(to_float(value)));
    }
    const float scale = kind.scale(over_warp(__uint_as_float(size), Largest()));
    if (threadIdx.x == 0) scales[group] = scale;
    for (int64_t i = threadIdx.x; i < count; i += WARP) {
        const int64_t row = top + i / width, column = left + i % width;
        codes[row * n + column] = kind.code(to_float(x[row * stride_m + column * stride_n]) / scale);
    }
}

// rows, columns: of a group.
extern "C" int quantize(const void* x, void* codes, void* scales, int64_t m, int64_t n, int64_t stride_m,
                        int64_t stride_n, int64_t rows, int64_t columns, int64_t int8, int64_t dtype,
                        cudaStream_t stream, LaunchRecord* record) {
    const int64_t groups = ceil_div(m, rows) * ceil_div(n, columns);
    const dim3 grid(unsigned(ceil_div<int64_t>(groups, GROUPS))), block(WARP, GROUPS);
    record->set(grid, block);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        quantize_naive<T><<<grid, block, 0, stream>>>(static_cast<const T*>(x), static_cast<uint8_t*>(codes),
                                                      static_cast<float*>(scales), Codes{int8 != 0}, m, n, stride_m,
                                                      stride_n, rows, columns);
    });
}
