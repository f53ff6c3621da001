// Instructions that Hopper has and CUDA C++ does not, under readable names: what the files that say
// `// requires: sm_90a` share. Names and semantics are those of the PTX ISA, chapters "mbarrier",
// "cp.async.bulk.tensor" and "wgmma"; addresses of shared memory are 32 bits wide, as PTX takes them.
#pragma once

#include <cuda.h>

#include <type_traits>

#include "common.cuh"

// Once per warp or block

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Registers of each thread of the calling warpgroup, from now on; all its warps must come here.
template <int REGISTERS>
__device__ __forceinline__ void give_up_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS>
__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// __syncthreads for some warps; 0 is taken by __syncthreads itself.
__device__ __forceinline__ void named_barrier(int barrier, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// What this thread wrote to shared memory with ordinary stores, TMA and tensor cores may read after the next barrier.
__device__ __forceinline__ void fence_async_shared() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void store_shared(uint32_t address, float x) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(x) : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t address, float2 x) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x.x), "f"(x.y) : "memory");
}

// A warp writes four 8 x 8 matrices of 16-bit elements: lane l gives in x[i] the elements (l / 4, l % 4 * 2 + 0, 1) of
// matrix i, and in `row` the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void stmatrix(uint32_t row, const uint32_t (&x)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(x[0]), "r"(x[1]),
                 "r"(x[2]), "r"(x[3])
                 : "memory");
}

// Clusters: blocks on neighbouring multiprocessors, which reach each other's shared memory

__device__ __forceinline__ uint32_t cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ __forceinline__ uint32_t cluster_blocks() {
    uint32_t blocks;
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
    return blocks;
}

// Waits for all threads of all blocks; what they wrote to shared memory before can be read after.
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
}

// That in two halves, for what can be done before the others have come. It orders no more than mbarrier_fence_init
// does, which saves a fence of global memory.
__device__ __forceinline__ void cluster_arrive_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait;" ::: "memory"); }

// The same place in the shared memory of the block with that rank.
__device__ __forceinline__ uint32_t cluster_address(uint32_t address, uint32_t rank) {
    uint32_t remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
    return remote;
}

__device__ __forceinline__ float4 load_cluster(uint32_t remote) {
    float4 x;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(remote)
                 : "memory");
    return x;
}

// Launches blocks in clusters of `cluster`, or in none if that is 1: clusters are dealt to the GPCs of the device in
// turn, blocks that are in none by whole GPCs (see tiles.cuh).
template <typename... Parameters, typename... Arguments>
cudaError_t launch_clusters(int cluster, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
                            cudaStream_t stream, Arguments... arguments) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared_bytes));
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {unsigned(cluster), 1, 1};
    const cudaLaunchConfig_t config = {grid, block, shared_bytes, stream, &attribute, cluster > 1};
    cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
    return cudaGetLastError();  // which also forgets it
}

// mbarriers: a phase ends when all arrivals have come, and all bytes that were announced

__device__ __forceinline__ void mbarrier_init(uint32_t barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// After the inits and before the barrier that lets others use them: makes them known to TMA and to other blocks.
__device__ __forceinline__ void mbarrier_fence_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Arrives, and announces bytes that will come by TMA.
__device__ __forceinline__ void mbarrier_expect(uint32_t barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives at the barrier of another block; takes what cluster_address returns. It says that tensor cores have read
// their factors, and orders no writes of this thread: `.release.cluster` would, by a fence of global memory.
__device__ __forceinline__ void mbarrier_arrive_cluster(uint32_t remote) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(remote) : "memory");
}

// Waits until the phase of that parity has ended. Phases have parity 0, 1, 0, ...; the one before the first counts as
// ended, so whoever waits for parity 1 of a fresh barrier goes on at once.
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity) {
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

// TMA: one thread copies a box of a matrix. Elements outside of the matrix are zeros when read and are not written.
// x counts along the contiguous dimension, y along the other.

__device__ __forceinline__ void tma_prefetch(const CUtensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ __forceinline__ void tma_load(uint32_t to, const CUtensorMap* map, int x, int y, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
            to),
        "l"(map), "r"(x), "r"(y), "r"(barrier)
        : "memory");
}

// To the same place in every block whose bit is set in `blocks`, and counted on the barrier there.
__device__ __forceinline__ void tma_load_multicast(uint32_t to, const CUtensorMap* map, int x, int y, uint32_t barrier,
                                                   uint16_t blocks) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
        "l"(map), "r"(x), "r"(y), "r"(barrier), "h"(blocks)
        : "memory");
}

