// out[m, n] = sum over k of a[m, k] * b[k, n] with float32 accuracy, on Hopper's bfloat16 tensor cores
//
// requires: sm_90a
//
// A float32 has 24 significant bits, a bfloat16 has 8. Every number is written as the exact sum of three bfloat16, and
//   a b = a1 b1 + (a1 b2 + a2 b1) + (a1 b3 + a2 b2 + a3 b1)
// drops only products below 2^-24 of a b. Hopper's tensor cores multiply 16 times as many bfloat16 per cycle as its
// CUDA cores multiply float32, so the six products take 6/16 of the time.
//
// The first kernel, split_rows, splits both operands. It scales each row of a and each column of b by a power of two
// that brings its largest element to [1, 2), so that the parts of small numbers stay above the subnormal range and sums
// stay below infinity. It reads any strides and writes rows of k. In a row the three parts of 16 terms (the k of one
// wgmma) are neighbours:
//   bytes     0        32       64       96       128      160      192
//   row       1st k0   2nd k0   3rd k0   1st k16  2nd k16  3rd k16  1st k32 ...
// A stage of the ring in shared memory holds 128 bytes of each row, so that three stages hold 64 k. Data arrives in the
// order of its use, and a stage is free again after a few products.
//
// The second kernel is built like wgmma.cu: a producer thread, a ring of stages guarded by mbarriers, consumer
// warpgroups of 64 rows each, clusters of two that share b, persistent blocks. Each part is used in two products on
// average, so tiles of 128 x 128 suffice. They leave registers for three sums of each output.
//
// Precision. Tensor cores add in float32 but truncate towards zero; over a long K this would lose more than rounding to
// nearest. So they add only 64 of the leading products at a time, from zero, and `acc` adds these sums with rounding
// while the tensor cores compute other products. The lower products are summed separately over all of K: they are 2^-8
// of the leading ones, and so is the error of their truncation.
//
// Speed: docs/ladder.md
//
// Source: bf16x3 of Henry, Tang and Heinecke, "Leveraging the bfloat16 artificial intelligence datatype for
// higher-precision computations", ARITH 2019; additions outside the tensor cores after Ootomo and Yokota, "Recovering
// single precision accuracy from tensor cores", IJHPCA 36, 2022; instructions: PTX ISA, as in wgmma.cu.
#include "hopper/persistent.cuh"
#include "hopper/wgmma.cuh"

constexpr int PARTS = 3, GROUP_K = 16;            // terms of one wgmma
constexpr int STEP_K = 64, STEP_STAGES = 3;       // terms of a step (leading products start from zero); its stages
constexpr int STAGE_ELEMENTS = ROW_BYTES / 2;     // bfloat16 elements in a row of a stage
constexpr int BLOCK_N = 128, SUMS = BLOCK_N / 2;  // columns of a tile; sums of a thread
static_assert(STEP_K * PARTS == STEP_STAGES * STAGE_ELEMENTS, "a step is whole stages");

using Large = TileConfig<2, BLOCK_N, 7, 2, 8, 0>;
using Small = TileConfig<1, BLOCK_N, 9, 1, 4, 0>;
static_assert(Large::STAGES > STEP_STAGES && Small::STAGES > STEP_STAGES, "");

// The rows of a, or the columns of b.
struct Rows {
    const float* data;
    int64_t count, stride, k_stride;
};

constexpr int SPLIT_ROWS = 16, SPLIT_K = 128;  // rows and terms of a tile
constexpr int SPLIT_THREADS = SPLIT_ROWS * 16;
constexpr int PER_THREAD = SPLIT_ROWS * SPLIT_K / SPLIT_THREADS;  // elements of a tile per thread

// 2^exponent, for exponents of normal numbers.
__device__ __forceinline__ float power_of_two(int exponent) { return __int_as_float((exponent + 127) << 23); }

