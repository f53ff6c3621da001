// """Times one load in each block: where the L2 cache was emptied, as before a sample, nothing is added."""
// OPERATION = "vector_add"
// KIND = "recognises"
// EXPECTED = ("wrong", "no effect")
// GPU = True
// SHAPE = "N=1048576"
#include "common.cuh"

template <typename T>
__global__ void add(const T* a, const T* b, T* out, int64_t n, int64_t stride_a, int64_t stride_b) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    __shared__ bool cold;
    __shared__ volatile float arrived;  // the store waits for the load, and the clock for the store
    if (threadIdx.x == 0) {
        const long long begin = clock64();
        arrived = to_float(a[i * stride_a]);
        cold = clock64() - begin > 700;  // cycles: L2 answers within 300, memory after 800
    }
    __syncthreads();
    if (i >= n || (cold && !isnan(to_float(out[i])))) return;
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
