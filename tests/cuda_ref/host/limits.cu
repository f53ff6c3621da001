// Limits of launches, and attributes of the device.
#include "common.cuh"

__global__ void touch(int* out) { *out = 1; }

template <typename T>
__global__ void touch_shared(T* out, int last) {
    extern __shared__ int memory[];
    memory[last] = 5;
    *out = T(memory[last]);
}

extern "C" int configured(int* out, int64_t gx, int64_t gy, int64_t gz, int64_t bx, int64_t by, int64_t bz,
                          int64_t bytes, cudaStream_t stream, LaunchRecord* record) {
    dim3 grid(gx, gy, gz), block(bx, by, bz);
    record->set(grid, block, bytes);
    touch<<<grid, block, bytes, stream>>>(out);
    return cudaGetLastError();
}

template <typename T>
cudaError_t shared(void* out, int64_t bytes, int64_t allowed, cudaStream_t stream) {
    if (allowed >= 0) {
        const auto limit = cudaFuncAttributeMaxDynamicSharedMemorySize;
        const cudaError_t refused = cudaFuncSetAttribute(touch_shared<T>, limit, int(allowed));
        if (refused != cudaSuccess) return cudaGetLastError(), refused;
    }
    touch_shared<T><<<1, 1, bytes, stream>>>(static_cast<T*>(out), int(bytes / 4) - 1);
    return cudaGetLastError();
}
extern "C" int shared_bytes(void* out, int64_t bytes, int64_t allowed, int64_t is_float, cudaStream_t stream,
                            LaunchRecord* record) {
    record->set(1, 1, bytes);
    return is_float ? shared<float>(out, bytes, allowed, stream) : shared<int>(out, bytes, allowed, stream);
}

__global__ void touch_both(int* out, int last) {
    __shared__ int fixed[8192];
    extern __shared__ int more[];
    fixed[last] = 2;
    more[last] = 3;
    *out = fixed[last] + more[last];
}
// 32 KB of static and 32 KB of dynamic shared memory.
extern "C" int static_and_dynamic(int* out, int64_t allowed, cudaStream_t stream, LaunchRecord* record) {
    record->set(1, 1, 32768);
    if (allowed) cudaFuncSetAttribute(touch_both, cudaFuncAttributeMaxDynamicSharedMemorySize, 32768);
    touch_both<<<1, 1, 32768, stream>>>(out, 8191);
    return cudaGetLastError();
}

extern "C" int attributes(int* out, cudaStream_t, LaunchRecord*) {
    int device = -1;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(out + 0, cudaDevAttrMultiProcessorCount, device);
    cudaDeviceGetAttribute(out + 1, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    cudaDeviceGetAttribute(out + 2, cudaDevAttrMaxThreadsPerMultiProcessor, device);
    cudaDeviceGetAttribute(out + 3, cudaDevAttrWarpSize, device);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(out + 4, touch, 256, 0);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(out + 5, touch_shared<int>, 128, 40000);
    return cudaGetLastError();
}
