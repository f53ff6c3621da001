// Shared by kernels that compute all steps of an LSTM: arguments, signals between blocks, and the launch.
#pragma once

#include "lstm/lstm.cuh"

constexpr int WARPS = 8, THREADS = 32 * WARPS;

struct Layer {
    const void *inputs, *w_hh, *bias, *h0, *c0;
    void *y, *h, *c;
    float* cells;     // (B, H), kept between launches
    uint64_t* words;  // (2, B, pitch): h of even and odd steps, each with the number of its step
    unsigned* flags;  // (groups, blocks per group): steps that a block has finished
    int steps, batch, size, pitch, rows;  // T, B, H; rows per group
};

// Reads numbers that other blocks write while this kernel runs. Each read goes to the L2 cache.
__device__ __forceinline__ ulonglong2 read_words(const uint64_t* from) {
#ifdef __CUDA_ARCH__
    ulonglong2 x;
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(x.x), "=l"(x.y) : "l"(from) : "memory");
    return x;
#else
    return {from[0], from[1]};
#endif
}

__device__ __forceinline__ void write_word(uint64_t* to, float h, unsigned step) {
    const uint64_t word = uint64_t(step) << 32 | __float_as_uint(h);
#ifdef __CUDA_ARCH__
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" : : "l"(to), "l"(word) : "memory");
#else
    *to = word;
#endif
}

__device__ __forceinline__ unsigned read_flag(const unsigned* from) {
#ifdef __CUDA_ARCH__
    unsigned x;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
    return x;
#else
    return *static_cast<const volatile unsigned*>(from);
#endif
}

__device__ __forceinline__ void write_flag(unsigned* to, unsigned step) {
#ifdef __CUDA_ARCH__
    asm volatile("st.release.gpu.global.u32 [%0], %1;" : : "l"(to), "r"(step) : "memory");
#else
    *static_cast<volatile unsigned*>(to) = step;
#endif
}

// Launches all steps cooperatively; in the emulation one launch per step. Launches of this kernel by other threads may
// take up to `most_bytes` of shared memory.
cudaError_t launch_steps(void (*kernel)(Layer, int, int), const Layer& layer, dim3 grid, int shared_bytes,
                         int most_bytes, cudaStream_t stream, LaunchRecord* record) {
    record->set(grid, THREADS, shared_bytes);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most_bytes);
#ifdef __CUDACC__
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
    const cudaLaunchConfig_t config = {grid, dim3(THREADS), size_t(shared_bytes), stream, &attribute, 1};
    cudaLaunchKernelEx(&config, kernel, layer, 0, layer.steps);
#else
    for (int t = 0; t < layer.steps; ++t) {
        kernel<<<grid, THREADS, shared_bytes, stream>>>(layer, t, t + 1);
    }
#endif
    return cudaGetLastError();
}
