// out[m, n] = sum over k of x[m, k] * w[n, k], with w[n, k] = scale[n, k / 128] * (code[n, k] - zero[n, k / 128])
//
// requires: sm_90a
//
// wgmma takes one operand from registers: the weights. So out^T = w x^T is computed, with rows of the weights as rows of
// the product and rows of x as its columns. A tile has 128 rows of the weights, and as many rows of x as wgmma has
// columns: then a weight is made once for each tile, by few instructions for many products.
//
// A producer thread copies by TMA, into two rings of stages: 64 k of x, and 256 k (128 bytes) of codes. Two consumer
// warpgroups read the codes of a stage, make weights in registers, and multiply. They make those of the next stage while
// the tensor cores work. Blocks are persistent: they compute tile after tile.
//
// A thread's fragment has the pairs (2q, 2q + 1) and (2q + 8, 2q + 9) of each 16 k of two rows: a byte of codes each.
//
// Precision: code less zero is exact; a weight is rounded once to the type of x; sums are float32.
#include "attention/wgmma_steps.cuh"
#include "common/launch.cuh"
#include "hopper/epilogue.cuh"
#include "hopper/mbarrier.cuh"
#include "int4_matmul/codes.cuh"

constexpr int CONSUMERS = 2, COLUMNS = 64 * CONSUMERS, PRODUCER = CONSUMERS * WARPGROUP, THREADS = PRODUCER + WARPGROUP;
constexpr int STEP = 64, STEPS = 4;  // k of a stage of x, and stages of x in one of codes

// ROWS rows of x in a tile. Offsets in shared memory: the stages of x, then those of codes, boxes of out, barriers.
template <int ROWS_, int STAGES_>
struct Int4Config {
    static constexpr int ROWS = ROWS_, STAGES = STAGES_, CODE_STAGES = 2, GROUP_M = 8;
    // From 3 x 168 of a launch to 40 for the producer and 2 x 232. Smaller tiles need fewer.
    static constexpr bool MOVES_REGISTERS = ROWS == 256;
    static constexpr int X_BYTES = ROWS * ROW_BYTES, CODE_BYTES = COLUMNS * ROW_BYTES;
    static constexpr int CODES = STAGES * X_BYTES, BOXES = CODES + CODE_STAGES * CODE_BYTES;
    static constexpr int X_FULL = BOXES + CONSUMERS * BOX_BYTES, X_EMPTY = X_FULL + STAGES * MBARRIER_BYTES;
    static constexpr int CODES_FULL = X_EMPTY + STAGES * MBARRIER_BYTES;
    static constexpr int CODES_EMPTY = CODES_FULL + CODE_STAGES * MBARRIER_BYTES;
    static constexpr int SHARED_BYTES = BOX_ALIGNMENT + CODES_EMPTY + CODE_STAGES * MBARRIER_BYTES;
    static_assert(SHARED_BYTES <= MAX_SHARED_BYTES, "");
};

struct Maps {
    CUtensorMap x, codes, out;
};

// The scales and zero points of a thread's two rows n and n + 8, for one group.
template <typename T>
struct RowScales {
    T scale[2];
    uint32_t zero[2];

    __device__ __forceinline__ void load(const Groups<T>& given, int n, int last, int group) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int row = min(n + 8 * i, last);
            scale[i] = given.scale_of(row, group);
            zero[i] = given.zero_of(row, group);
        }
    }
};

// Two weights of the codes in a byte: that of the lower half comes first.
template <typename T>
__device__ __forceinline__ uint32_t weight_pair(uint32_t byte, uint32_t zero, Pair<T> scale) {
    const uint32_t difference = less_zero<T>(byte * 0x1001u, zero);
    Pair<T> codes;
    memcpy(&codes, &difference, 4);
    const Pair<T> weights = __hmul2(codes, scale);
    uint32_t result;
    memcpy(&result, &weights, 4);
    return result;
}

