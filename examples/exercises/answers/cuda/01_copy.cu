// Exercise cuda/01_copy: a kernel, run by one thread.
//
// out[i] = x[i] for all N elements. The launch starts a single thread, which does all of the work.
#include "common.cuh"

__global__ void copy_kernel(const float* x, float* out, int64_t N) {
    for (int64_t i = 0; i < N; ++i) {
        // TODO: copy element i of x to out.
        out[i] = x[i];
        // END
    }
}

extern "C" int copy(const float* x, float* out, int64_t N, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(1), block(1);
    record->set(grid, block);
    copy_kernel<<<grid, block, 0, stream>>>(x, out, N);
    return cudaGetLastError();
}
