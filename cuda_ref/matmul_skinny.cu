// out[m, n] = sum over k of a[m, k] * b[k, n] for M <= 64: as fast as b can be read
//
// requires: sm_90a
//
// With few rows every number of b is used a few times only, so nothing but reading it takes time. What matters is that
// enough of it is on the way at any time: by Little's law 4.8 TB/s times a microsecond, 36 KB a multiprocessor, and
// more while blocks start and end. Here two blocks share a multiprocessor, each with STAGES tiles of 128 x 64 under
// way, by TMA.
// Measured gain: see docs/ladder.md
//
// wgmma multiplies 64 rows at a time. M has fewer, so the columns of b take their place: out^T = b^T a^T, 128 x M a
// block, and M is filled up with zeros to 16 or 64 only. The columns alone make too few blocks, so a cluster of up to
// eight shares the k of a tile. Each block keeps its sums in shared memory, and then adds up its part of the rows over
// all of them: no workspace, no second kernel, and the order of additions is always the same.
//
// Precision: products of 16 bits are exact, sums float32, rounded once.
//
// Source: PTX ISA, as matmul_wgmma.cu.
#include <algorithm>

#include "hopper.cuh"

constexpr int BLOCK_N = 128, BLOCK_K = 64;
constexpr int ROW_BYTES = 128;                // of a row of a box: 64 elements
constexpr int B_BYTES = BLOCK_N * ROW_BYTES;  // of a stage; as many for both layouts
constexpr int CONSUMERS = 128;                // threads: one warpgroup, and a warp that fetches
constexpr int THREADS = CONSUMERS + 32;
constexpr int PITCH = BLOCK_N + 4;            // floats between rows of sums: 8 n times 4 pairs of m meet 32 banks
constexpr int MAX_CLUSTER = 8;

// ROWS is M, filled up.
template <int ROWS_>
struct Plan {
    static constexpr int ROWS = ROWS_, STAGES = ROWS <= 16 ? 6 : 4;
    static constexpr int STAGE_BYTES = B_BYTES + ROWS * ROW_BYTES;
    static constexpr int BARRIERS = STAGES * STAGE_BYTES, BYTES = 1024 + BARRIERS + 2 * STAGES * 8;
    static_assert(ROWS * PITCH * 4 <= BARRIERS, "the sums take the place of the stages");
};

struct Maps {
    CUtensorMap a, b;
};

// One thread: fills the stages.
template <bool B_MN, typename P>
__device__ __forceinline__ void produce(const Maps& maps, uint32_t shared, int n, int k_begin, int k_end) {
    const uint32_t full = shared + P::BARRIERS, empty = full + P::STAGES * 8;
    int stage = 0;
    uint32_t phase = 0;
#pragma unroll 1
    for (int k = k_begin; k < k_end; ++k) {
        const uint32_t tile = shared + stage * P::STAGE_BYTES, barrier = full + stage * 8;
        mbarrier_wait(empty + stage * 8, phase ^ 1);
        mbarrier_expect(barrier, P::STAGE_BYTES);
        if constexpr (B_MN) {
            tma_load(tile, &maps.b, n, k * BLOCK_K, barrier);
            tma_load(tile + B_BYTES / 2, &maps.b, n + 64, k * BLOCK_K, barrier);
        } else {
            tma_load(tile, &maps.b, k * BLOCK_K, n, barrier);
        }
        tma_load(tile + B_BYTES, &maps.a, k * BLOCK_K, 0, barrier);
        if (++stage == P::STAGES) stage = 0, phase ^= 1;
    }
}

// A warpgroup: acc[h] = columns 64 h ... of the tile of b, times a, over k_begin ... k_end.
template <typename T, bool B_MN, typename P>
__device__ __forceinline__ void multiply(float (&acc)[2][P::ROWS / 2], uint32_t shared, int k_begin, int k_end) {
    const uint32_t full = shared + P::BARRIERS, empty = full + P::STAGES * 8;
    int stage = 0, before = -1;  // the one before is still being read
    uint32_t phase = 0;
#pragma unroll 1
    for (int k = k_begin; k < k_end; ++k) {
        const uint32_t tile = shared + stage * P::STAGE_BYTES;
        mbarrier_wait(full + stage * 8, phase);
        wgmma_fence();
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const uint64_t b = wgmma_operand(tile + h * (B_BYTES / 2), 0), a = wgmma_operand(tile + B_BYTES, 0);
#pragma unroll
            for (int part = 0; part < 4; ++part) {  // 16 k each
                wgmma<T, B_MN, false>(acc[h], b + part * ((B_MN ? 16 * ROW_BYTES : 32) >> 4), a + part * (32 >> 4));
            }
        }
        wgmma_commit();
        wgmma_wait<1>();
        if (before >= 0 && threadIdx.x == 0) mbarrier_arrive(empty + before * 8);
        before = stage;
        if (++stage == P::STAGES) stage = 0, phase ^= 1;
    }
    wgmma_wait<0>();
    wgmma_settle(acc[0]);
    wgmma_settle(acc[1]);
}

