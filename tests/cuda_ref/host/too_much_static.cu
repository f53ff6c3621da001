// More static shared memory than a block has, which nvcc refuses.
#include "common.cuh"

__global__ void hoard(float* out) {
    __shared__ float a[8192];
    __shared__ float b[8192];
    a[threadIdx.x] = b[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = a[31 - threadIdx.x] + b[31 - threadIdx.x];
}
extern "C" int hoarding(float* out, cudaStream_t stream, LaunchRecord* record) {
    record->set(1, 32);
    hoard<<<1, 32, 0, stream>>>(out);
    return cudaGetLastError();
}
