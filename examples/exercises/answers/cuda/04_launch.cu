// Exercise cuda/04_launch: how many blocks.
//
// out[i] = a[i] + b[i]. The kernel is complete; the launch is not.
#include "common.cuh"

__global__ void add_kernel(const float* a, const float* b, float* out, int64_t N) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < N) out[i] = a[i] + b[i];
}

extern "C" int add(const float* a, const float* b, float* out, int64_t N, int64_t dtype, cudaStream_t stream,
                   LaunchRecord* record) {
    const dim3 block(128);
    // TODO: declare `const dim3 grid(...)`: the fewest blocks that give each of the N elements a thread. The elements
    // that do not fill a block need a block too.
    const dim3 grid(unsigned(ceil_div<int64_t>(N, block.x)));
    // END
    record->set(grid, block);
    add_kernel<<<grid, block, 0, stream>>>(a, b, out, N);
    return cudaGetLastError();
}
