// r[i, j] = x[i, j] + residual[i, j], y[i, j] = r[i, j] * weight[j] / sqrt(mean over k of r[i, k]^2 + eps)
//
// As in rms_norm/registers.cu, a row stays in registers: the sum of x and the residual, rounded as it is stored. Rows
// that are not aligned, or that a block cannot hold, are added first; r is then read again.
#include "common/rows.cuh"

// Loads a part of a row of x and of the residual, keeps their sum in `sum`, and stores it.
template <typename T, int PACKS, bool PACKED>
__device__ __forceinline__ void add(Registers<T, PACKS, PACKED>& sum, const Part<const T>& x,
                                    const Part<const T>& residual, const Part<T>& out) {
    const auto plus = [](T a, T b) { return from_float<T>(to_float(a) + to_float(b)); };
#pragma unroll
    for (int pack = 0; pack < PACKS; ++pack) {
        sum.v[pack] = elementwise<T>(plus, sum.load_pack(x, pack, 0.0f), sum.load_pack(residual, pack, 0.0f));
    }
    sum.store(out, [](float v) { return v; });
}

// Rows that begin and end at multiples of 16 bytes, and that a warp or a block holds.
template <typename T, int PACKS>
__global__ void __launch_bounds__(MAX_THREADS)
    add_rms_norm_rows(const T* __restrict__ x, const T* __restrict__ residual, const T* __restrict__ weight,
                      T* __restrict__ y, T* __restrict__ r, int64_t m, int64_t n, int64_t x_m, int64_t residual_m,
                      float eps) {
    __shared__ float scratch[WARP];
    const int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
    if (row >= m) return;  // true for all lanes of a warp
    Registers<T, PACKS, true> sum;
    add(sum, {x + row * x_m, int(n), 1}, {residual + row * residual_m, int(n), 1}, {r + row * n, int(n), 1});

    float squares = 0.0f;
    sum.each([&](float v) { squares += v * v; });
    const float scale = rsqrtf(over_block(squares, Addition(), scratch) / n + eps);
    sum.stay_packed();
    sum.store(Part<T>{y + row * n, int(n), 1}, [&](float v, float w) { return v * scale * w; },
              Part<const T>{weight, int(n), 1});
}

// Rows of any length, one block per row.
template <typename T, int PACKS, bool PACKED>
__global__ void __launch_bounds__(MAX_THREADS)
    add_rms_norm_long_rows(const T* __restrict__ x, const T* __restrict__ residual, const T* __restrict__ weight,
                           T* __restrict__ y, T* r, int64_t n, int64_t x_m, int64_t x_n, int64_t residual_m,
                           int64_t residual_n, float eps) {
    __shared__ float scratch[WARP];
    Registers<T, PACKS, PACKED> sum;
    const int64_t step = int64_t(PACKS) * blockDim.x * sum.LANES;
    x += blockIdx.x * x_m;
    residual += blockIdx.x * residual_m;
    y += blockIdx.x * n;
    r += blockIdx.x * n;

    float squares = 0.0f;
    for (int64_t start = 0; start < n; start += step) {
        const int rest = int(min(n - start, step));
        add(sum, {x + start * x_n, rest, x_n}, {residual + start * residual_n, rest, residual_n}, {r + start, rest, 1});
        sum.each([&](float v) { squares += v * v; });
    }
    const float scale = rsqrtf(over_block(squares, Addition(), scratch) / n + eps);
    for (int64_t start = 0; start < n; start += step) {
        const int rest = int(min(n - start, step));
        sum.load(Part<const T>{r + start, rest, 1}, 0.0f);  // this thread has stored these elements
        sum.store(Part<T>{y + start, rest, 1}, [&](float v, float w) { return v * scale * w; },
                  Part<const T>{weight + start, rest, 1});
    }
}

extern "C" int add_rms_norm_registers(const void* x, const void* residual, const void* weight, void* y, void* r,
                                      int64_t m, int64_t n, int64_t x_m, int64_t x_n, int64_t residual_m,
                                      int64_t residual_n, float eps, int64_t dtype, cudaStream_t stream,
                                      LaunchRecord* record) {
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const T *of_x = static_cast<const T*>(x), *of_residual = static_cast<const T*>(residual);
        const T* weights = static_cast<const T*>(weight);
        T *to_y = static_cast<T*>(y), *to_r = static_cast<T*>(r);
        Division division = divide_rows(of_x, m, n, x_m, x_n, weights, to_y, to_r);
        const Division other = divide_rows(of_residual, m, n, residual_m, residual_n);
        if (!division.packed || !other.packed) {  // a block per row, of any length
            const int64_t warps = min(ceil_div<int64_t>(n, WARP), int64_t(MAX_THREADS / WARP));
            division = {dim3(unsigned(warps * WARP)), 1, BLOCK_PACKS, false, false};
        }
        const dim3 grid = division.grid(m), block = division.block;
        record->set(grid, block);
        by_division(division, [&](auto packs, auto packed) {
            if constexpr (packed()) {
                if (division.held) {
                    const auto kernel = add_rms_norm_rows<T, packs()>;
                    kernel<<<grid, block, 0, stream>>>(of_x, of_residual, weights, to_y, to_r, m, n, x_m, residual_m,
                                                       eps);
                    return;
                }
            }
            const auto kernel = add_rms_norm_long_rows<T, BLOCK_PACKS, packed()>;
            kernel<<<grid, block, 0, stream>>>(of_x, of_residual, weights, to_y, to_r, n, x_m, x_n, residual_m,
                                               residual_n, eps);
        });
    });
}
