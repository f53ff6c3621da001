// Inline PTX, which the host build does not support.
// requires: sm_90a
#include "common.cuh"

__global__ void fence() { asm volatile("wgmma.fence.sync.aligned;"); }

extern "C" int fenced(cudaStream_t stream, LaunchRecord* record) {
    record->set(1, 128);
    fence<<<1, 128, 0, stream>>>();
    return cudaGetLastError();
}
