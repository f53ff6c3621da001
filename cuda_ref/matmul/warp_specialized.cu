// out[m, n] = sum over k of a[m, k] * b[k, n], 16 bits, on Hopper's tensor cores, with specialized warps
//
// requires: sm_90a
//
// Adds specialized warps to tma_wgmma.cu. One thread of a producer warpgroup only starts copies; two consumer
// warpgroups only multiply, 64 rows of the tile of 128 x 256 each. The loop contains no barrier of the whole block:
// each consumer continues as soon as its own operands have arrived, and a copy starts as soon as its stage is free.
//
// Each stage of the ring has two mbarriers.
//   full    The producer announces the bytes of the stage, TMA counts them. Consumers wait for it.
//   empty   Each consumer arrives when its products have read the stage. The producer waits for it before it loads.
// Producer and consumers step through the ring separately (PipelineState). At a given stage a consumer waits for parity
// `phase` of full, the producer for parity `phase ^ 1` of empty: the phase before the first counts as ended, so that
// the producer does not wait in its first turn.
//
// setmaxnreg divides the registers. 65,536 registers are 168 for each of 384 threads. Threads of the producer keep 40.
// Threads of the consumers get 232; 128 of these hold sums.
//
// wgmma.cu continues: persistent blocks, clusters, other tiles and types.
//
// Speed: docs/ladder.md
//
// Precision: products of 16 bits are exact, sums float32, rounded once.
//
// Source: PTX ISA, "mbarrier" and "setmaxnreg"; the roles of the warps are those of CUTLASS 3 ("warp-specialized
// cooperative" kernels).
#include "hopper/epilogue.cuh"
#include "common/launch.cuh"
#include "hopper/mbarrier.cuh"
#include "hopper/wgmma.cuh"

constexpr int CONSUMERS = 2, PRODUCER = CONSUMERS * WARPGROUP, THREADS = PRODUCER + WARPGROUP;
constexpr int BLOCK_M = CONSUMERS * 64, BLOCK_N = 256, BLOCK_K = ROW_BYTES / 2, STAGES = 4;
constexpr int A_BYTES = BLOCK_M * ROW_BYTES, STAGE_BYTES = A_BYTES + BLOCK_N * ROW_BYTES;
constexpr int FULL_BARRIERS = STAGES * STAGE_BYTES;  // offsets in shared memory, after the stages
constexpr int EMPTY_BARRIERS = FULL_BARRIERS + STAGES * MBARRIER_BYTES;
constexpr int SHARED_BYTES = BOX_ALIGNMENT + EMPTY_BARRIERS + STAGES * MBARRIER_BYTES;
static_assert(SHARED_BYTES <= MAX_SHARED_BYTES, "");
constexpr int GROUP_M = 8;

// The producer thread: loads all steps of the tile at (m, n), each as soon as its stage is free.
template <typename T, bool A_MN, bool B_MN>
__device__ __forceinline__ void produce(const OperandMaps& maps, uint32_t shared, int m, int n, int steps) {
    PipelineState<STAGES> state;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        const uint32_t a = shared + state.stage * STAGE_BYTES, b = a + A_BYTES;
        const uint32_t full = shared + FULL_BARRIERS + state.stage * MBARRIER_BYTES;
        mbarrier_wait_parity(shared + EMPTY_BARRIERS + state.stage * MBARRIER_BYTES, state.phase ^ 1);
        mbarrier_arrive_expect_tx(full, STAGE_BYTES);
        load_operand<T, A_MN, BLOCK_M>(a, m, step * BLOCK_K,
                                       [&](uint32_t to, int x, int y) { tma_load(to, &maps.a, x, y, full); });
        load_operand<T, B_MN, BLOCK_N>(b, n, step * BLOCK_K,
                                       [&](uint32_t to, int x, int y) { tma_load(to, &maps.b, x, y, full); });
        state.advance();
    }
}

// A consumer warpgroup: acc = its 64 rows of the tile.
template <typename T, bool A_MN, bool B_MN>
__device__ __forceinline__ void multiply(float (&acc)[BLOCK_N / 2], uint32_t shared, int consumer, int steps) {
    PipelineState<STAGES> state;
    int previous = -1;  // stage that wgmma may still be reading
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        const uint32_t a = shared + state.stage * STAGE_BYTES, b = a + A_BYTES;
        mbarrier_wait_parity(shared + FULL_BARRIERS + state.stage * MBARRIER_BYTES, state.phase);
        wgmma_fence();
        wgmma_stage<T, A_MN, B_MN>(acc, wgmma_descriptor(a + consumer * BOX_BYTES, BOX_BYTES),
                                   wgmma_descriptor(b, BOX_BYTES));
        wgmma_commit_group();
        wgmma_wait_group<1>();  // the products of the previous step have ended: its stage is free
        if (previous >= 0 && threadIdx.x % WARPGROUP == 0) {
            mbarrier_arrive(shared + EMPTY_BARRIERS + previous * MBARRIER_BYTES);
        }
        previous = state.stage;
        state.advance();
    }
    wgmma_wait_group<0>();
    warpgroup_fence_operand(acc);
}

template <typename T, bool A_MN, bool B_MN>
__global__ void __launch_bounds__(THREADS, 1)
    matmul_warp_specialized(const __grid_constant__ OperandMaps maps, const GroupedTileScheduler<GROUP_M> tiles,
                            T* __restrict__ out, int M, int N, int K) {
    extern __shared__ char raw[];
    const uint32_t start = shared_address(raw), shared = start + (-start & (BOX_ALIGNMENT - 1));
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP, 0);  // warp-uniform for the compiler
    const TileCoordinate tile = tiles[blockIdx.x];
    const int m = tile.m * BLOCK_M, n = tile.n * BLOCK_N, steps = ceil_div(K, BLOCK_K);

    if (threadIdx.x == PRODUCER) {
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(shared + FULL_BARRIERS + stage * MBARRIER_BYTES, 1);
            mbarrier_init(shared + EMPTY_BARRIERS + stage * MBARRIER_BYTES, CONSUMERS);
        }
        mbarrier_fence_init();
    }
    __syncthreads();  // the barriers are initialized

    if (warpgroup == CONSUMERS) {
        setmaxnreg_dec<40>();
        if (threadIdx.x == PRODUCER) produce<T, A_MN, B_MN>(maps, shared, m, n, steps);
    } else {
        setmaxnreg_inc<232>();
        float acc[BLOCK_N / 2] = {};
        multiply<T, A_MN, B_MN>(acc, shared, warpgroup, steps);
        store_from_registers(out, acc, threadIdx.x % WARPGROUP, m + warpgroup * 64, n, M, N);
    }
}

// a_mn: a[m, k] is at a + m + k * a_stride, otherwise at a + m * a_stride + k; b_mn: the same with n.
extern "C" int matmul_warp_specialized(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K,
                                       int64_t a_mn, int64_t a_stride, int64_t b_mn, int64_t b_stride, int64_t dtype,
                                       cudaStream_t stream, LaunchRecord* record) {
    return dispatch_16_bit(dtype, a_mn, b_mn, [&](auto zero, auto a_is_mn, auto b_is_mn) {
        const auto kernel = matmul_warp_specialized<decltype(zero), decltype(a_is_mn)::value, decltype(b_is_mn)::value>;
        return launch_tiles<BLOCK_M, BLOCK_N>(kernel, {a, a_mn != 0, M, a_stride}, {b, b_mn != 0, N, b_stride}, out, K,
                                              THREADS, SHARED_BYTES, stream, record);
    });
}
