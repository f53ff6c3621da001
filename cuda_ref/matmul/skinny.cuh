// The matmul kernel for few rows, and its launch; skinny.cu explains it.
#pragma once

#include "common/launch.cuh"
#include "hopper/mbarrier.cuh"
#include "hopper/wgmma.cuh"

constexpr int CONSUMERS = WARPGROUP, THREADS = CONSUMERS + 32;  // a consumer warpgroup and a producer warp
constexpr int STAGES_BYTES = 108 * 1024;                        // two blocks share a multiprocessor

// Terms of a step.
template <typename T>
constexpr int BLOCK_K = ROW_BYTES / int(sizeof(T));

// Finishes a sum of column n before it is rounded. This one returns it unchanged.
struct TheSum {
    __device__ __forceinline__ float operator()(float sum, int) const { return sum; }
};

// The form of the product. PROMOTED, in float8: sums of the tensor cores over one step are added in float32.
// TRANSPOSED: the rows of out are columns of the product.
template <bool PROMOTED_ = false, bool TRANSPOSED_ = false>
struct SkinnyForm {
    static constexpr bool PROMOTED = PROMOTED_, TRANSPOSED = TRANSPOSED_;
};

// A tile has ROWS rows (M, padded) and 64 BOXES columns.
template <int ROWS_, int BOXES_>
struct SkinnyConfig {
    static constexpr int ROWS = ROWS_, BOXES = BOXES_, COLUMNS = 64 * BOXES;
    static constexpr int B_BYTES = BOXES * BOX_BYTES, STAGE_BYTES = B_BYTES + ROWS * ROW_BYTES;
    static constexpr int STAGES = STAGES_BYTES / STAGE_BYTES;
    static constexpr int FULL_BARRIERS = STAGES * STAGE_BYTES;
    static constexpr int EMPTY_BARRIERS = FULL_BARRIERS + STAGES * MBARRIER_BYTES;
    static constexpr int SHARED_BYTES = BOX_ALIGNMENT + EMPTY_BARRIERS + STAGES * MBARRIER_BYTES;
    static constexpr int PITCH = COLUMNS + 4;  // floats between rows of sums; avoids most bank conflicts
    static_assert(ROWS * PITCH * 4 <= FULL_BARRIERS, "the sums overwrite the stages");
};

// Copies step k of the operands to a stage.
template <typename T, bool B_MN, typename C>
__device__ __forceinline__ void load_step(const OperandMaps& maps, uint32_t shared, int stage, int n, int k) {
    const uint32_t tile = shared + stage * C::STAGE_BYTES;
    const uint32_t barrier = shared + C::FULL_BARRIERS + stage * MBARRIER_BYTES;
    mbarrier_arrive_expect_tx(barrier, C::STAGE_BYTES);
    if constexpr (B_MN) {
#pragma unroll
        for (int box = 0; box < C::BOXES; ++box) {
            tma_load(tile + box * BOX_BYTES, &maps.b, n + box * 64, k * BLOCK_K<T>, barrier);
        }
    } else {
        tma_load(tile, &maps.b, k * BLOCK_K<T>, n, barrier);
    }
    tma_load(tile + C::B_BYTES, &maps.a, k * BLOCK_K<T>, 0, barrier);
}

// The consumer warpgroup: acc[box] = columns 64 box ... 64 box + 63 of the tile of b, times a, over steps k_begin ...
// k_end - 1.
template <typename T, bool B_MN, typename C>
__device__ __forceinline__ void multiply(float (&acc)[C::BOXES][C::ROWS / 2], uint32_t shared, int k_begin,
                                         int k_end) {
    const uint32_t full = shared + C::FULL_BARRIERS, empty = shared + C::EMPTY_BARRIERS;
    int stage = 0, previous = -1;  // stage that wgmma may still be reading
    uint32_t phase = 0;
#pragma unroll 1
    for (int k = k_begin; k < k_end; ++k) {
        const uint32_t tile = shared + stage * C::STAGE_BYTES;
        mbarrier_wait_parity(full + stage * MBARRIER_BYTES, phase);
        wgmma_fence();
#pragma unroll
        for (int box = 0; box < C::BOXES; ++box) {
            const uint64_t b = wgmma_descriptor(tile + box * BOX_BYTES, 0);
            wgmma_stage<T, B_MN, false>(acc[box], b, wgmma_descriptor(tile + C::B_BYTES, 0));
        }
        wgmma_commit_group();
        wgmma_wait_group<1>();
        if (previous >= 0 && threadIdx.x == 0) mbarrier_arrive(empty + previous * MBARRIER_BYTES);
        previous = stage;
        if (++stage == C::STAGES) stage = 0, phase ^= 1;
    }
    wgmma_wait_group<0>();
#pragma unroll
    for (int box = 0; box < C::BOXES; ++box) warpgroup_fence_operand(acc[box]);
}

