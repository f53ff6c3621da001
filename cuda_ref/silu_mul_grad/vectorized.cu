// da[i, j] = dy b act'(a), db[i, j] = dy act(a), act(a) = a s: act'(a) = s + a w' s (1 - s)
//
// One thread computes one pack of 16 bytes of both gradients. Rows and blocks are those of silu_mul/vectorized.cu.
#include "common/activation.cuh"
#include "common/packs.cuh"

template <typename T, int LANES, bool GELU>
__global__ void __launch_bounds__(PACK_THREADS)
    silu_mul_grad_packed(Rows<T> a, Rows<T> b, Rows<T> dy, T* __restrict__ da, T* __restrict__ db, int64_t n,
                         unsigned across) {
    const RowPlace at(across, LANES);
    if (at.column >= n) return;
    const int64_t place = at.row * n + at.column;
    const T *from_a = a.at(at.row, at.column), *from_b = b.at(at.row, at.column), *from_y = dy.at(at.row, at.column);
    // Replaces b by da, and dy by db.
    const auto differentiate = [](T x, T& y, T& d) {
        const float wide = to_float(x), s = gate_for<T, GELU>(wide), of_y = to_float(d);
        y = from_float<T>(of_y * to_float(y) * slope_of<GELU>(wide, s));
        d = from_float<T>(of_y * (wide * s));
    };
    if (at.column + LANES <= n) {
        const auto x = read_pack<T, LANES>(from_a);
        auto y = read_pack<T, LANES>(from_b), d = read_pack<T, LANES>(from_y);
#pragma unroll
        for (int lane = 0; lane < LANES; ++lane) differentiate(x[lane], y[lane], d[lane]);
        write_pack<T, LANES>(da + place, y);
        write_pack<T, LANES>(db + place, d);
    } else {
        for (int lane = 0; lane < n - at.column; ++lane) {
            T y = from_b[lane], d = from_y[lane];
            differentiate(from_a[lane], y, d);
            da[place + lane] = y;
            db[place + lane] = d;
        }
    }
}

extern "C" int silu_mul_grad_vectorized(const void* a, const void* b, const void* dy, void* da, void* db, int64_t m,
                                        int64_t n, int64_t stride_a, int64_t stride_b, int64_t stride_y, int64_t gelu,
                                        int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const Rows<T> x = {static_cast<const T*>(a), stride_a}, y = {static_cast<const T*>(b), stride_b};
        const Rows<T> d = {static_cast<const T*>(dy), stride_y};
        T *to_a = static_cast<T*>(da), *to_b = static_cast<T*>(db);
        const bool packs = are_packs<T>(m, n, {to_a, to_b}, x, y, d);
        by_packs<T>(packs, m, n, record, [&](auto lanes, unsigned across, dim3 grid) {
            const auto kernel = gelu ? silu_mul_grad_packed<T, lanes(), true> : silu_mul_grad_packed<T, lanes(), false>;
            kernel<<<grid, PACK_THREADS, 0, stream>>>(x, y, d, to_a, to_b, n, across);
        });
    });
}
