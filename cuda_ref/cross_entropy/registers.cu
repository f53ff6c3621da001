// Adds rows in registers to cross_entropy.cu: a row is read once, by loads of 16 bytes, and its gradient is stored once.
//
// A warp holds up to 128 packs of 16 bytes, a block up to 8192. Exponentials are computed twice, for the sum and for the
// gradient, so that registers hold the row in its own type. Longer rows are read twice. With smoothing a row is read once
// more, from the cache. The gradients of a row are stored as if there were no target; one thread then overwrites the
// target's column, so that no other thread compares indices.
//
// A row that is not aligned, or has gaps, is read element by element.
#include "cross_entropy/registers.cuh"

template <typename T, int PACKS, bool PACKED>
__global__ void __launch_bounds__(MAX_THREADS) cross_entropy_rows(Losses<T> losses) {
    __shared__ float scratch[3][WARP];
    const int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
    if (row >= losses.m) return;  // true for all lanes of a warp
    const int n = int(losses.n);
    const Part<T> out{losses.out + row * losses.n, n, 1};
    const int64_t at = losses.target[row * losses.stride_t];
    Registers<T, PACKS, PACKED> r;
    if (at == losses.ignored) {
        store_zeros(r, out);
        if (threadIdx.x == 0) losses.loss[row] = 0.0f;
        return;
    }
    const Part<const T> x{losses.logits + row * losses.stride_m, n, losses.stride_n};
    r.load(x, -INFINITY);

    float largest = -INFINITY;
    r.each([&](float v) { largest = fmaxf(largest, v); });
    const float base = finite_maximum(over_block(largest, Maximum(), scratch[0]));
    r.stay_packed();
    float sum = 0.0f;
    r.each([&](float v) { sum += power(v - base); });
    sum = over_block(sum, Addition(), scratch[1]);
    const float below = sum_below<PACKED>(x, base, losses.smoothing, scratch[2]);
    const RowResult result(losses, row, at, base, sum, below);
    r.stay_packed();
    r.store(out, result);
    order_stores();
    if (threadIdx.x == 0) {
        losses.loss[row] = result.loss;
        if (at >= 0 && at < n) out.data[at] = from_float<T>(result.of_target());
    }
}

// Rows of any length, one block per row. A thread keeps its own maximum and the sum relative to it, and rescales the
// sum when the maximum grows. Source: M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018.
template <typename T, int PACKS, bool PACKED>
__global__ void __launch_bounds__(MAX_THREADS) cross_entropy_long_rows(Losses<T> losses) {
    __shared__ float scratch[3][WARP];
    Registers<T, PACKS, PACKED> r;
    const int64_t row = blockIdx.x, n = losses.n, step = int64_t(PACKS) * blockDim.x * r.LANES;
    const int64_t at = losses.target[row * losses.stride_t];
    const T* x = losses.logits + row * losses.stride_m;
    T* out = losses.out + row * n;
    if (at == losses.ignored) {
        for (int64_t start = 0; start < n; start += step) {
            store_zeros(r, Part<T>{out + start, int(min(n - start, step)), 1});
        }
        if (threadIdx.x == 0) losses.loss[row] = 0.0f;
        return;
    }

    float largest = -INFINITY, base = 0.0f, sum = 0.0f;
    for (int64_t start = 0; start < n; start += step) {
        const int rest = int(min(n - start, step));
        r.load(Part<const T>{x + start * losses.stride_n, rest, losses.stride_n}, -INFINITY);
        const float previous = largest;
        r.each([&](float v) { largest = fmaxf(largest, v); });
        base = finite_maximum(largest);
        r.stay_packed();
        sum *= power(previous - base);
        r.each([&](float v) { sum += power(v - base); });
    }
    const float all = finite_maximum(over_block(largest, Maximum(), scratch[0]));
    sum = over_block(sum * power(base - all), Addition(), scratch[1]);
    const float below =
        sum_below<PACKED>(Part<const T>{x, int(n), losses.stride_n}, all, losses.smoothing, scratch[2]);
    const RowResult result(losses, row, at, all, sum, below);
    for (int64_t start = 0; start < n; start += step) {
        const int rest = int(min(n - start, step));
        r.load(Part<const T>{x + start * losses.stride_n, rest, losses.stride_n}, -INFINITY);
        r.store(Part<T>{out + start, rest, 1}, result);
    }
    order_stores();
    if (threadIdx.x == 0) {
        losses.loss[row] = result.loss;
        if (at >= 0 && at < n) out[at] = from_float<T>(result.of_target());
    }
}

// share: memory for one float.
extern "C" int cross_entropy_registers(const void* logits, const void* target, void* share, void* loss, void* out,
                                       int64_t m, int64_t n, int64_t stride_m, int64_t stride_n, int64_t stride_t,
                                       int64_t ignored, double smoothing, int64_t dtype, cudaStream_t stream,
                                       LaunchRecord* record) {
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const Losses<T> losses{static_cast<const T*>(logits), static_cast<const int64_t*>(target),
                               static_cast<const float*>(share), static_cast<float*>(loss), static_cast<T*>(out), m, n,
                               stride_m, stride_n, stride_t, ignored, float(smoothing)};
        launch_count(losses.target, static_cast<float*>(share), m, stride_t, ignored, stream, record);
        const Division division = divide_rows(losses.logits, m, n, stride_m, stride_n, losses.out);
        const dim3 grid = division.grid(m), block = division.block;
        record->set(grid, block);
        by_division(division, [&](auto packs, auto packed) {
            if (division.held) {
                const auto kernel = cross_entropy_rows<T, packs(), packed()>;
                kernel<<<grid, block, 0, stream>>>(losses);
            } else {
                const auto kernel = cross_entropy_long_rows<T, BLOCK_PACKS, packed()>;
                kernel<<<grid, block, 0, stream>>>(losses);
            }
        });
    });
}
