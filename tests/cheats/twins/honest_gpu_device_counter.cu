// """Counts its blocks in device memory, and adds in all of them."""
// OPERATION = "vector_add"
// TWIN_OF = "gpu_recognises_a_device_flag"
// GPU = True
// SHAPE = "N=1048576"
#include "common.cuh"

__device__ unsigned finished_blocks;

template <typename T>
__global__ void add(const T* a, const T* b, T* out, int64_t n, int64_t stride_a, int64_t stride_b) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) out[i] = from_float<T>(to_float(a[i * stride_a]) + to_float(b[i * stride_b]));
    if (threadIdx.x == 0) atomicAdd(&finished_blocks, 1u);
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
