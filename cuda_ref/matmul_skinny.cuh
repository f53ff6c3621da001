// The matmul kernel for few rows, and its launch. What it does: matmul_skinny.cu.
#pragma once

#include "launch.cuh"
#include "mbarrier.cuh"
#include "wgmma.cuh"

constexpr int BLOCK_N = 128, BLOCK_K = 64;
constexpr int B_BYTES = BLOCK_N * ROW_BYTES;  // of a stage, in both layouts
constexpr int CONSUMERS = WARPGROUP, THREADS = CONSUMERS + 32;  // a consumer warpgroup and a producer warp
constexpr int PITCH = BLOCK_N + 4;  // floats between rows of sums; a warp stores 8 n of 4 pairs of m to 32 banks
constexpr int MAX_CLUSTER = 8;

// What becomes of a sum of column n before it is rounded.
struct TheSum {
    __device__ __forceinline__ float operator()(float sum, int) const { return sum; }
};

// ROWS is M, padded.
template <int ROWS_>
struct SkinnyConfig {
    static constexpr int ROWS = ROWS_, STAGES = ROWS <= 16 ? 6 : 4;
    static constexpr int STAGE_BYTES = B_BYTES + ROWS * ROW_BYTES;
    static constexpr int FULL_BARRIERS = STAGES * STAGE_BYTES;
    static constexpr int EMPTY_BARRIERS = FULL_BARRIERS + STAGES * MBARRIER_BYTES;
    static constexpr int SHARED_BYTES = BOX_ALIGNMENT + EMPTY_BARRIERS + STAGES * MBARRIER_BYTES;
    static_assert(ROWS * PITCH * 4 <= FULL_BARRIERS, "the sums overwrite the stages");
};

// The producer thread.
template <bool B_MN, typename C>
__device__ __forceinline__ void produce(const OperandMaps& maps, uint32_t shared, int n, int k_begin, int k_end) {
    const uint32_t full = shared + C::FULL_BARRIERS, empty = shared + C::EMPTY_BARRIERS;
    int stage = 0;
    uint32_t phase = 0;
#pragma unroll 1
    for (int k = k_begin; k < k_end; ++k) {
        const uint32_t tile = shared + stage * C::STAGE_BYTES, barrier = full + stage * MBARRIER_BYTES;
        mbarrier_wait_parity(empty + stage * MBARRIER_BYTES, phase ^ 1);
        mbarrier_arrive_expect_tx(barrier, C::STAGE_BYTES);
        if constexpr (B_MN) {
            tma_load(tile, &maps.b, n, k * BLOCK_K, barrier);
            tma_load(tile + B_BYTES / 2, &maps.b, n + 64, k * BLOCK_K, barrier);
        } else {
            tma_load(tile, &maps.b, k * BLOCK_K, n, barrier);
        }
        tma_load(tile + B_BYTES, &maps.a, k * BLOCK_K, 0, barrier);
        if (++stage == C::STAGES) stage = 0, phase ^= 1;
    }
}

// The consumer warpgroup: acc[h] = columns 64 h ... 64 h + 63 of the tile of b, times a, over steps k_begin ... k_end.
template <typename T, bool B_MN, typename C>
__device__ __forceinline__ void multiply(float (&acc)[2][C::ROWS / 2], uint32_t shared, int k_begin, int k_end) {
    const uint32_t full = shared + C::FULL_BARRIERS, empty = shared + C::EMPTY_BARRIERS;
    int stage = 0, previous = -1;  // stage that wgmma may still be reading
    uint32_t phase = 0;
#pragma unroll 1
    for (int k = k_begin; k < k_end; ++k) {
        const uint32_t tile = shared + stage * C::STAGE_BYTES;
        mbarrier_wait_parity(full + stage * MBARRIER_BYTES, phase);
        wgmma_fence();
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const uint64_t b = wgmma_descriptor(tile + h * (B_BYTES / 2), 0), a = wgmma_descriptor(tile + B_BYTES, 0);
            wgmma_stage<T, B_MN, false>(acc[h], b, a);
        }
        wgmma_commit_group();
        wgmma_wait_group<1>();
        if (previous >= 0 && threadIdx.x == 0) mbarrier_arrive(empty + previous * MBARRIER_BYTES);
        previous = stage;
        if (++stage == C::STAGES) stage = 0, phase ^= 1;
    }
    wgmma_wait_group<0>();
    warpgroup_fence_operand(acc[0]);
    warpgroup_fence_operand(acc[1]);
}

// Writes the sums to shared memory as rows of out.
template <int ROWS>
__device__ __forceinline__ void write_sums(float* sums, const float (&acc)[2][ROWS / 2]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int i = 0; i < ROWS / 2; ++i) {
            const int n = h * 64 + threadIdx.x / 32 * 16 + lane / 4 + i % 4 / 2 * 8;
            const int m = i / 4 * 8 + lane % 4 * 2 + i % 2;
            sums[m * PITCH + n] = acc[h][i];
        }
    }
}

