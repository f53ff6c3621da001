// out[i, j] = x[i, j] * weight[j] / sqrt(mean over k of x[i, k]^2 + eps)
//
// A row is read once and stays in registers, in its own type: a warp holds up to 128 packs of 16 bytes, a block up to
// 8192. Longer rows are read twice. A row that is not aligned, or has gaps, is read element by element.
#include "common/rows.cuh"

template <typename T, int PACKS, bool PACKED>
__global__ void __launch_bounds__(MAX_THREADS)
    rms_norm_rows(const T* __restrict__ x, const T* __restrict__ weight, T* __restrict__ out, int64_t m, int64_t n,
                  int64_t stride_m, int64_t stride_n, float eps) {
    __shared__ float scratch[WARP];
    const int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
    if (row >= m) return;  // true for all lanes of a warp
    Registers<T, PACKS, PACKED> r;
    r.load(Part<const T>{x + row * stride_m, int(n), stride_n}, 0.0f);

    float squares = 0.0f;
    r.each([&](float v) { squares += v * v; });
    const float scale = rsqrtf(over_block(squares, Addition(), scratch) / n + eps);
    r.stay_packed();
    r.store(Part<T>{out + row * n, int(n), 1}, [&](float v, float w) { return v * scale * w; },
            Part<const T>{weight, int(n), 1});
}

// Rows of any length, one block per row.
template <typename T, int PACKS, bool PACKED>
__global__ void __launch_bounds__(MAX_THREADS)
    rms_norm_long_rows(const T* __restrict__ x, const T* __restrict__ weight, T* __restrict__ out, int64_t n,
                       int64_t stride_m, int64_t stride_n, float eps) {
    __shared__ float scratch[WARP];
    Registers<T, PACKS, PACKED> r;
    const int64_t step = int64_t(PACKS) * blockDim.x * r.LANES;
    x += blockIdx.x * stride_m;
    out += blockIdx.x * n;

    float squares = 0.0f;
    for (int64_t start = 0; start < n; start += step) {
        r.load(Part<const T>{x + start * stride_n, int(min(n - start, step)), stride_n}, 0.0f);
        r.each([&](float v) { squares += v * v; });
    }
    const float scale = rsqrtf(over_block(squares, Addition(), scratch) / n + eps);
    for (int64_t start = 0; start < n; start += step) {
        const int rest = int(min(n - start, step));
        r.load(Part<const T>{x + start * stride_n, rest, stride_n}, 0.0f);
        r.store(Part<T>{out + start, rest, 1}, [&](float v, float w) { return v * scale * w; },
                Part<const T>{weight + start, rest, 1});
    }
}

extern "C" int rms_norm_registers(const void* x, const void* weight, void* out, int64_t m, int64_t n, int64_t stride_m,
                                  int64_t stride_n, float eps, int64_t dtype, cudaStream_t stream,
                                  LaunchRecord* record) {
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const T* from = static_cast<const T*>(x);
        const T* weights = static_cast<const T*>(weight);
        T* to = static_cast<T*>(out);
        const Division division = divide_rows(from, m, n, stride_m, stride_n, weights);
        const dim3 grid = division.grid(m), block = division.block;
        record->set(grid, block);
        by_division(division, [&](auto packs, auto packed) {
            if (division.held) {
                const auto kernel = rms_norm_rows<T, packs(), packed()>;
                kernel<<<grid, block, 0, stream>>>(from, weights, to, m, n, stride_m, stride_n, eps);
            } else {
                const auto kernel = rms_norm_long_rows<T, BLOCK_PACKS, packed()>;
                kernel<<<grid, block, 0, stream>>>(from, weights, to, n, stride_m, stride_n, eps);
            }
        });
    });
}
