// """Tests every index against the length."""
// OPERATION = "vector_add"
// TWIN_OF = "memory_past_the_end_cuda"
// GPU = False
// SHAPE = "N=65520"
#include "common.cuh"

template <typename T>
__global__ void add(const T* a, const T* b, T* out, int64_t n, int64_t stride_a, int64_t stride_b) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) out[i] = from_float<T>(to_float(a[i * stride_a]) + to_float(b[i * stride_b]));
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