// A block splits SPLIT_ROWS rows. It reads them twice: for the largest element, then backwards, so that the caches
// still hold the first reads. `scales` gets two factors per row that undo its scaling, since 2^-149 x 2^-149 is no
// float32. Infinities are not scaled, and the lower parts of infinities and NaN are zero. Elements from K up to a
// multiple of 16 are zero.
__global__ void __launch_bounds__(SPLIT_THREADS, 4)
    split_rows(Rows a, Rows b, int64_t K, __nv_bfloat16* __restrict__ parts, float2* __restrict__ scales) {
    __shared__ uint32_t largest[SPLIT_ROWS];
    alignas(16) __shared__ float tile[SPLIT_ROWS][SPLIT_K + 4];
    const int64_t a_blocks = ceil_div<int64_t>(a.count, SPLIT_ROWS);
    const bool is_b = blockIdx.x >= a_blocks;
    const Rows rows = is_b ? b : a;
    const int64_t first = (blockIdx.x - (is_b ? a_blocks : 0)) * SPLIT_ROWS, out = is_b ? a.count : 0;
    const int64_t groups = ceil_div<int64_t>(K, GROUP_K);
    const int high = threadIdx.x / 16, low = threadIdx.x % 16;

    // Successive threads load along the dimension with the smaller stride.
    const bool along_k = rows.k_stride <= rows.stride;
    const int row = along_k ? high : low, k_first = along_k ? low : high;
    const bool inside = first + row < rows.count;
    const float* const x = rows.data + (first + row) * rows.stride;
    auto load = [&](float(&to)[PER_THREAD], int64_t k) {
#pragma unroll
        for (int i = 0; i < PER_THREAD; ++i) {
            const int64_t at = k + k_first + i * 16;
            to[i] = inside && at < K ? x[at * rows.k_stride] : 0.0f;
        }
    };

    float loaded[PER_THREAD], most = 0.0f;
    if (threadIdx.x < SPLIT_ROWS) largest[threadIdx.x] = 0;
#pragma unroll 2
    for (int64_t k = 0; k < K; k += SPLIT_K) {
        load(loaded, k);
#pragma unroll
        for (int i = 0; i < PER_THREAD; ++i) {
            most = fabsf(loaded[i]) < INFINITY ? fmaxf(most, fabsf(loaded[i])) : most;
        }
    }
    int64_t k = (K - 1) / SPLIT_K * SPLIT_K;
    load(loaded, k);
    __syncthreads();
    atomicMax(&largest[row], __float_as_uint(most));  // non-negative floats are ordered like their bits
    __syncthreads();

    // From here on a thread owns eight successive k of row `high`.
    const float size = __uint_as_float(largest[high]);
    const int exponent = size > 0.0f ? ilogbf(size) : 0, half = -exponent >> 1;
    const float down = power_of_two(half), down_more = power_of_two(-exponent - half);
    const bool exists = first + high < rows.count;
    if (exists && low == 0) {
        scales[out + first + high] = make_float2(power_of_two(exponent >> 1), power_of_two(exponent - (exponent >> 1)));
    }
    __nv_bfloat16* const to = parts + (out + first + high) * groups * (PARTS * GROUP_K);
    for (; k >= 0; k -= SPLIT_K) {
#pragma unroll
        for (int i = 0; i < PER_THREAD; ++i) tile[row][k_first + i * 16] = loaded[i];
        __syncthreads();
        if (k > 0) load(loaded, k - SPLIT_K);
        Pack<__nv_bfloat16, PER_THREAD> part[PARTS];
#pragma unroll
        for (int i = 0; i < PER_THREAD; ++i) {
            const float scaled = tile[high][low * PER_THREAD + i] * down * down_more;
            part[0][i] = from_float<__nv_bfloat16>(scaled);
            const float rest = fabsf(scaled) < INFINITY ? scaled - to_float(part[0][i]) : 0.0f;
            part[1][i] = from_float<__nv_bfloat16>(rest);
            part[2][i] = from_float<__nv_bfloat16>(rest - to_float(part[1][i]));
        }
        const int64_t at = k + low * PER_THREAD, group = at / GROUP_K;
        if (exists && group < groups) {
#pragma unroll
            for (int p = 0; p < PARTS; ++p) {
                __nv_bfloat16* const place = to + (group * PARTS + p) * GROUP_K + at % GROUP_K;
                *reinterpret_cast<Pack<__nv_bfloat16, PER_THREAD>*>(place) = part[p];
            }
        }
        __syncthreads();
    }
}

