// mbarriers: barriers in shared memory that count arrivals of threads and bytes of asynchronous copies. A phase ends
// when all expected arrivals and bytes have arrived. Source: PTX ISA, "mbarrier".
#pragma once

#include "hopper/hopper.cuh"

constexpr int MBARRIER_BYTES = 8;

__device__ __forceinline__ void mbarrier_init(uint32_t barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes the initialization visible to TMA and to other blocks. Called between mbarrier_init and a barrier of the
// threads.
__device__ __forceinline__ void mbarrier_fence_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Arrives, and adds `bytes` of TMA copies to the bytes that the current phase expects.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint32_t barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives at a barrier of another block, whose address map_shared_rank returned. It orders no writes of this thread.
// That is enough to report that wgmma has read its operands; `.release.cluster` would add a fence of global memory.
__device__ __forceinline__ void mbarrier_arrive_cluster(uint32_t remote) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(remote) : "memory");
}

// Waits until the phase with this parity has ended. Successive phases have parity 0, 1, 0, ... The phase before the
// first counts as ended, so a wait for parity 1 on a fresh barrier returns at once.
__device__ __forceinline__ void mbarrier_wait_parity(uint32_t barrier, uint32_t parity) {
    asm volatile(
        "{\n\t"
        ".reg .pred ended;\n\t"
        "again:\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n\t"
        "@!ended bra again;\n\t"
        "}" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

// Position in a ring of stages, and the parity of the current phase of its barriers. The consumer of a stage waits for
// `phase` of its full barrier, the producer for `phase ^ 1` of its empty barrier.
template <int STAGES>
struct PipelineState {
    int stage = 0;
    uint32_t phase = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == STAGES) stage = 0, phase ^= 1;
    }
};
