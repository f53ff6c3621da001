// out[m, n] = sum over k of a[m, k] * b[k, n], 16 bits, on Hopper's tensor cores
//
// requires: sm_90a
//
// A block of two warpgroups computes a tile of 128 x 256 elements of out, a warpgroup 64 rows of it.
//
// Adds to async_copies.cu:
//   - TMA. One thread starts the copy of a whole tile; no thread computes addresses or waits for it. The copy swizzles
//     the tile, fills elements outside the matrix with zeros, and counts its bytes on an mbarrier in shared memory.
//   - wgmma. A warpgroup (four warps) multiplies 64 x 16 by 16 x 256. It reads both operands from shared memory and
//     keeps the sums in registers. It is asynchronous too: the next products are issued before the last have ended.
//
// Tiles of 64 k pass through a ring of STAGES stages. Thread 0 fills all stages at the start. In each step all threads
// wait for the mbarrier of one stage, issue its products, and wait until the products of the previous step have ended.
// After __syncthreads both warpgroups have read the previous stage, and thread 0 starts the next copy to it.
// The mbarrier of a stage ends one phase per tile that arrives there: the wait for tile n of a stage, from 0, is for
// parity n % 2, which PipelineState keeps.
//
// All warps copy, multiply and synchronize here. warp_specialized.cu separates these jobs.
// Speed: docs/ladder.md
//
// Precision: products of 16 bits are exact, sums float32, rounded once.
//
// Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions" and "cp.async.bulk.tensor"; the loop is that of
// CUTLASS 3 without specialized warps ("sm90_mma_tma_gmma_ss").
#include "hopper/epilogue.cuh"
#include "common/launch.cuh"
#include "hopper/mbarrier.cuh"
#include "hopper/wgmma.cuh"

constexpr int WARPGROUPS = 2, THREADS = WARPGROUPS * WARPGROUP;
constexpr int BLOCK_M = WARPGROUPS * 64, BLOCK_N = 256, BLOCK_K = ROW_BYTES / 2, STAGES = 4;
constexpr int A_BYTES = BLOCK_M * ROW_BYTES, STAGE_BYTES = A_BYTES + BLOCK_N * ROW_BYTES;
constexpr int BARRIERS = STAGES * STAGE_BYTES;  // offset in shared memory, after the stages
constexpr int SHARED_BYTES = BOX_ALIGNMENT + BARRIERS + STAGES * MBARRIER_BYTES;
static_assert(SHARED_BYTES <= MAX_SHARED_BYTES, "");
constexpr int GROUP_M = 8;

// By one thread: starts the copies of step `step` of the tile at (m, n) to a stage, whose barrier counts their bytes.
template <typename T, bool A_MN, bool B_MN>
__device__ __forceinline__ void load_stage(const OperandMaps& maps, uint32_t shared, int stage, int m, int n,
                                           int step) {
    const uint32_t a = shared + stage * STAGE_BYTES, b = a + A_BYTES;
    const uint32_t barrier = shared + BARRIERS + stage * MBARRIER_BYTES;
    mbarrier_arrive_expect_tx(barrier, STAGE_BYTES);
    load_operand<T, A_MN, BLOCK_M>(a, m, step * BLOCK_K,
                                   [&](uint32_t to, int x, int y) { tma_load(to, &maps.a, x, y, barrier); });
    load_operand<T, B_MN, BLOCK_N>(b, n, step * BLOCK_K,
                                   [&](uint32_t to, int x, int y) { tma_load(to, &maps.b, x, y, barrier); });
}

template <typename T, bool A_MN, bool B_MN>
__global__ void __launch_bounds__(THREADS, 1)
    matmul_tma_wgmma(const __grid_constant__ OperandMaps maps, const GroupedTileScheduler<GROUP_M> tiles,
                     T* __restrict__ out, int M, int N, int K) {
    extern __shared__ char raw[];
    const uint32_t start = shared_address(raw), shared = start + (-start & (BOX_ALIGNMENT - 1));
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP, 0);  // warp-uniform for the compiler
    const TileCoordinate tile = tiles[blockIdx.x];
    const int m = tile.m * BLOCK_M, n = tile.n * BLOCK_N, steps = ceil_div(K, BLOCK_K);

    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) mbarrier_init(shared + BARRIERS + stage * MBARRIER_BYTES, 1);
        mbarrier_fence_init();
        for (int step = 0; step < min(steps, STAGES); ++step) load_stage<T, A_MN, B_MN>(maps, shared, step, m, n, step);
    }
    __syncthreads();  // the barriers are initialized

    float acc[BLOCK_N / 2] = {};
    PipelineState<STAGES> state;
    int previous = 0;  // stage of the previous step
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        const uint32_t a = shared + state.stage * STAGE_BYTES, b = a + A_BYTES;
        mbarrier_wait_parity(shared + BARRIERS + state.stage * MBARRIER_BYTES, state.phase);
        wgmma_fence();
        wgmma_stage<T, A_MN, B_MN>(acc, wgmma_descriptor(a + warpgroup * BOX_BYTES, BOX_BYTES),
                                   wgmma_descriptor(b, BOX_BYTES));
        wgmma_commit_group();
        wgmma_wait_group<1>();  // the products of the previous step have ended
        __syncthreads();        // in both warpgroups
        const int next = step - 1 + STAGES;
        if (threadIdx.x == 0 && step > 0 && next < steps) load_stage<T, A_MN, B_MN>(maps, shared, previous, m, n, next);
        previous = state.stage;
        state.advance();
    }
    wgmma_wait_group<0>();
    warpgroup_fence_operand(acc);
    store_from_registers(out, acc, threadIdx.x % WARPGROUP, m + warpgroup * 64, n, M, N);
}

// a_mn: a[m, k] is at a + m + k * a_stride, otherwise at a + m * a_stride + k; b_mn: the same with n.
extern "C" int matmul_tma_wgmma(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K, int64_t a_mn,
                                int64_t a_stride, int64_t b_mn, int64_t b_stride, int64_t dtype, cudaStream_t stream,
                                LaunchRecord* record) {
    return dispatch_16_bit(dtype, a_mn, b_mn, [&](auto zero, auto a_is_mn, auto b_is_mn) {
        const auto kernel = matmul_tma_wgmma<decltype(zero), decltype(a_is_mn)::value, decltype(b_is_mn)::value>;
        return launch_tiles<BLOCK_M, BLOCK_N>(kernel, {a, a_mn != 0, M, a_stride}, {b, b_mn != 0, N, b_stride}, out, K,
                                              THREADS, SHARED_BYTES, stream, record);
    });
}