// The scales of a step's promoted sums, for the sums that a thread holds of a tile from column n0 on. Here there are
// none; block_scaled_matmul/few.cu specializes this for a Finish with scales.
template <typename Finish, typename C>
struct StepScales {
    __device__ __forceinline__ StepScales(const Finish&, int, int, int) {}
    // Loads the scales of step k.
    __device__ __forceinline__ void load(int) {}
    // Makes the loaded scales those of the current step.
    __device__ __forceinline__ void advance() {}
    __device__ __forceinline__ float operator()(float sum, int) const { return sum; }
};

// `multiply` in float8: a step's products are summed from zero, and these sums are added when all have ended.
template <typename C, typename Scales>
__device__ __forceinline__ void multiply_promoted(float (&acc)[C::BOXES][C::ROWS / 2], uint32_t shared, int k_begin,
                                                  int k_end, Scales scales) {
    const uint32_t full = shared + C::FULL_BARRIERS, empty = shared + C::EMPTY_BARRIERS;
    int stage = 0;
    uint32_t phase = 0;
    float sums[C::BOXES][C::ROWS / 2] = {};
    if (k_begin < k_end) scales.load(k_begin);
#pragma unroll 1
    for (int k = k_begin; k < k_end; ++k) {
        scales.advance();
        scales.load(min(k + 1, k_end - 1));
        const uint32_t tile = shared + stage * C::STAGE_BYTES;
        mbarrier_wait_parity(full + stage * MBARRIER_BYTES, phase);
        wgmma_fence();
#pragma unroll
        for (int box = 0; box < C::BOXES; ++box) {
            const uint64_t b = wgmma_descriptor(tile + box * BOX_BYTES, 0);
            const uint64_t a = wgmma_descriptor(tile + C::B_BYTES, 0);
            wgmma<Float8, false, false, false>(sums[box], b, a);
#pragma unroll
            for (int part = 1; part < 4; ++part) {
                wgmma<Float8, false, false>(sums[box], b + part * K_MAJOR_STEP, a + part * K_MAJOR_STEP);
            }
        }
        wgmma_commit_group();
        wgmma_wait_group<0>();
        if (threadIdx.x == 0) mbarrier_arrive(empty + stage * MBARRIER_BYTES);
#pragma unroll
        for (int box = 0; box < C::BOXES; ++box) {
            warpgroup_fence_operand(sums[box]);
#pragma unroll
            for (int i = 0; i < C::ROWS / 2; ++i) acc[box][i] += scales(sums[box][i], i);
        }
        if (++stage == C::STAGES) stage = 0, phase ^= 1;
    }
}

// Writes the sums to shared memory as rows of out.
template <typename C>
__device__ __forceinline__ void write_sums(float* sums, const float (&acc)[C::BOXES][C::ROWS / 2]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int box = 0; box < C::BOXES; ++box) {
#pragma unroll
        for (int i = 0; i < C::ROWS / 2; ++i) {
            const int n = box * 64 + threadIdx.x / 32 * 16 + lane / 4 + i % 4 / 2 * 8;
            const int m = i / 4 * 8 + lane % 4 * 2 + i % 2;
            sums[m * C::PITCH + n] = acc[box][i];
        }
    }
}