// The fragments of STEP k, from codes in shared memory: `row` of a stage, and 16-byte chunks from `chunk` on.
template <typename T>
__device__ __forceinline__ void make_weights(uint32_t (&weights)[STEP / 4], const char* stage, int row, int chunk,
                                             const RowScales<T>& group) {
    const int shift = threadIdx.x % 4 * 8;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const char* const from = stage + (row + 8 * i) * ROW_BYTES;
        const uint32_t zero = zero_pair<T>(group.zero[i]);
        const Pair<T> scale = {group.scale[i], group.scale[i]};
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const uint4 codes = *reinterpret_cast<const uint4*>(from + ((chunk + half) ^ row % 8) * 16);
            const uint32_t words[] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                weights[half * 8 + j / 2 * 4 + j % 2 * 2 + i] = weight_pair<T>(words[j] >> shift & 0xffu, zero, scale);
            }
        }
    }
}

// Writes the transpose of 64 columns of the product, 64 rows of out, to a box, from fragment `first` on.
template <typename T, int COUNT>
__device__ __forceinline__ void write_transposed(uint32_t box, const float (&acc)[COUNT], int first, int thread) {
    const int lane = thread % 32, chunk = thread / 32 * 2 + lane / 8 % 2;
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
        const float* const sums = &acc[(first + j) * 4];
        const int row = (j + lane / 16) * 8 + lane % 8;
        stmatrix_x4_transposed(box + row * ROW_BYTES + (chunk ^ row % 8) * 16, rounded_pair<T>(sums[0], sums[1]),
                               rounded_pair<T>(sums[2], sums[3]), rounded_pair<T>(sums[4], sums[5]),
                               rounded_pair<T>(sums[6], sums[7]));
    }
}

template <typename C>
using Tiles = GroupedTileScheduler<C::GROUP_M>;

// The producer thread.
template <typename C>
__device__ __forceinline__ void load_tiles(const Maps& maps, const Tiles<C>& tiles, uint32_t shared, int steps) {
    PipelineState<C::STAGES> x;
    PipelineState<C::CODE_STAGES> codes;
    for (int index = blockIdx.x; index < tiles.count(); index += gridDim.x) {
        const TileCoordinate tile = tiles[index];
#pragma unroll 1
        for (int k = 0; k < steps; ++k) {
            if (k % STEPS == 0) {
                const uint32_t full = shared + C::CODES_FULL + codes.stage * MBARRIER_BYTES;
                mbarrier_wait_parity(shared + C::CODES_EMPTY + codes.stage * MBARRIER_BYTES, codes.phase ^ 1);
                mbarrier_arrive_expect_tx(full, C::CODE_BYTES);
                tma_load(shared + C::CODES + codes.stage * C::CODE_BYTES, &maps.codes, k * STEP / 2, tile.n * COLUMNS,
                         full);
                codes.advance();
            }
            const uint32_t full = shared + C::X_FULL + x.stage * MBARRIER_BYTES;
            mbarrier_wait_parity(shared + C::X_EMPTY + x.stage * MBARRIER_BYTES, x.phase ^ 1);
            mbarrier_arrive_expect_tx(full, C::X_BYTES);
            tma_load(shared + x.stage * C::X_BYTES, &maps.x, k * STEP, tile.m * C::ROWS, full);
            x.advance();
        }
    }
}

// The stages that a consumer warpgroup reads. A stage is released when the products that read it have ended.
template <typename C>
struct Consumer {
    uint32_t shared;
    int thread;
    PipelineState<C::STAGES> x;
    PipelineState<C::CODE_STAGES> codes;
    int last_x = -1, last_codes = -1;  // stages that are not released yet; -1 if there is none

    __device__ __forceinline__ void wait_codes() const {
        mbarrier_wait_parity(shared + C::CODES_FULL + codes.stage * MBARRIER_BYTES, codes.phase);
    }
    __device__ __forceinline__ void wait_x() const {
        mbarrier_wait_parity(shared + C::X_FULL + x.stage * MBARRIER_BYTES, x.phase);
    }
    __device__ __forceinline__ void advance(bool ends_codes) {
        last_x = x.stage;
        x.advance();
        if (!ends_codes) return;
        last_codes = codes.stage;
        codes.advance();
    }
    __device__ __forceinline__ void release() {
        if (thread == 0 && last_x >= 0) mbarrier_arrive(shared + C::X_EMPTY + last_x * MBARRIER_BYTES);
        if (thread == 0 && last_codes >= 0) mbarrier_arrive(shared + C::CODES_EMPTY + last_codes * MBARRIER_BYTES);
        last_x = last_codes = -1;
    }
};

