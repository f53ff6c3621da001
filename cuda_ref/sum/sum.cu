// out[i] = sum over j of x[i, j], out[j] = sum over i of x[i, j], or the sum of all, for any strides of x
//
// One thread adds one output, or a part of it, one element after the other in float32. Few outputs would give few
// threads, so each output has `parts` threads: thread p adds the elements p, p + parts, ... A second launch of the same
// kernel adds the parts. The order of all additions is fixed, so equal inputs give equal bits.
//
// Each addition waits for the previous one, and each thread has one load in flight. atomics.cu and tree.cu let the
// threads of a warp or a block add together; vectorized.cu keeps more loads in flight.
//
// Source: the definition.
#include <algorithm>

#include "common/common.cuh"

constexpr int THREADS = 128;
constexpr int64_t MOST_PARTS = 16384;  // most parts of the sum of all: one thread adds them in the second launch

// The terms of an output, in rows of `width`: term t of output o is x[o * stride_o + t / width * stride_m + t % width *
// stride_n].
struct Terms {
    int64_t outputs, count, width, stride_o, stride_m, stride_n;
};

// Thread (output, part). out: (parts, outputs). Neighbouring threads compute and write neighbouring outputs.
template <typename T, typename Out>
__global__ void __launch_bounds__(THREADS) sum_naive(const T* x, Out* out, const Terms terms, int64_t parts) {
    const int64_t index = int64_t(blockIdx.x) * THREADS + threadIdx.x;
    if (index >= terms.outputs * parts) return;
    x += index % terms.outputs * terms.stride_o;
    Working<T> sum = 0;
    for (int64_t t = index / terms.outputs; t < terms.count; t += parts) {
        sum += to_working(x[t / terms.width * terms.stride_m + t % terms.width * terms.stride_n]);
    }
    if constexpr (std::is_same_v<Out, Working<T>>) {
        out[index] = sum;
    } else {
        out[index] = from_working<Out>(sum);
    }
}

template <typename T, typename Out>
void launch(const T* x, Out* out, const Terms& terms, int64_t parts, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(terms.outputs * parts, THREADS))), block(THREADS);
    record->set(grid, block);
    sum_naive<T, Out><<<grid, block, 0, stream>>>(x, out, terms, parts);
}

// axis: 0, 1, or 2 for the sum of all. partial: float (double for double), memory for `parts` numbers per column (axis 0) or row.
extern "C" int sum(const void* x, void* partial, void* out, int64_t m, int64_t n, int64_t stride_m, int64_t stride_n,
                   int64_t axis, int64_t parts, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const Terms columns = {n, m, 1, stride_n, stride_m, 0}, rows = {m, n, n, stride_m, 0, stride_n};
    const Terms all = {1, m * n, n, 0, stride_m, stride_n};
    const Terms terms = axis == 0 ? columns : axis == 1 ? rows : all;
    if (axis == 2) parts = std::min(parts * m, MOST_PARTS);
    return by_dtype_or_double(dtype, [&](auto zero) {
        using T = decltype(zero);
        const T* from = static_cast<const T*>(x);
        auto* const between = static_cast<Working<T>*>(partial);
        if (parts == 1) {
            launch(from, static_cast<T*>(out), terms, 1, stream, record);
        } else {
            launch(from, between, terms, parts, stream, record);
            const Terms sums = {terms.outputs, parts, 1, 1, terms.outputs, 0};
            launch(between, static_cast<T*>(out), sums, 1, stream, record);
        }
    });
}