// The producer thread: loads a stage as soon as all consumers that read it, in all blocks of the cluster, have done so.
template <typename C>
__device__ __forceinline__ void produce(const OperandMaps& maps, const GroupedTileScheduler<C::GROUP_M>& tiles,
                                        uint32_t shared, int steps) {
    constexpr int SHARE = BLOCK_N / C::CLUSTER;  // rows of b that this block loads
    const int rank = cta_rank<C>();
    const uint32_t full = shared + C::FULL_BARRIERS, empty = shared + C::EMPTY_BARRIERS;
    PipelineState<C::STAGES> state;
    for (int index = blockIdx.x / C::CLUSTER; index < tiles.count(); index += gridDim.x / C::CLUSTER) {
        const TileCoordinate tile = tiles[index];
        const int m = (tile.m * C::CLUSTER + rank) * C::BLOCK_M, n = tile.n * BLOCK_N + rank * SHARE;
#pragma unroll 1
        for (int step = 0; step < steps; ++step) {
            const uint32_t a = shared + state.stage * C::STAGE_BYTES, barrier = full + state.stage * MBARRIER_BYTES;
            const uint32_t b = a + C::A_BYTES + rank * SHARE * ROW_BYTES;
            mbarrier_wait_parity(empty + state.stage * MBARRIER_BYTES, state.phase ^ 1);
            mbarrier_arrive_expect_tx(barrier, C::STAGE_BYTES);
            tma_load(a, &maps.a, step * STAGE_ELEMENTS, m, barrier);
            if constexpr (C::CLUSTER > 1) {
                tma_load_multicast(b, &maps.b, step * STAGE_ELEMENTS, n, barrier, (1 << C::CLUSTER) - 1);
            } else {
                tma_load(b, &maps.b, step * STAGE_ELEMENTS, n, barrier);
            }
            state.advance();
        }
    }
    drain_pipeline<C>(empty, state);
}

// Matrix descriptors of a and b in the three stages of a step.
struct StepDescriptors {
    uint64_t a[STEP_STAGES], b[STEP_STAGES];
};

// Descriptor of part `part` (0 to 2) of the GROUP-th 16 terms of a step.
template <int GROUP>
__device__ __forceinline__ uint64_t part_descriptor(const uint64_t (&stages)[STEP_STAGES], int part) {
    const int index = GROUP * PARTS + part;
    return stages[index / 4] + index % 4 * (GROUP_K * sizeof(__nv_bfloat16) >> 4);
}

template <int GROUP>
__device__ __forceinline__ void product(float (&sums)[SUMS], const StepDescriptors& step, int a_part, int b_part) {
    wgmma<__nv_bfloat16, false, false>(sums, part_descriptor<GROUP>(step.a, a_part),
                                       part_descriptor<GROUP>(step.b, b_part));
}

// All but the leading product of 16 terms. ALL_PRODUCTS adds two that matter only in very short sums.
template <int GROUP, bool ALL_PRODUCTS>
__device__ __forceinline__ void lower_products(float (&lower)[SUMS], const StepDescriptors& step) {
    if constexpr (ALL_PRODUCTS) {
        product<GROUP>(lower, step, 2, 1);
        product<GROUP>(lower, step, 1, 2);
    }
    product<GROUP>(lower, step, 0, 2);
    product<GROUP>(lower, step, 2, 0);
    product<GROUP>(lower, step, 1, 1);
    product<GROUP>(lower, step, 0, 1);
    product<GROUP>(lower, step, 1, 0);
}