// acc += w x^T over all of k, for the 64 rows of weights of a consumer. n: this thread's first row of the weights.
template <typename T, typename C>
__device__ __forceinline__ void multiply(float (&acc)[C::ROWS / 2], Consumer<C>& stages, const char* memory,
                                         const Groups<T>& groups, int consumer, int n, int N, int steps) {
    const int row = consumer * 64 + stages.thread / 32 * 16 + stages.thread % 32 / 4;
    uint32_t even[STEP / 4], odd[STEP / 4];  // the fragments of this and of the previous step
    RowScales<T> now, next;
    next.load(groups, n, N - 1, 0);
    auto step = [&](uint32_t(&current)[STEP / 4], uint32_t(&previous)[STEP / 4], int k) {
        if (k % STEPS == 0) stages.wait_codes();
        const char* const codes = memory + C::CODES + stages.codes.stage * C::CODE_BYTES;
        make_weights<T>(current, codes, row, k % STEPS * 2, now);
        warpgroup_fence_operand(current);
        stages.wait_x();
        const uint64_t x = wgmma_descriptor(stages.shared + stages.x.stage * C::X_BYTES, 0);
        wgmma_fence();
#pragma unroll
        for (int part = 0; part < 4; ++part) wgmma<T, false>(acc, current + part * 4, x + part * K_MAJOR_STEP, 1);
        wgmma_commit_group();
        wgmma_wait_group<1>();
        warpgroup_fence_operand(previous);
        stages.release();
        stages.advance(k % STEPS == STEPS - 1 || k == steps - 1);
    };
#pragma unroll 1
    for (int k = 0; k + 1 < steps; k += 2) {  // a group is two steps
        now = next;
        if (k + 2 < steps) next.load(groups, n, N - 1, k / 2 + 1);
        step(even, odd, k);
        step(odd, even, k + 1);
    }
    now = next;
    if (steps % 2) step(even, odd, steps - 1);
    wgmma_wait_group<0>();
    warpgroup_fence_operand(acc);
    warpgroup_fence_operand(even);
    warpgroup_fence_operand(odd);
    stages.release();
}

template <typename T, typename C>
__global__ void __launch_bounds__(THREADS)
    int4_wgmma(const __grid_constant__ Maps maps, const Tiles<C> tiles, const __grid_constant__ Groups<T> groups,
               T* __restrict__ out, int M, int N, int K) {
    extern __shared__ char raw[];
    char* const memory = raw + (-shared_address(raw) & (BOX_ALIGNMENT - 1));
    const uint32_t shared = shared_address(memory);
    const int consumer = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP, 0), thread = threadIdx.x % WARPGROUP;
    const int steps = ceil_div(K, STEP);
    if (threadIdx.x == PRODUCER) {
        tma_prefetch_descriptor(&maps.x);
        tma_prefetch_descriptor(&maps.codes);
        for (int stage = 0; stage < C::STAGES; ++stage) {
            mbarrier_init(shared + C::X_FULL + stage * MBARRIER_BYTES, 1);
            mbarrier_init(shared + C::X_EMPTY + stage * MBARRIER_BYTES, CONSUMERS);
        }
        for (int stage = 0; stage < C::CODE_STAGES; ++stage) {
            mbarrier_init(shared + C::CODES_FULL + stage * MBARRIER_BYTES, 1);
            mbarrier_init(shared + C::CODES_EMPTY + stage * MBARRIER_BYTES, CONSUMERS);
        }
        mbarrier_fence_init();
    }
    __syncthreads();

    if (consumer == CONSUMERS) {
        if constexpr (C::MOVES_REGISTERS) setmaxnreg_dec<40>();
        if (threadIdx.x == PRODUCER) load_tiles<C>(maps, tiles, shared, steps);
        return;
    }
    if constexpr (C::MOVES_REGISTERS) setmaxnreg_inc<232>();
    const int box = C::BOXES + consumer * BOX_BYTES;
    Consumer<C> stages{shared, thread};
    for (int index = blockIdx.x; index < tiles.count(); index += gridDim.x) {
        const TileCoordinate tile = tiles[index];
        const int m = tile.m * C::ROWS, n = tile.n * COLUMNS + consumer * 64;
        float acc[C::ROWS / 2] = {};
        multiply<T, C>(acc, stages, memory, groups, consumer, n + thread / 32 * 16 + thread % 32 / 4, N, steps);
#pragma unroll
        for (int i = 0; i < C::ROWS / 64; ++i) {
            if (thread == 0) tma_store_wait_group_read<0>();
            named_barrier_sync(1 + consumer, WARPGROUP);  // the box may be overwritten
            write_transposed<T>(shared + box, acc, i * 8, thread);
            fence_proxy_async();
            named_barrier_sync(1 + consumer, WARPGROUP);
            store_box(&maps.out, out, shared + box, memory + box, thread, m + i * 64, n, M, N);
            if (thread == 0) tma_store_commit_group();
        }
    }
    if (thread == 0) tma_store_wait_group_read<0>();
}

