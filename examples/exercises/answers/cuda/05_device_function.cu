// Exercise cuda/05_device_function: a function that a kernel calls.
//
// out[i] = silu(x[i]) = x[i] / (1 + exp(-x[i])). A kernel is __global__; what it calls is __device__.
#include "common.cuh"

// TODO: define the function `__device__ float silu(float x)`. expf is the exponential of a float.
__device__ float silu(float x) {
    return x / (1.0f + expf(-x));
}
// END

__global__ void silu_kernel(const float* x, float* out, int64_t N) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < N) out[i] = silu(x[i]);
}

extern "C" int silu(const float* x, float* out, int64_t N, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(N, 256))), block(256);
    record->set(grid, block);
    silu_kernel<<<grid, block, 0, stream>>>(x, out, N);
    return cudaGetLastError();
}