__device__ __forceinline__ void tma_store(const CUtensorMap* map, uint32_t from, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(x),
                 "r"(y), "r"(from)
                 : "memory");
}
__device__ __forceinline__ void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until all but the last `prior` stores of this thread have read their shared memory.
template <int PRIOR>
__device__ __forceinline__ void tma_store_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PRIOR) : "memory");
}

// Describes a matrix of `outer` rows of `inner` elements, `stride` elements apart, and the boxes that it is copied in:
// 128 bytes wide, `box_outer` rows high. In shared memory a row of a box is 128 bytes, and the eight 16-byte chunks of
// row r are exchanged: chunk c lies where chunk c ^ (r % 8) would. So eight rows of one chunk meet all banks.
// False if TMA cannot do it: it wants bases and strides that are multiples of 16 bytes.
inline bool tensor_map(CUtensorMap* map, CUtensorMapDataType type, int element_bytes, const void* base, int64_t inner,
                       int64_t outer, int64_t stride, int box_outer) {
    static decltype(&cuTensorMapEncodeTiled) encode = nullptr;  // in libcuda, which is not linked
    if (encode == nullptr) {
        void* entry = nullptr;
        cudaDriverEntryPointQueryResult found;
        if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found) !=
                cudaSuccess ||
            found != cudaDriverEntryPointSuccess) {
            return false;
        }
        encode = reinterpret_cast<decltype(encode)>(entry);
    }
    const cuuint64_t sizes[] = {cuuint64_t(inner), cuuint64_t(outer)};
    const cuuint64_t strides[] = {cuuint64_t(stride * element_bytes)};
    const cuuint32_t box[] = {cuuint32_t(128 / element_bytes), cuuint32_t(box_outer)}, steps[] = {1, 1};
    return encode(map, type, 2, const_cast<void*>(base), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                  CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// wgmma: a warpgroup (four warps, the first a multiple of four) multiplies 64 x K by K x N, both in shared memory, and
// adds to registers. K is 32 bytes: 32 elements of float8, 16 of 16 bits, or 8 of tf32.

struct Float8 {  // e4m3: 4 bits of exponent, 3 of mantissa, no infinities
    uint8_t bits;
};

// Where an operand lies, as boxes of 128 swizzled bytes; `address` and `far` are multiples of 1024.
//   K-major, along k    rows of the operand are rows of the box. Eight rows take 1024 bytes. The next K elements are
//                       32 bytes further within the row: the hardware swizzles the address that it computes.
//   MN-major, across    rows of the box are k. Eight of them take 1024 bytes, the next K elements lie K rows further,
//                       and `far` bytes away begins the box of the next 128 bytes' worth of rows of the operand.
__device__ __forceinline__ uint64_t wgmma_operand(uint32_t address, int far) {
    constexpr uint64_t SWIZZLE_128 = uint64_t(1) << 62;
    return SWIZZLE_128 | uint64_t(1024 >> 4) << 32 | uint64_t(far >> 4) << 16 | (address & 0x3ffff) >> 4;
}

// Before the first wgmma, and after registers that the next one reads or adds to were written otherwise.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits for all committed groups but the last `prior`.
template <int PRIOR>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PRIOR) : "memory");
}

// Keeps the compiler from reading the sums before the wait that stands above.
template <int COUNT>
__device__ __forceinline__ void wgmma_settle(float (&acc)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(acc[i])::"memory");
}

// The same for registers that a wgmma before that wait reads: they are not put to other use meanwhile.
template <int COUNT>
__device__ __forceinline__ void wgmma_settle(uint32_t (&a)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+r"(a[i])::"memory");
}

// acc += A B; of float8, acc = A B if not ADD. Thread t of the warpgroup holds, of each eight columns 8 j ..., in
// acc[4 j + 0..3] the elements
//   (row, column), (row, column + 1), (row + 8, column), (row + 8, column + 1)
// with row = t / 32 * 16 + t % 32 / 4 and column = 8 j + t % 4 * 2.
#define TEN(d) \
    "%" #d "0, %" #d "1, %" #d "2, %" #d "3, %" #d "4, %" #d "5, %" #d "6, %" #d "7, %" #d "8, %" #d "9, "
#define SUMS_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define SUMS_32 TEN() TEN(1) TEN(2) "%30, %31"
#define SUMS_64 TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) "%60, %61, %62, %63"
#define SUMS_128                                                                        \
    TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6) TEN(7) TEN(8) TEN(9) TEN(10) TEN(11) \
    "%120, %121, %122, %123, %124, %125, %126, %127"
#define ACC_8(i)                                                                                             \
    "+f"(acc[i]), "+f"(acc[i + 1]), "+f"(acc[i + 2]), "+f"(acc[i + 3]), "+f"(acc[i + 4]), "+f"(acc[i + 5]), \
        "+f"(acc[i + 6]), "+f"(acc[i + 7])