struct Sizes {
    int64_t M, N, K;
};

template <typename T, typename C>
cudaError_t launch(const MatrixOperand& x, const MatrixOperand& weight, const Groups<T>& groups, void* out,
                   const Sizes& sizes, cudaStream_t stream, LaunchRecord* record) {
    const auto [M, N, K] = sizes;
    Maps maps = {};
    if (!encode_operand_map<T>(&maps.x, x, K, C::ROWS) ||
        !encode_operand_map<Float8>(&maps.codes, weight, ceil_div<int64_t>(K, 2), COLUMNS) ||
        (N % 8 == 0 && !encode_tensor_map(&maps.out, TENSOR_MAP_TYPE<T>, 2, out, N, M, N, 64))) {
        return cudaErrorInvalidValue;
    }
    const Tiles<C> tiles(ceil_div<int64_t>(M, C::ROWS), ceil_div<int64_t>(N, COLUMNS));
    const int waves = ceil_div(tiles.count(), multiprocessor_count());
    return launch_clusters(1, int4_wgmma<T, C>, dim3(unsigned(ceil_div(tiles.count(), waves))), THREADS,
                           C::SHARED_BYTES, stream, record, maps, tiles, groups, static_cast<T*>(out), int(M), int(N),
                           int(K));
}

// Rows of x and weight are contiguous, x_row elements and weight_row bytes apart, at multiples of 16 bytes; other
// strides are in elements. zero: null if there are no zero points. rows: of x in a tile, 64, 128 or 256.
extern "C" int int4_wgmma(const void* x, const uint8_t* weight, const void* scale, const uint8_t* zero, void* out,
                          int64_t M, int64_t N, int64_t K, int64_t x_row, int64_t weight_row, int64_t scale_row,
                          int64_t scale_group, int64_t zero_row, int64_t zero_group, int64_t dtype, int64_t rows,
                          cudaStream_t stream, LaunchRecord* record) {
    const MatrixOperand left{x, false, M, x_row}, right{weight, false, N, weight_row};
    const auto run = [&](auto of_type) {
        using T = decltype(of_type);
        const Groups<T> groups{static_cast<const T*>(scale), zero, scale_row, scale_group, zero_row, zero_group};
        const auto with = [&](auto config) {
            return launch<T, decltype(config)>(left, right, groups, out, {M, N, K}, stream, record);
        };
        if (rows == 64) return with(Int4Config<64, 12>());
        return rows == 128 ? with(Int4Config<128, 8>()) : with(Int4Config<256, 5>());
    };
    return dtype == BFLOAT16 ? run(__nv_bfloat16()) : run(__half());
}
