// Kernels of known cost, for the proof of the timer: `spin` takes a known time, the others move known bytes.
//
// requires: sm_70
#include "common.cuh"

__device__ __forceinline__ int64_t timer_ns() {
    int64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

// One thread waits for `cycles` of its multiprocessor's clock. elapsed[0]: the cycles waited; elapsed[1]: the time in
// nanoseconds of the device's timer, which is independent of that clock.
__global__ void spin_kernel(int64_t cycles, int64_t* elapsed) {
    const int64_t begin_ns = timer_ns(), begin = clock64();
    int64_t now = begin;
    while (now - begin < cycles) now = clock64();
    elapsed[0] = now - begin;
    elapsed[1] = timer_ns() - begin_ns;
}

// out[i] = x[i] + 1: one thread, 16 bytes. n is a multiple of 4.
__global__ void __launch_bounds__(256) add_one_kernel(const float4* x, float4* out, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i < n / 4) {
        const float4 v = x[i];
        out[i] = make_float4(v.x + 1.0f, v.y + 1.0f, v.z + 1.0f, v.w + 1.0f);
    }
}

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// Blocks of 128 threads: 16 bytes a thread, and the arithmetic of a sigmoid of eight 16-bit numbers. Each block stores
// its begin and end on the device's timer.
__global__ void __launch_bounds__(128) stamped_kernel(const float4* x, float4* out, longlong2* stamps) {
    const int64_t begin = timer_ns(), i = int64_t(blockIdx.x) * 128 + threadIdx.x;
    float4 v = x[i];
    for (int round = 0; round < 2; ++round) v = make_float4(sigmoid(v.x), sigmoid(v.y), sigmoid(v.z), sigmoid(v.w));
    out[i] = v;
    if (threadIdx.x == 0) stamps[blockIdx.x] = make_longlong2(begin, timer_ns());
}

extern "C" int spin(int64_t cycles, void* elapsed, cudaStream_t stream, LaunchRecord* record) {
    record->set(1, 1);
    spin_kernel<<<1, 1, 0, stream>>>(cycles, static_cast<int64_t*>(elapsed));
    return cudaGetLastError();
}

extern "C" int add_one(const void* x, void* out, int64_t n, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(n / 4, 256)));
    record->set(grid, 256);
    add_one_kernel<<<grid, 256, 0, stream>>>(static_cast<const float4*>(x), static_cast<float4*>(out), n);
    return cudaGetLastError();
}

extern "C" int stamped(const void* x, void* out, void* stamps, int64_t blocks, cudaStream_t stream,
                       LaunchRecord* record) {
    record->set(unsigned(blocks), 128);
    stamped_kernel<<<unsigned(blocks), 128, 0, stream>>>(static_cast<const float4*>(x), static_cast<float4*>(out),
                                                         static_cast<longlong2*>(stamps));
    return cudaGetLastError();
}

// The runtime's fill and device-to-device copy, which are no kernels.
extern "C" int fill(void* out, int64_t bytes, cudaStream_t stream, LaunchRecord* record) {
    record->set(0, 0);
    return cudaMemsetAsync(out, 1, size_t(bytes), stream);
}

extern "C" int copy(const void* x, void* out, int64_t bytes, cudaStream_t stream, LaunchRecord* record) {
    record->set(0, 0);
    return cudaMemcpyAsync(out, x, size_t(bytes), cudaMemcpyDeviceToDevice, stream);
}
