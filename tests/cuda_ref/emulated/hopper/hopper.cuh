// The functions of cuda_ref/hopper/hopper.cuh on a CPU, for the host build: a kernel for Hopper then runs without one.
//
// Shared memory is that of the host build; its addresses are offsets from the beginning. Threads take turns, so that a
// thread that waits must yield by __nanosleep. Asynchronous work of a GPU is done as late as the waits allow, so that a
// missing wait gives wrong results.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "common.cuh"

constexpr int WARPGROUP = 128, ROW_BYTES = 128, BOX_BYTES = 64 * ROW_BYTES, BOX_ALIGNMENT = 1024;
constexpr int MAX_SHARED_BYTES = 227 * 1024;

using Deferred = std::vector<std::function<void()>>;

[[noreturn]] inline void stop(const char* what) {
    fprintf(stderr, "emulated Hopper, thread %u of block %u: %s\n", threadIdx.x, blockIdx.x, what);
    abort();
}

inline void run_all(Deferred& work) {
    for (auto& each : work) each();
    work.clear();
}

inline char* shared_pointer(uint32_t address) {
    if (address >= uint32_t(MAX_SHARED_BYTES)) stop("an address is beyond shared memory");
    return cuda_host::dynamic_memory + address;
}
inline uint32_t shared_address(const void* pointer) {
    return uint32_t(static_cast<const char*>(pointer) - cuda_host::dynamic_memory);
}

// Where the swizzle of 128 bytes puts what has this address.
inline char* swizzled(uint32_t address) { return shared_pointer(address ^ (address >> 7 & 7) << 4); }

template <int>
void setmaxnreg_dec() {}
template <int>
void setmaxnreg_inc() {}
inline void fence_proxy_async() {}

struct NamedBarrier {
    int arrived, phase;
};
inline NamedBarrier named_barriers[16];

inline void named_barrier_arrive(int barrier, int threads) {
    NamedBarrier& at = named_barriers[barrier];
    if (++at.arrived == threads) at.arrived = 0, ++at.phase;
}
inline void named_barrier_sync(int barrier, int threads) {
    const int before = named_barriers[barrier].phase;
    named_barrier_arrive(barrier, threads);
    while (named_barriers[barrier].phase == before) __nanosleep(1);
}

inline void store_shared(uint32_t address, float x) { memcpy(shared_pointer(address), &x, sizeof x); }
inline void store_shared(uint32_t address, float2 x) { memcpy(shared_pointer(address), &x, sizeof x); }
inline void store_shared(uint32_t address, float4 x) { memcpy(shared_pointer(address), &x, sizeof x); }
inline float2 load_shared_pair(uint32_t address) {
    float2 x;
    memcpy(&x, shared_pointer(address), sizeof x);
    return x;
}

inline void start_next_kernel() {}
inline void wait_for_earlier_kernel() {}
inline void prefetch_l2(const void*) {}
inline int load_acquire(const int* at) { return *at; }
inline void increment_release(int* at) { ++*at; }

inline float exp2_approximate(float x) { return exp2f(x); }

template <typename T>
uint32_t rounded_pair(float low, float high) {
    const T pair[] = {from_float<T>(low), from_float<T>(high)};
    uint32_t bits;
    memcpy(&bits, pair, sizeof bits);
    return bits;
}

// A cluster has one block.
inline uint32_t cta_rank_in_cluster() { return 0; }
inline uint32_t ctas_in_cluster() { return 1; }
inline void cluster_sync() { __syncthreads(); }
inline void cluster_arrive_relaxed() { stop("written for one block"); }
inline void cluster_wait() { stop("written for one block"); }
inline uint32_t map_shared_rank(uint32_t address, uint32_t) { return address; }
inline float4 load_shared_cluster(uint32_t address) {
    float4 x;
    memcpy(&x, shared_pointer(address), sizeof x);
    return x;
}

inline void stmatrix_x4(uint32_t row, const uint32_t (&x)[4]) {
    const int lane = threadIdx.x % 32;
    for (int i = 0; i < 4; ++i) {
        const uint32_t to = __shfl_sync(0xffffffffu, row, 8 * i + lane / 4);
        memcpy(shared_pointer(to + lane % 4 * 4), &x[i], sizeof x[i]);
    }
}

inline void stmatrix_x4_transposed(uint32_t row, uint32_t x0, uint32_t x1, uint32_t x2, uint32_t x3) {
    const uint32_t x[] = {x0, x1, x2, x3};
    const int lane = threadIdx.x % 32;
    for (int i = 0; i < 4; ++i) {
        for (int source = 0; source < 8; ++source) {  // a row that is stored
            const uint32_t to = __shfl_sync(0xffffffffu, row, 8 * i + source);
            for (int half = 0; half < 2; ++half) {
                const uint16_t element = uint16_t(x[i] >> 16 * half);
                if (lane % 4 * 2 + half == source) memcpy(shared_pointer(to + lane / 4 * 2), &element, sizeof element);
            }
        }
    }
}