template <typename T, bool B_MN, typename Form, typename C, typename Finish>
__global__ void __launch_bounds__(THREADS, 2)
    matmul_skinny(const __grid_constant__ OperandMaps maps, Output<T>* __restrict__ out, int M, int N, int K,
                  const Finish finish) {
    using Out = Output<T>;
    extern __shared__ char raw[];
    char* const stages = raw + (-shared_address(raw) & (BOX_ALIGNMENT - 1));
    const uint32_t shared = shared_address(stages);
    const int rank = cta_rank_in_cluster(), blocks = ctas_in_cluster();
    const int n0 = blockIdx.x / blocks * C::COLUMNS, steps = ceil_div(K, BLOCK_K<T>);
    const int k_begin = int(int64_t(steps) * rank / blocks), k_end = int(int64_t(steps) * (rank + 1) / blocks);
    const bool produces = threadIdx.x == CONSUMERS;

    if (produces) {
        for (int stage = 0; stage < C::STAGES; ++stage) {
            mbarrier_init(shared + C::FULL_BARRIERS + stage * MBARRIER_BYTES, 1);
            mbarrier_init(shared + C::EMPTY_BARRIERS + stage * MBARRIER_BYTES, 1);
        }
        mbarrier_fence_init();
        // The first loads do not wait.
        for (int k = k_begin; k < min(k_end, k_begin + C::STAGES); ++k) {
            load_step<T, B_MN, C>(maps, shared, k - k_begin, n0, k);
        }
    }
    __syncthreads();
    if (threadIdx.x >= CONSUMERS) {
        int stage = 0;
        uint32_t phase = 0;
#pragma unroll 1
        for (int k = k_begin + C::STAGES; produces && k < k_end; ++k) {
            mbarrier_wait_parity(shared + C::EMPTY_BARRIERS + stage * MBARRIER_BYTES, phase);
            load_step<T, B_MN, C>(maps, shared, stage, n0, k);
            if (++stage == C::STAGES) stage = 0, phase ^= 1;
        }
        __syncwarp();
    } else {
        float acc[C::BOXES][C::ROWS / 2] = {};
        if constexpr (Form::PROMOTED) {
            multiply_promoted<C>(acc, shared, k_begin, k_end, StepScales<Finish, C>(finish, n0, M, N));
        } else {
            multiply<T, B_MN, C>(acc, shared, k_begin, k_end);
        }
        named_barrier_sync(1, CONSUMERS);  // all products have read the stages
        write_sums<C>(reinterpret_cast<float*>(stages), acc);
    }
    blocks > 1 ? cluster_sync() : __syncthreads();

    // Groups of four neighbours of a row. Those of the M rows are divided among all threads of the cluster;
    // neighbouring threads get neighbouring groups.
    constexpr int GROUPS = C::COLUMNS / 4;
    const bool packed = !Form::TRANSPOSED && N % 4 == 0;
    for (int i = rank * THREADS + threadIdx.x; i < M * GROUPS; i += blocks * THREADS) {
        const int outer = i / (Form::TRANSPOSED ? M : GROUPS), inner = i - outer * (Form::TRANSPOSED ? M : GROUPS);
        const int m = Form::TRANSPOSED ? inner : outer, column = (Form::TRANSPOSED ? outer : inner) * 4;
        const int n = n0 + column;
        float4 sum = {};
        for (int block = 0; block < blocks; ++block) {
            const float4 x = load_shared_cluster(map_shared_rank(shared + (m * C::PITCH + column) * 4, block));
            sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
        }
        if (n >= N) continue;
        const int last = N - 1;  // in an incomplete group, elements beyond the row repeat its last column
        const Pack<Out, 4> quad = {
            from_float<Out>(finish(sum.x, n)), from_float<Out>(finish(sum.y, min(n + 1, last))),
            from_float<Out>(finish(sum.z, min(n + 2, last))), from_float<Out>(finish(sum.w, min(n + 3, last)))};
        Out* const at = out + (Form::TRANSPOSED ? int64_t(n) * M + m : int64_t(m) * N + n);
        if (packed) {
            *reinterpret_cast<Pack<Out, 4>*>(at) = quad;
        } else {
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                if (n + c < N) at[Form::TRANSPOSED ? c * M : c] = quad[c];
            }
        }
    }
    if (blocks > 1) cluster_sync();  // a block must not exit while others read its sums
}

template <typename T, bool B_MN, typename Form, typename C, typename Finish>
cudaError_t launch(const MatrixOperand& a, const MatrixOperand& b, void* out, int64_t K, int parts,
                   const Finish& finish, cudaStream_t stream, LaunchRecord* record) {
    OperandMaps maps;
    if (!encode_operand_map<T>(&maps.a, a, K, C::ROWS) || !encode_operand_map<T>(&maps.b, b, K, C::COLUMNS)) {
        return cudaErrorInvalidValue;
    }
    const int64_t tiles = ceil_div<int64_t>(b.rows, C::COLUMNS);
    return launch_clusters(parts, matmul_skinny<T, B_MN, Form, C, Finish>, dim3(unsigned(tiles * parts)), THREADS,
                           C::SHARED_BYTES, stream, record, maps, static_cast<Output<T>*>(out), a.rows, b.rows, K,
                           finish);
}

// Tiles have 64 or 128 `columns`; clusters of `parts` blocks, at most 8, divide K.
template <typename T, bool B_MN, typename Form = SkinnyForm<>, typename Finish>
cudaError_t launch_skinny(const MatrixOperand& a, const MatrixOperand& b, void* out, int64_t K, int64_t columns,
                          int64_t parts, const Finish& finish, cudaStream_t stream, LaunchRecord* record) {
    const auto run = [&](auto rows) {
        constexpr int ROWS = decltype(rows)::value;
        return columns == 64
                   ? launch<T, B_MN, Form, SkinnyConfig<ROWS, 1>>(a, b, out, K, int(parts), finish, stream, record)
                   : launch<T, B_MN, Form, SkinnyConfig<ROWS, 2>>(a, b, out, K, int(parts), finish, stream, record);
    };
    return a.rows <= 16 ? run(std::integral_constant<int, 16>()) : run(std::integral_constant<int, 32>());
}
