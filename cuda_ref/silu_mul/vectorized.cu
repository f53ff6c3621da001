// out[i, j] = act(a[i, j]) * b[i, j], act(a) = a sigmoid(a) or gelu
//
// One thread computes one pack of 16 bytes. Contiguous matrices are one long row; otherwise each row has its own
// blocks, since a and b are often the halves of one product's rows. The sigmoid is that of common/sigmoid.cuh.
#include "common/activation.cuh"
#include "common/packs.cuh"

template <typename T, int LANES, bool GELU>
__global__ void __launch_bounds__(PACK_THREADS)
    silu_mul_packed(Rows<T> a, Rows<T> b, T* __restrict__ out, int64_t n, unsigned across) {
    const RowPlace at(across, LANES);
    if (at.column >= n) return;
    T* to = out + at.row * n + at.column;
    const T *from_a = a.at(at.row, at.column), *from_b = b.at(at.row, at.column);
    const auto result = [](T x, T y) {
        const float wide = to_float(x);
        return from_float<T>(wide * gate_for<T, GELU>(wide) * to_float(y));
    };
    if (at.column + LANES <= n) {
        auto x = read_pack<T, LANES>(from_a);
        const auto y = read_pack<T, LANES>(from_b);
#pragma unroll
        for (int lane = 0; lane < LANES; ++lane) x[lane] = result(x[lane], y[lane]);
        write_pack<T, LANES>(to, x);
    } else {
        for (int lane = 0; lane < n - at.column; ++lane) to[lane] = result(from_a[lane], from_b[lane]);
    }
}

extern "C" int silu_mul_vectorized(const void* a, const void* b, void* out, int64_t m, int64_t n, int64_t stride_a,
                                   int64_t stride_b, int64_t gelu, int64_t dtype, cudaStream_t stream,
                                   LaunchRecord* record) {
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const Rows<T> x = {static_cast<const T*>(a), stride_a}, y = {static_cast<const T*>(b), stride_b};
        T* to = static_cast<T*>(out);
        by_packs<T>(are_packs<T>(m, n, {to}, x, y), m, n, record, [&](auto lanes, unsigned across, dim3 grid) {
            const auto kernel = gelu ? silu_mul_packed<T, lanes(), true> : silu_mul_packed<T, lanes(), false>;
            kernel<<<grid, PACK_THREADS, 0, stream>>>(x, y, to, n, across);
        });
    });
}
