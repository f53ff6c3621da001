// """Every thread of the last block writes, also those past the end of the result."""
// OPERATION = "vector_add"
// KIND = "memory"
// EXPECTED = ("wrong", "error")
// GPU = False
// SHAPE = "N=65520"
#include "common.cuh"

template <typename T>
__global__ void add(const T* a, const T* b, T* out, int64_t n, int64_t stride_a, int64_t stride_b) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    // No test of i < n: up to 16 elements past the end are written, those that are read are the last ones again.
    if (i >= n + 16) return;
    const int64_t at = i < n ? i : n - 1;
    out[i] = from_float<T>(to_float(a[at * stride_a]) + to_float(b[at * stride_b]));
}

extern "C" int vector_add(const void* a, const void* b, void* out, int64_t n, int64_t stride_a, int64_t stride_b,
                          int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(n, 256)));
    record->set(grid, 256);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        add<T><<<grid, 256, 0, stream>>>(static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(out), n,
                                         stride_a, stride_b);
    });
}
