// y = silu(a) b; scale = max |y| / 448 (int8: 127) over a group, at least 2^-126; code = y / scale, rounded to nearest
//
// Adds the product to quantize.cu: one warp computes one group, and each product twice, so y is not stored.
#include "common/codes.cuh"

constexpr int GROUPS = 4;  // per block, one per warp

template <typename T>
__global__ void __launch_bounds__(WARP* GROUPS)
    silu_mul_quantize_naive(const T* a, const T* b, uint8_t* codes, float* scales, Codes kind, int64_t m, int64_t n,
                            int64_t a_m, int64_t a_n, int64_t b_m, int64_t b_n, int64_t rows, int64_t columns) {
    const int64_t group = int64_t(blockIdx.x) * GROUPS + threadIdx.y;
    if (group >= ceil_div(m, rows) * ceil_div(n, columns)) return;  // true for all lanes of the warp
    code_group(kind, group, m, n, rows, columns, codes, scales, [&](int64_t i, int64_t j) {
        const float x = to_float(a[i * a_m + j * a_n]);
        return x / (1.0f + expf(-x)) * to_float(b[i * b_m + j * b_n]);
    });
}

// rows, columns: of a group.
extern "C" int silu_mul_quantize(const void* a, const void* b, void* codes, void* scales, int64_t m, int64_t n,
                                 int64_t a_m, int64_t a_n, int64_t b_m, int64_t b_n, int64_t rows, int64_t columns,
                                 int64_t int8, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const int64_t groups = ceil_div(m, rows) * ceil_div(n, columns);
    const dim3 grid(unsigned(ceil_div<int64_t>(groups, GROUPS))), block(WARP, GROUPS);
    record->set(grid, block);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        silu_mul_quantize_naive<T><<<grid, block, 0, stream>>>(
            static_cast<const T*>(a), static_cast<const T*>(b), static_cast<uint8_t*>(codes), static_cast<float*>(scales),
            Codes{int8 != 0}, m, n, a_m, a_n, b_m, b_n, rows, columns);
    });
}
