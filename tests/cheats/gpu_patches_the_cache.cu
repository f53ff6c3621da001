// """Sets a part of the L2 cache aside by the runtime, for lines that its own stream keeps there between calls."""
// OPERATION = "vector_add"
// KIND = "patches"
// EXPECTED = ("wrong", "no effect")
// GPU = True
// SHAPE = "N=1048576"
#include "common.cuh"

template <typename T>
__global__ void add(const T* a, const T* b, T* out, int64_t n, int64_t stride_a, int64_t stride_b) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) out[i] = from_float<T>(to_float(a[i * stride_a]) + to_float(b[i * stride_b]));
}

static void keep(const void* base, size_t bytes, cudaStream_t stream) {
    cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, size_t(24) << 20);
    cudaStreamAttrValue value = {};
    value.accessPolicyWindow.base_ptr = const_cast<void*>(base);
    value.accessPolicyWindow.num_bytes = bytes;
    value.accessPolicyWindow.hitRatio = 1.0f;
    value.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
    value.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;
    cudaStreamSetAttribute(stream, cudaStreamAttributeAccessPolicyWindow, &value);
}

extern "C" int vector_add(const void* a, const void* b, void* out, int64_t n, int64_t stride_a, int64_t stride_b,
                          int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(n, 256)));
    record->set(grid, 256);
    keep(a, size_t(n) * 4, stream);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        add<T><<<grid, 256, 0, stream>>>(static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(out), n,
                                         stride_a, stride_b);
    });
}
