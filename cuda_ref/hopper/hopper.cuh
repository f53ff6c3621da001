// Instructions of Hopper (sm_90a) for which CUDA C++ has no functions: registers of a warpgroup, named barriers,
// fences, stores to shared memory, clusters. mbarriers are in mbarrier.cuh, copies by TMA in tma.cuh, products in
// wgmma.cuh. Names and semantics follow the PTX ISA. Addresses of shared memory are 32 bits wide, as in PTX.
#pragma once

#include <type_traits>

#include "common/common.cuh"

constexpr int WARPGROUP = 128;                // threads of a warpgroup
constexpr int ROW_BYTES = 128;                // a row of a TMA box in shared memory, the span of the swizzle
constexpr int BOX_BYTES = 64 * ROW_BYTES;     // a box of 64 rows
constexpr int BOX_ALIGNMENT = 1024;           // bytes: eight rows of a box, after which the swizzle repeats
constexpr int MAX_SHARED_BYTES = 227 * 1024;  // most shared memory per block

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Sets the number of registers of each thread of the calling warpgroup. All of its warps must execute it.
template <int REGISTERS>
__device__ __forceinline__ void setmaxnreg_dec() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS>
__device__ __forceinline__ void setmaxnreg_inc() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// __syncthreads for `threads` threads, a multiple of 32. Barrier 0 is that of __syncthreads.
__device__ __forceinline__ void named_barrier_sync(int barrier, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// Arrives at a named barrier without waiting.
__device__ __forceinline__ void named_barrier_arrive(int barrier, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// Makes this thread's ordinary stores to shared memory visible to TMA and wgmma, after the next barrier.
__device__ __forceinline__ void fence_proxy_async() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void store_shared(uint32_t address, float x) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(x) : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t address, float2 x) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x.x), "f"(x.y) : "memory");
}

__device__ __forceinline__ void store_shared(uint32_t address, float4 x) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
                 : "memory");
}

// A warp stores four 8 x 8 matrices of 16-bit elements. Lane l passes in x[i] the elements (l / 4, l % 4 * 2 + {0, 1})
// of matrix i, and in `row` the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void stmatrix_x4(uint32_t row, const uint32_t (&x)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(x[0]), "r"(x[1]),
                 "r"(x[2]), "r"(x[3])
                 : "memory");
}

// stmatrix_x4 with each matrix transposed: row l % 8 of the stored matrix l / 8 is a column of the given one.
__device__ __forceinline__ void stmatrix_x4_transposed(uint32_t row, uint32_t x0, uint32_t x1, uint32_t x2,
                                                       uint32_t x3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(x0), "r"(x1),
                 "r"(x2), "r"(x3)
                 : "memory");
}

__device__ __forceinline__ float2 load_shared_pair(uint32_t address) {
    float2 x;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(address) : "memory");
    return x;
}

// A kernel launched by launch_early may begin once all blocks of the previous kernel have called start_next_kernel or
// ended. wait_for_earlier_kernel waits until that kernel and all before it have ended.
__device__ __forceinline__ void start_next_kernel() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
__device__ __forceinline__ void wait_for_earlier_kernel() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// Access to counters in global memory by which blocks order their writes.
__device__ __forceinline__ int load_acquire(const int* at) {
    int x;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(at) : "memory");
    return x;
}
__device__ __forceinline__ void increment_release(int* at) {
    asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(at) : "memory");
}

__device__ __forceinline__ void prefetch_l2(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

__device__ __forceinline__ float exp2_approximate(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Rounds two sums to 16 bits and packs them.
template <typename T>
__device__ __forceinline__ uint32_t rounded_pair(float low, float high) {
    uint32_t pair;
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    } else {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    }
    return pair;
}

// Clusters: blocks on neighbouring multiprocessors that can access each other's shared memory.

__device__ __forceinline__ uint32_t cta_rank_in_cluster() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ __forceinline__ uint32_t ctas_in_cluster() {
    uint32_t blocks;
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
    return blocks;
}

// Barrier of all threads of the cluster. Afterwards their earlier writes to shared memory are visible.
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
}

// The barrier in two parts, for work between them. It orders mbarrier_fence_init and no other writes, which saves a
// fence of global memory.
__device__ __forceinline__ void cluster_arrive_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait;" ::: "memory"); }

// The cluster-window address of the same location in the shared memory of block `rank`.
__device__ __forceinline__ uint32_t map_shared_rank(uint32_t address, uint32_t rank) {
    uint32_t remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
    return remote;
}

__device__ __forceinline__ float4 load_shared_cluster(uint32_t remote) {
    float4 x;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(remote)
                 : "memory");
    return x;
}

__device__ __forceinline__ float load_shared_cluster_float(uint32_t remote) {
    float x;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x) : "r"(remote) : "memory");
    return x;
}
