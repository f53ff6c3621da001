// Sums by atomics: adds warps to sum.cu. Each warp adds its part to the result by an atomic addition
//
// A warp adds the elements of its lanes by shuffles, and one lane adds the sum to a total in memory. Totals are cleared
// before and rounded after. Additions to one address are serialized, in the order in which the warps arrive, so the
// last bits of the result differ from call to call; the error bound holds for any order. If there are few totals and
// many warps for each, the warps wait for each other.
// Totals are double: atomic additions of float32 to global memory flush subnormal numbers to zero (PTX ISA, "red"), and
// a subnormal float is a normal double.
#include "common/common.cuh"

constexpr int THREADS = 256, LANES = 32;
constexpr int64_t MOST_BLOCKS = 32768;  // limit of the second dimension of a grid

__global__ void __launch_bounds__(THREADS) clear(double* totals, int64_t count) {
    const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
    if (i < count) totals[i] = 0.0;
}

template <typename T>
__global__ void __launch_bounds__(THREADS) round_totals(const double* totals, T* out, int64_t count) {
    const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
    if (i < count) out[i] = from_float<T>(float(totals[i]));
}

// Block (part, row) adds every parts-th run of blockDim.x elements.
template <typename T>
__global__ void __launch_bounds__(THREADS)
    sum_atomics(const T* __restrict__ x, double* totals, int64_t m, int64_t n, int64_t stride_m, int64_t stride_n,
                bool all) {
    const int64_t row = int64_t(blockIdx.z) * gridDim.y + blockIdx.y;
    if (row >= m) return;  // true for the whole block
    float sum = 0.0f;
    for (int64_t j = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; j < n; j += int64_t(gridDim.x) * blockDim.x) {
        sum += to_float(x[row * stride_m + j * stride_n]);
    }
    for (int distance = LANES / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (threadIdx.x % LANES == 0) atomicAdd(totals + (all ? 0 : row), double(sum));
}

// out[i] = sum over j of x[i, j], or the sum of all if `all`. parts: blocks per row. totals: double, for the sums.
extern "C" int sum_atomics(const void* x, void* totals, void* out, int64_t m, int64_t n, int64_t stride_m,
                           int64_t stride_n, int64_t parts, int64_t all, int64_t dtype, cudaStream_t stream,
                           LaunchRecord* record) {
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const T* from = static_cast<const T*>(x);
        T* to = static_cast<T*>(out);
        double* between = static_cast<double*>(totals);
        const int64_t count = all ? 1 : m;
        const dim3 few(unsigned(ceil_div<int64_t>(count, THREADS)));
        const dim3 grid(unsigned(parts), unsigned(min(m, MOST_BLOCKS)), unsigned(ceil_div(m, MOST_BLOCKS)));
        record->set(few, THREADS);
        clear<<<few, THREADS, 0, stream>>>(between, count);
        int threads = LANES;
        while (threads < n && threads < THREADS) threads *= 2;
        record->set(grid, threads);
        sum_atomics<T><<<grid, threads, 0, stream>>>(from, between, m, n, stride_m, stride_n, all != 0);
        record->set(few, THREADS);
        round_totals<T><<<few, THREADS, 0, stream>>>(between, to, count);
    });
}