#define ACC_32(i) ACC_8(i), ACC_8(i + 8), ACC_8(i + 16), ACC_8(i + 24)
#define ACC_64(i) ACC_32(i), ACC_32(i + 32)
// Operands: the sums, then a and b, then, of float8, whether to add to the sums, and of 16-bit types what is MN-major.
// The ones: add to the sums, change no sign.
#define WGMMA_8(N_, SUMS, A, B, ADD_, ...)                                                                         \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" N_ "k32.f32.e4m3.e4m3 {" SUMS "}, " A ", " B ", " ADD_        \
                 ", 1, 1;"                                                                                         \
                 : __VA_ARGS__                                                                                     \
                 : "l"(a), "l"(b), "n"(int(ADD)))
#define WGMMA_16(N_, TYPE, SUMS, A, B, A_MN_, B_MN_, ...)                                                          \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" N_ "k16.f32." TYPE "." TYPE " {" SUMS "}, " A ", " B          \
                 ", 1, 1, 1, " A_MN_ ", " B_MN_ ";"                                                                \
                 : __VA_ARGS__                                                                                     \
                 : "l"(a), "l"(b), "n"(int(A_MN)), "n"(int(B_MN)))
#define WGMMA_32(N_, SUMS, A, B, ...)                                                                              \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" N_ "k8.f32.tf32.tf32 {" SUMS "}, " A ", " B ", 1, 1, 1;"      \
                 : __VA_ARGS__                                                                                     \
                 : "l"(a), "l"(b))
#define WGMMA(N_, SUMS, A, B, A_MN_, B_MN_, ...)                             \
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {                         \
        WGMMA_16(N_, "bf16", SUMS, A, B, A_MN_, B_MN_, __VA_ARGS__);          \
    } else if constexpr (std::is_same_v<T, __half>) {                         \
        WGMMA_16(N_, "f16", SUMS, A, B, A_MN_, B_MN_, __VA_ARGS__);           \
    } else if constexpr (std::is_same_v<T, Float8>) {                         \
        WGMMA_8(N_, SUMS, A, B, A_MN_, __VA_ARGS__);                          \
    } else {                                                                  \
        WGMMA_32(N_, SUMS, A, B, __VA_ARGS__);                                \
    }

template <typename T, bool A_MN, bool B_MN, bool ADD = true, int COUNT>
__device__ __forceinline__ void wgmma(float (&acc)[COUNT], uint64_t a, uint64_t b) {
    static_assert(COUNT == 8 || COUNT == 32 || COUNT == 64 || COUNT == 128, "N, twice as much, is 16, 64, 128 or 256");
    static_assert(sizeof(T) == 2 || !(A_MN || B_MN), "but for 16 bits both operands are K-major");
    static_assert(sizeof(T) == 1 || ADD, "");
    if constexpr (COUNT == 8) {
        WGMMA("16", SUMS_8, "%8", "%9", "%10", "%11", ACC_8(0));
    } else if constexpr (COUNT == 32) {
        WGMMA("64", SUMS_32, "%32", "%33", "%34", "%35", ACC_32(0));
    } else if constexpr (COUNT == 64) {
        WGMMA("128", SUMS_64, "%64", "%65", "%66", "%67", ACC_64(0));
    } else {
        WGMMA("256", SUMS_128, "%128", "%129", "%130", "%131", ACC_64(0), ACC_64(64));
    }
}

// The same in tf32, with A in registers: with row and t as above, the elements (row, t % 4), (row + 8, t % 4),
// (row, t % 4 + 4), (row + 8, t % 4 + 4). So A, at least, need not be K-major in shared memory.
template <int COUNT>
__device__ __forceinline__ void wgmma(float (&acc)[COUNT], const uint32_t* a, uint64_t b) {
    static_assert(COUNT == 64 || COUNT == 128, "N, twice as much, is 128 or 256");
#define WGMMA_RS(N_, SUMS, A0, A1, A2, A3, B, ...)                                                        \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" N_ "k8.f32.tf32.tf32 {" SUMS "}, {" A0 ", " A1 ", " A2 \
                 ", " A3 "}, " B ", 1, 1, 1;"                                                             \
                 : __VA_ARGS__                                                                            \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
    if constexpr (COUNT == 64) {
        WGMMA_RS("128", SUMS_64, "%64", "%65", "%66", "%67", "%68", ACC_64(0));
    } else {
        WGMMA_RS("256", SUMS_128, "%128", "%129", "%130", "%131", "%132", ACC_64(0), ACC_64(64));
    }
}
