// The functions of cuda_ref/hopper/mbarrier.cuh on a CPU.
#pragma once

#include "hopper/hopper.cuh"

constexpr int MBARRIER_BYTES = 8;

struct Mbarrier {
    int32_t bytes;  // that are still to come
    uint8_t arrivals, pending, phase, mark;
};
static_assert(sizeof(Mbarrier) == MBARRIER_BYTES, "");

inline Mbarrier& mbarrier_at(uint32_t address) {
    Mbarrier& barrier = *reinterpret_cast<Mbarrier*>(shared_pointer(address));
    if (barrier.mark != 77) stop("an mbarrier has not been initialized");
    return barrier;
}
inline void mbarrier_count(uint32_t address, int arrivals, int bytes) {
    Mbarrier& barrier = mbarrier_at(address);
    if (barrier.pending < arrivals) stop("too many arrivals at an mbarrier");
    barrier.pending -= arrivals, barrier.bytes += bytes;
    if (barrier.pending == 0 && barrier.bytes == 0) barrier.phase ^= 1, barrier.pending = barrier.arrivals;
}

inline void mbarrier_init(uint32_t address, int arrivals) {
    const Mbarrier fresh{0, uint8_t(arrivals), uint8_t(arrivals), 0, 77};
    memcpy(shared_pointer(address), &fresh, sizeof fresh);
}
inline void mbarrier_fence_init() {  // at the beginning of a block
    for (NamedBarrier& each : named_barriers) each.arrived = 0;
}
inline void mbarrier_arrive(uint32_t address) { mbarrier_count(address, 1, 0); }
inline void mbarrier_arrive_cluster(uint32_t address) { mbarrier_arrive(address); }
inline void mbarrier_arrive_expect_tx(uint32_t address, int bytes) { mbarrier_count(address, 1, bytes); }
inline void mbarrier_wait_parity(uint32_t address, uint32_t parity, int line = __builtin_LINE()) {
    while (mbarrier_at(address).phase == parity) __nanosleep(1, line);
}

template <int STAGES>
struct PipelineState {
    int stage = 0;
    uint32_t phase = 0;

    void advance() {
        if (++stage == STAGES) stage = 0, phase ^= 1;
    }
};
