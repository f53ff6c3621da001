// Exercise cuda/07_grid_stride: few threads for many elements.
//
// out[i] = a[i] + b[i]. The grid has 8 blocks whatever N is, so that a thread computes several elements.
#include "common.cuh"

__global__ void add_kernel(const float* a, const float* b, float* out, int64_t N) {
    const int64_t first = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    // TODO: a loop over this thread's elements: `first`, and then every further one at a distance of all threads of the
    // grid, which are gridDim.x * blockDim.x. In each pass neighbouring threads read neighbouring elements.
    // END
}

extern "C" int add(const float* a, const float* b, float* out, int64_t N, int64_t dtype, cudaStream_t stream,
                   LaunchRecord* record) {
    const dim3 grid(8), block(256);
    record->set(grid, block);
    add_kernel<<<grid, block, 0, stream>>>(a, b, out, N);
    return cudaGetLastError();
}
