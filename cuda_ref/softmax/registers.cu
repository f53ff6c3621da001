// out[i, j] = exp(x[i, j] - max_i) / sum over k of exp(x[i, k] - max_i), where max_i is the largest of row i
//
// A row is read once and stays in registers, in its own type: a warp holds up to 128 packs of 16 bytes, a block up to
// 8192. Exponentials are computed twice, for the sum and for the result: keeping them in registers would leave room for
// fewer rows in flight, which costs more. Longer rows are read twice.
//
// A row that is not aligned, or has gaps, is read element by element.
#include "softmax/exponential.cuh"

template <typename T, int PACKS, bool PACKED>
__global__ void __launch_bounds__(MAX_THREADS)
    softmax_rows(const T* __restrict__ x, T* __restrict__ out, int64_t m, int64_t n, int64_t stride_m,
                 int64_t stride_n) {
    __shared__ float scratch[2][WARP];
    const int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
    if (row >= m) return;  // true for all lanes of a warp
    Registers<T, PACKS, PACKED> r;
    r.load(Part<const T>{x + row * stride_m, int(n), stride_n}, -INFINITY);

    float largest = -INFINITY;
    r.each([&](float v) { largest = fmaxf(largest, v); });
    largest = over_block(largest, Maximum(), scratch[0]);
    r.stay_packed();
    float sum = 0.0f;
    r.each([&](float v) { sum += exponential<T>(v - largest); });
    const float scale = 1.0f / over_block(sum, Addition(), scratch[1]);
    r.stay_packed();
    r.store(Part<T>{out + row * n, int(n), 1}, [&](float v) { return exponential<T>(v - largest) * scale; });
}

// Rows of any length, one block per row. A thread keeps its own maximum and the sum relative to it, and rescales the
// sum when the maximum grows. Source: M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018.
template <typename T, int PACKS, bool PACKED>
__global__ void __launch_bounds__(MAX_THREADS)
    softmax_long_rows(const T* __restrict__ x, T* __restrict__ out, int64_t n, int64_t stride_m, int64_t stride_n) {
    __shared__ float scratch[2][WARP];
    Registers<T, PACKS, PACKED> r;
    const int64_t step = int64_t(PACKS) * blockDim.x * r.LANES;
    const float one = exponential<T>(0.0f);
    x += blockIdx.x * stride_m;
    out += blockIdx.x * n;

    float largest = -INFINITY, base = 0.0f, sum = 0.0f;
    for (int64_t start = 0; start < n; start += step) {
        r.load(Part<const T>{x + start * stride_n, int(min(n - start, step)), stride_n}, -INFINITY);
        const float previous = largest;
        r.each([&](float v) { largest = fmaxf(largest, v); });
        base = finite_maximum(largest);
        r.stay_packed();
        sum *= exponential<T>(previous - base) / one;
        r.each([&](float v) { sum += exponential<T>(v - base); });
    }
    const float all = finite_maximum(over_block(largest, Maximum(), scratch[0]));
    const float scale = 1.0f / over_block(sum * (exponential<T>(base - all) / one), Addition(), scratch[1]);
    for (int64_t start = 0; start < n; start += step) {
        r.load(Part<const T>{x + start * stride_n, int(min(n - start, step)), stride_n}, -INFINITY);
        r.store(Part<T>{out + start, int(min(n - start, step)), 1},
                [&](float v) { return exponential<T>(v - all) * scale; });
    }
}

extern "C" int softmax_registers(const void* x, void* out, int64_t m, int64_t n, int64_t stride_m, int64_t stride_n,
                                 int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const T* from = static_cast<const T*>(x);
        T* to = static_cast<T*>(out);
        const Division division = divide_rows(from, m, n, stride_m, stride_n);
        const dim3 grid = division.grid(m), block = division.block;
        record->set(grid, block);
        by_division(division, [&](auto packs, auto packed) {
            if (division.held) {
                const auto kernel = softmax_rows<T, packs(), packed()>;
                kernel<<<grid, block, 0, stream>>>(from, to, m, n, stride_m, stride_n);
            } else {
                const auto kernel = softmax_long_rows<T, BLOCK_PACKS, packed()>;
                kernel<<<grid, block, 0, stream>>>(from, to, n, stride_m, stride_n);
            }
        });
    });
}