// Puts the sums into shared memory as rows of out.
template <int ROWS>
__device__ __forceinline__ void keep(float* sums, const float (&acc)[2][ROWS / 2]) {
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

template <typename T, bool B_MN, typename P>
__global__ void __launch_bounds__(THREADS, 2)
    matmul_skinny(const __grid_constant__ Maps maps, T* __restrict__ out, int M, int N, int K) {
    extern __shared__ char raw[];
    char* const stages = raw + (-shared_address(raw) & 1023);
    const uint32_t shared = shared_address(stages);
    const int rank = cluster_rank(), blocks = cluster_blocks();
    const int n0 = blockIdx.x / blocks * BLOCK_N, steps = ceil_div(K, BLOCK_K);
    const int k_begin = int(int64_t(steps) * rank / blocks), k_end = int(int64_t(steps) * (rank + 1) / blocks);

    if (threadIdx.x == 0) {
        for (int stage = 0; stage < P::STAGES; ++stage) {
            mbarrier_init(shared + P::BARRIERS + stage * 8, 1);
            mbarrier_init(shared + P::BARRIERS + (P::STAGES + stage) * 8, 1);
        }
        mbarrier_fence_init();
    }
    __syncthreads();
    if (threadIdx.x >= CONSUMERS) {
        if (threadIdx.x == CONSUMERS) produce<B_MN, P>(maps, shared, n0, k_begin, k_end);
        __syncwarp();
    } else {
        float acc[2][P::ROWS / 2] = {};
        multiply<T, B_MN, P>(acc, shared, k_begin, k_end);
        named_barrier(1, CONSUMERS);  // all products have read the stages
        keep<P::ROWS>(reinterpret_cast<float*>(stages), acc);
    }
    cluster_sync();

    // Four neighbours of a row at a time; the quads of the M rows are divided among all threads of the cluster.
    const bool packed = N % 4 == 0;
    for (int i = rank * THREADS + threadIdx.x; i < M * (BLOCK_N / 4); i += blocks * THREADS) {
        const int m = i / (BLOCK_N / 4), column = i % (BLOCK_N / 4) * 4, n = n0 + column;
        float4 sum = {};
        for (int block = 0; block < blocks; ++block) {
            const float4 x = load_cluster(cluster_address(shared + (m * PITCH + column) * 4, block));
            sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
        }
        const Pack<T, 4> quad = {from_float<T>(sum.x), from_float<T>(sum.y), from_float<T>(sum.z),
                                 from_float<T>(sum.w)};
        T* const at = out + int64_t(m) * N + n;
        if (packed) {
            if (n < N) *reinterpret_cast<Pack<T, 4>*>(at) = quad;
        } else {
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                if (n + c < N) at[c] = quad[c];
            }
        }
    }
    cluster_sync();  // a block must not be gone while others read its sums
}

template <typename T, bool B_MN, typename P>
cudaError_t launch(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K, int64_t a_stride,
                   int64_t b_stride, cudaStream_t stream, LaunchRecord* record) {
    const auto type = std::is_same_v<T, __half> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    Maps maps;
    if (!tensor_map(&maps.a, type, sizeof(T), a, K, M, a_stride, P::ROWS) ||
        !tensor_map(&maps.b, type, sizeof(T), b, B_MN ? N : K, B_MN ? K : N, b_stride, B_MN ? BLOCK_K : BLOCK_N)) {
        return cudaErrorInvalidValue;
    }
    int device, multiprocessors;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    // A block a multiprocessor at least: with more, on an H200, what starting and joining them costs outweighs what is
    // gained at the end (0.92 of cuBLAS against 0.85 with three). But not less than four steps each.
    const int64_t tiles = ceil_div<int64_t>(N, BLOCK_N), steps = ceil_div<int64_t>(K, BLOCK_K);
    unsigned cluster = 1;
    while (cluster < MAX_CLUSTER && tiles * cluster < multiprocessors && steps >= 8 * cluster) cluster *= 2;

    const auto kernel = matmul_skinny<T, B_MN, P>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, P::BYTES);
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {cluster, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(unsigned(tiles * cluster));
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = P::BYTES;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    record->set(config.gridDim, config.blockDim, P::BYTES);
    cudaLaunchKernelEx(&config, kernel, maps, static_cast<T*>(out), int(M), int(N), int(K));
    return cudaGetLastError();
}

// a[m, k] lies at a + m * a_stride + k; b[k, n] at b + n + k * b_stride if b_mn, else at b + n * b_stride + k.
extern "C" int matmul_skinny(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K, int64_t a_stride,
                             int64_t b_mn, int64_t b_stride, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    auto run = [&](auto zero, auto plan) {
        using T = decltype(zero);
        using P = decltype(plan);
        return b_mn ? launch<T, true, P>(a, b, out, M, N, K, a_stride, b_stride, stream, record)
                    : launch<T, false, P>(a, b, out, M, N, K, a_stride, b_stride, stream, record);
    };
    auto by_rows = [&](auto zero) { return M <= 16 ? run(zero, Plan<16>()) : run(zero, Plan<64>()); };
    switch (dtype) {
        case FLOAT16: return by_rows(__half());
        case BFLOAT16: return by_rows(__nv_bfloat16());
        default: return cudaErrorInvalidValue;
    }
}