template <typename T, bool B_MN, typename C, typename Finish>
__global__ void __launch_bounds__(THREADS, 2)
    matmul_skinny(const __grid_constant__ OperandMaps maps, T* __restrict__ out, int M, int N, int K,
                  const Finish finish) {
    extern __shared__ char raw[];
    char* const stages = raw + (-shared_address(raw) & (BOX_ALIGNMENT - 1));
    const uint32_t shared = shared_address(stages);
    const int rank = cta_rank_in_cluster(), blocks = ctas_in_cluster();
    const int n0 = blockIdx.x / blocks * BLOCK_N, steps = ceil_div(K, BLOCK_K);
    const int k_begin = int(int64_t(steps) * rank / blocks), k_end = int(int64_t(steps) * (rank + 1) / blocks);

    if (threadIdx.x == 0) {
        for (int stage = 0; stage < C::STAGES; ++stage) {
            mbarrier_init(shared + C::FULL_BARRIERS + stage * MBARRIER_BYTES, 1);
            mbarrier_init(shared + C::EMPTY_BARRIERS + stage * MBARRIER_BYTES, 1);
        }
        mbarrier_fence_init();
    }
    __syncthreads();
    if (threadIdx.x >= CONSUMERS) {
        if (threadIdx.x == CONSUMERS) produce<B_MN, C>(maps, shared, n0, k_begin, k_end);
        __syncwarp();
    } else {
        float acc[2][C::ROWS / 2] = {};
        multiply<T, B_MN, C>(acc, shared, k_begin, k_end);
        named_barrier_sync(1, CONSUMERS);  // all products have read the stages
        write_sums<C::ROWS>(reinterpret_cast<float*>(stages), acc);
    }
    cluster_sync();

    // Groups of four neighbours of a row; those of the M rows are divided among all threads of the cluster.
    const bool packed = N % 4 == 0;
    for (int i = rank * THREADS + threadIdx.x; i < M * (BLOCK_N / 4); i += blocks * THREADS) {
        const int m = i / (BLOCK_N / 4), column = i % (BLOCK_N / 4) * 4, n = n0 + column;
        float4 sum = {};
        for (int block = 0; block < blocks; ++block) {
            const float4 x = load_shared_cluster(map_shared_rank(shared + (m * PITCH + column) * 4, block));
            sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
        }
        if (n >= N) continue;
        const int last = N - 1;  // of an incomplete group, neighbours beyond the row repeat its last column
        const Pack<T, 4> quad = {
            from_float<T>(finish(sum.x, n)), from_float<T>(finish(sum.y, min(n + 1, last))),
            from_float<T>(finish(sum.z, min(n + 2, last))), from_float<T>(finish(sum.w, min(n + 3, last)))};
        T* const at = out + int64_t(m) * N + n;
        if (packed) {
            *reinterpret_cast<Pack<T, 4>*>(at) = quad;
        } else {
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                if (n + c < N) at[c] = quad[c];
            }
        }
    }
    cluster_sync();  // a block must not exit while others read its sums
}

template <typename T, bool B_MN, typename C, typename Finish>
cudaError_t launch(const MatrixOperand& a, const MatrixOperand& b, void* out, int64_t K, const Finish& finish,
                   cudaStream_t stream, LaunchRecord* record) {
    OperandMaps maps;
    if (!encode_operand_map<T>(&maps.a, a, K, C::ROWS) || !encode_operand_map<T>(&maps.b, b, K, BLOCK_N)) {
        return cudaErrorInvalidValue;
    }
    // At least one block a multiprocessor, but at least four steps for each: on an H200, starting and joining more
    // blocks costs more than their bytes in flight gain (0.92 of cuBLAS, 0.85 with three a multiprocessor).
    const int64_t tiles = ceil_div<int64_t>(b.rows, BLOCK_N), steps = ceil_div<int64_t>(K, BLOCK_K);
    const int multiprocessors = multiprocessor_count();
    unsigned cluster = 1;
    while (cluster < MAX_CLUSTER && tiles * cluster < multiprocessors && steps >= 8 * cluster) cluster *= 2;
    return launch_clusters(int(cluster), matmul_skinny<T, B_MN, C, Finish>, dim3(unsigned(tiles * cluster)), THREADS,
                           C::SHARED_BYTES, stream, record, maps, static_cast<T*>(out), a.rows, b.rows, K, finish);
}

// By the configuration for M rows.
template <typename T, bool B_MN, typename Finish>
cudaError_t launch_skinny(const MatrixOperand& a, const MatrixOperand& b, void* out, int64_t K, const Finish& finish,
                          cudaStream_t stream, LaunchRecord* record) {
    return a.rows <= 16 ? launch<T, B_MN, SkinnyConfig<16>>(a, b, out, K, finish, stream, record)
                        : launch<T, B_MN, SkinnyConfig<64>>(a, b, out, K, finish, stream, record);
}