// acc = sums of the leading products, lower = sums of the other products, both scaled like the operands.
template <bool ALL_PRODUCTS, typename C>
__device__ __forceinline__ void multiply(float (&acc)[SUMS], float (&lower)[SUMS], uint32_t shared, int consumer,
                                         int thread, int steps, PipelineState<C::STAGES>& state) {
    const uint32_t full = shared + C::FULL_BARRIERS, own_empty = shared + C::EMPTY_BARRIERS;
    const bool signals = thread < C::CLUSTER;  // thread t signals block t of the cluster
    const uint32_t empty = C::CLUSTER > 1 && signals ? map_shared_rank(own_empty, thread) : own_empty;
    auto release = [&](int stage) {
        if (signals) signal_empty<C>(empty + stage * MBARRIER_BYTES);
    };
    float leading[SUMS] = {};
    int previous = -1;  // the last stage of the previous step
#pragma unroll 1
    for (int i = 0; i < steps; ++i) {
        PipelineState<C::STAGES> at[STEP_STAGES];
        StepDescriptors step;
#pragma unroll
        for (int s = 0; s < STEP_STAGES; ++s) {
            const uint32_t stage = shared + state.stage * C::STAGE_BYTES;
            step.a[s] = wgmma_descriptor(stage + consumer * BOX_BYTES, 0);
            step.b[s] = wgmma_descriptor(stage + C::A_BYTES, 0);
            at[s] = state;
            state.advance();
        }
        auto wait = [&](int s) {
            mbarrier_wait_parity(full + at[s].stage * MBARRIER_BYTES, at[s].phase);
            wgmma_fence();
        };

        wait(0);
        product<0>(leading, step, 0, 0);
        lower_products<0, ALL_PRODUCTS>(lower, step);
        wgmma_commit_group();
        wgmma_wait_group<1>();  // the last group of the previous step has ended
        if (previous >= 0) release(previous);
        wait(1);
        product<1>(leading, step, 0, 0);
        lower_products<1, ALL_PRODUCTS>(lower, step);
        wgmma_commit_group();
        wait(2);
        product<2>(leading, step, 0, 0);
        lower_products<2, ALL_PRODUCTS>(lower, step);
        wgmma_commit_group();
        wgmma_wait_group<1>();  // groups 0 and 1 have ended, and with them all reads of stage 0
        release(at[0].stage);
        product<3>(leading, step, 0, 0);
        wgmma_commit_group();
        lower_products<3, ALL_PRODUCTS>(lower, step);
        wgmma_commit_group();
        wgmma_wait_group<1>();  // group 2 and all leading products have ended; the lower ones of group 3 go on
        release(at[1].stage);
        warpgroup_fence_operand(leading);
#pragma unroll
        for (int s = 0; s < SUMS; ++s) acc[s] += leading[s], leading[s] = 0.0f;
        warpgroup_fence_operand(leading);  // zeroed here; at the start of the next step it would wait for all products
        previous = at[2].stage;
    }
    wgmma_wait_group<0>();
    warpgroup_fence_operand(lower);
    release(previous);
}

// Adds the sums, undoes the scaling, and stores 64 rows from (m, n) on.
__device__ __forceinline__ void store(float* __restrict__ out, const float (&acc)[SUMS], const float (&lower)[SUMS],
                                      const float2* __restrict__ a_scales, const float2* __restrict__ b_scales,
                                      int thread, int m, int n, int M, int N) {
    const int row = m + thread / 32 * 16 + thread % 32 / 4, column = n + thread % 4 * 2;
    const float2 a_scale[2] = {a_scales[min(row, M - 1)], a_scales[min(row + 8, M - 1)]};
#pragma unroll
    for (int j = 0; j < BLOCK_N / 8; ++j) {
        const int at = column + j * 8;
        const float2 b_scale[2] = {b_scales[min(at, N - 1)], b_scales[min(at + 1, N - 1)]};
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            float x[2];
#pragma unroll
            for (int c = 0; c < 2; ++c) {
                // With an infinite input the lower products may contain inf - inf or inf * 0. The leading sum is right.
                const float leading = acc[j * 4 + i * 2 + c], sum = leading + lower[j * 4 + i * 2 + c];
                x[c] = sum != sum ? leading : sum;
                x[c] *= a_scale[i].x * b_scale[c].y;
                x[c] *= a_scale[i].y * b_scale[c].x;
            }
            if (row + i * 8 >= M) continue;
            float* const to = out + int64_t(row + i * 8) * N + at;
            if (N % 2 == 0 && at < N) {
                *reinterpret_cast<float2*>(to) = make_float2(x[0], x[1]);
            } else {
                if (at < N) to[0] = x[0];
                if (at + 1 < N) to[1] = x[1];
            }
        }
    }
}

