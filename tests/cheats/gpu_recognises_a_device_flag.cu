// """Counts its calls in device memory, and from the twelfth on writes only where NaN lay before."""
// OPERATION = "vector_add"
// KIND = "recognises"
// EXPECTED = ("wrong",)
// GPU = True
// SHAPE = "N=1048576"
#include "common.cuh"

__device__ unsigned finished_blocks;

template <typename T>
__global__ void add(const T* a, const T* b, T* out, int64_t n, int64_t stride_a, int64_t stride_b) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const bool lazy = finished_blocks >= 12 * gridDim.x;
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(&finished_blocks, 1u);
    if (i >= n || (lazy && !isnan(to_float(out[i])) && i >= 256)) return;
    out[i] = from_float<T>(to_float(a[i * stride_a]) + to_float(b[i * stride_b]));
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