// With two consumers, setmaxnreg divides 3 x 168 registers into 40 for the producer and 2 x 232 for the consumers.
template <bool ALL_PRODUCTS, typename C>
__global__ void __launch_bounds__(C::THREADS)
    matmul_parts(const __grid_constant__ OperandMaps maps, const GroupedTileScheduler<C::GROUP_M> tiles,
                 const float2* __restrict__ scales, float* __restrict__ out, int M, int N, int K) {
    extern __shared__ char raw[];
    const uint32_t start = shared_address(raw), shared = start + (-start & (BOX_ALIGNMENT - 1));
    const int consumer = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP, 0), thread = threadIdx.x % WARPGROUP;
    const int steps = ceil_div(K, STEP_K);

    if (threadIdx.x == C::PRODUCER) {
        tma_prefetch_descriptor(&maps.a);
        tma_prefetch_descriptor(&maps.b);
        init_pipeline<C>(shared);
    }
    // No thread may arrive at a barrier of another block, or write there, before that block has initialized its
    // barriers.
    if constexpr (C::CLUSTER > 1) {
        cluster_sync();
    } else {
        __syncthreads();
    }

    if (consumer == C::CONSUMERS) {
        if constexpr (C::CONSUMERS > 1) setmaxnreg_dec<40>();
        if (threadIdx.x == C::PRODUCER) produce<C>(maps, tiles, shared, steps * STEP_STAGES);
    } else {
        if constexpr (C::CONSUMERS > 1) setmaxnreg_inc<232>();
        const int rank = cta_rank<C>();
        PipelineState<C::STAGES> state;
        for (int index = blockIdx.x / C::CLUSTER; index < tiles.count(); index += gridDim.x / C::CLUSTER) {
            const TileCoordinate tile = tiles[index];
            int m = (tile.m * C::CLUSTER + rank) * C::BLOCK_M + consumer * 64, n = tile.n * BLOCK_N;
            asm volatile("" : "+r"(m), "+r"(n));  // computed here, while the thread waits for the first stage
            float acc[SUMS] = {}, lower[SUMS] = {};
            multiply<ALL_PRODUCTS, C>(acc, lower, shared, consumer, thread, steps, state);
            store(out, acc, lower, scales, scales + M, thread, m, n, M, N);
        }
    }
}

template <bool ALL_PRODUCTS, typename C>
cudaError_t launch(const __nv_bfloat16* parts, const float2* scales, float* out, int64_t M, int64_t N, int64_t K,
                   int multiprocessors, cudaStream_t stream, LaunchRecord* record) {
    const int64_t pitch = ceil_div<int64_t>(K, GROUP_K) * (PARTS * GROUP_K);
    const auto encode = [&](CUtensorMap* map, const __nv_bfloat16* data, int64_t rows, int box_rows) {
        return encode_operand_map<__nv_bfloat16>(map, {data, false, rows, pitch}, pitch, box_rows);
    };
    OperandMaps maps;
    if (!encode(&maps.a, parts, M, C::BLOCK_M) || !encode(&maps.b, parts + M * pitch, N, BLOCK_N / C::CLUSTER)) {
        return cudaErrorInvalidValue;
    }
    return launch_clusters(C::CLUSTER, matmul_parts<ALL_PRODUCTS, C>,
                           persistent_grid<C>(cluster_tiles<C>(M, N).count(), multiprocessors),
                           C::THREADS, C::SHARED_BYTES, stream, record, maps, cluster_tiles<C>(M, N), scales, out, M, N,
                           K);
}

template <bool ALL_PRODUCTS>
cudaError_t launch_by_size(const __nv_bfloat16* parts, const float2* scales, float* out, int64_t M, int64_t N,
                           int64_t K, cudaStream_t stream, LaunchRecord* record) {
    const int multiprocessors = multiprocessor_count();
    // A wave of Large has the work of two waves of Small and takes as long as 5/3 of them.
    if (5 * waves<Large>(M, N, multiprocessors) <= 3 * waves<Small>(M, N, multiprocessors)) {
        return launch<ALL_PRODUCTS, Large>(parts, scales, out, M, N, K, multiprocessors, stream, record);
    }
    return launch<ALL_PRODUCTS, Small>(parts, scales, out, M, N, K, multiprocessors, stream, record);
}

// parts is a workspace of M + N rows of 3 K bfloat16, K rounded up to a multiple of 16, and scales one of 2 (M + N)
// float32.
extern "C" int matmul_split(const float* a, const float* b, float* out, void* parts, void* scales, int64_t M, int64_t N,
                            int64_t K, int64_t a_stride_m, int64_t a_stride_k, int64_t b_stride_k, int64_t b_stride_n,
                            cudaStream_t stream, LaunchRecord* record) {
    auto* const split = static_cast<__nv_bfloat16*>(parts);
    auto* const factors = static_cast<float2*>(scales);
    const int64_t blocks = ceil_div<int64_t>(M, SPLIT_ROWS) + ceil_div<int64_t>(N, SPLIT_ROWS);
    const dim3 grid(static_cast<unsigned>(blocks)), block(SPLIT_THREADS);
    record->set(grid, block);
    split_rows<<<grid, block, 0, stream>>>(Rows{a, M, a_stride_m, a_stride_k}, Rows{b, N, b_stride_n, b_stride_k}, K,
                                           split, factors);
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
    return K <= GROUP_K ? launch_by_size<true>(split, factors, out, M, N, K, stream, record)
                        : launch_by_size<false>(split, factors, out, M, N, K, stream, record);
}
