// Tiles of the products with weights of 4 bits and few rows of x: copies, division among warps and blocks, and the
// addition of sums, for few.cu and few_wgmma.cu.
//
// Bound by reading the weights: each is read once. One warp copies boxes of 256 k (128 bytes of codes a row, and x) by
// TMA into a ring of stages in shared memory, so that many bytes are in flight whatever the registers hold. Blocks are
// persistent, and the stages of the next tile arrive while the sums of one are added.
//
// k is divided among the blocks of a cluster, and its groups in turn among warps of a block. Their sums are added in a
// fixed order through the shared memory of the cluster.
#pragma once

#include <algorithm>

#include "common/launch.cuh"
#include "hopper/mbarrier.cuh"
#include "int4_matmul/codes.cuh"

constexpr int BOX = 2 * GROUP, X_BOXES = 4;                     // k of a box of codes, and boxes of x for it
constexpr int MOST_BLOCKS = 8;                                  // of a cluster
constexpr int MOST_BYTES = 195 * 1024;  // of shared memory: the L1 cache keeps the scales, of which 2 bytes are read

// ROWS rows of weights, WARP_ROWS for each warp, and TILES tiles of 8 rows of x in a tile; K_WARPS warps divide k.
// Offsets in shared memory: stages, sums, barriers.
template <int ROWS_, int WARP_ROWS_, int K_WARPS_, int TILES_, int PADDING>
struct FewConfig {
    static constexpr int ROWS = ROWS_, WARP_ROWS = WARP_ROWS_, TILES = TILES_, K_WARPS = K_WARPS_;
    static constexpr int ROW_WARPS = ROWS / WARP_ROWS;
    static constexpr int WARPS = ROW_WARPS * K_WARPS, THREADS = WARPS * 32 + 32;  // the last warp loads
    static constexpr int BOXES = K_WARPS > 2 ? K_WARPS / 2 : 1;  // of a stage
    static constexpr int GROUPS = 2 * BOXES / K_WARPS;           // of a stage, for each warp
    static constexpr int CODE_BYTES = ROWS * ROW_BYTES, X_BYTES = 8 * TILES * ROW_BYTES;
    static constexpr int LOAD_BYTES = CODE_BYTES + X_BOXES * X_BYTES, STAGE_BYTES = BOXES * LOAD_BYTES;
    static constexpr int PITCH = ROWS + PADDING;  // floats from one row of sums to the next
    static constexpr int SUM_BYTES = K_WARPS * 8 * TILES * PITCH * int(sizeof(float));
    static constexpr int FITTING = (MOST_BYTES - BOX_ALIGNMENT - SUM_BYTES - 128) / STAGE_BYTES;
    static constexpr int STAGES = FITTING < 6 ? FITTING : 6;
    static constexpr int SUMS = STAGES * STAGE_BYTES, FULL = SUMS + SUM_BYTES, EMPTY = FULL + STAGES * MBARRIER_BYTES;
    static constexpr int SHARED_BYTES = BOX_ALIGNMENT + EMPTY + STAGES * MBARRIER_BYTES;
    static_assert(STAGES >= 2 && SHARED_BYTES <= MAX_SHARED_BYTES, "");
};

struct Maps {
    CUtensorMap x, codes;
};

template <typename T>
struct Given {
    Groups<T> groups;
    int M, N, K;
};

// A step of a block: a stage of a tile.
struct Step {
    int tile, index;

    __device__ __forceinline__ void advance(int steps, int clusters) {
        if (++index == steps) index = 0, tile += clusters;
    }
};

// The scales and zero points of a lane's row, for the groups that its warp multiplies in a step.
template <typename T, typename C>
struct RowScales {
    T scale[C::GROUPS];
    uint8_t zero[C::GROUPS];

    __device__ __forceinline__ void load(const Given<T>& given, int row, int group) {
        const int n = min(row, given.N - 1);
#pragma unroll
        for (int i = 0; i < C::GROUPS; ++i) {
            const int g = min(group + i, ceil_div(given.K, GROUP) - 1);
            scale[i] = given.groups.scale_of(n, g);
            zero[i] = uint8_t(given.groups.zero_of(n, g));
        }
    }
    // The scale of group i, and above it its zero point.
    __device__ __forceinline__ uint32_t packed(int i) const {
        uint16_t bits;
        memcpy(&bits, &scale[i], 2);
        return bits | uint32_t(zero[i]) << 16;
    }
};

// The sum over all blocks of a cluster, and their warps that divide k, of four neighbours at an address of sums.
template <typename C>
__device__ __forceinline__ float4 add_parts(uint32_t at, int blocks) {
    float4 sum = {};
#pragma unroll
    for (int k = 0; k < C::K_WARPS; ++k) {
        float4 x[MOST_BLOCKS];  // all loads are in flight
#pragma unroll
        for (int i = 0; i < MOST_BLOCKS; ++i) {
            const uint32_t from = at + k * 8 * C::TILES * C::PITCH * int(sizeof(float));
            if (i < blocks) x[i] = load_shared_cluster(map_shared_rank(from, i));
        }
#pragma unroll
        for (int i = 0; i < MOST_BLOCKS; ++i) {
            if (i < blocks) sum.x += x[i].x, sum.y += x[i].y, sum.z += x[i].z, sum.w += x[i].w;
        }
    }
    return sum;
}

// A block's share of the tile: groups of four neighbours of a row of out.
template <typename T, typename C>
__device__ __forceinline__ void store_tile(T* out, const Given<T>& given, uint32_t sums, int tile, int rank,
                                           int blocks) {
    constexpr int QUADS = C::ROWS / 4;
    const int share = ceil_div(given.M * QUADS, blocks), end = min(given.M * QUADS, (rank + 1) * share);
    for (int i = rank * share + threadIdx.x; i < end; i += C::WARPS * 32) {
        const int m = i / QUADS, column = i % QUADS * 4, n = tile * C::ROWS + column;
        const float4 sum = add_parts<C>(sums + (m * C::PITCH + column) * int(sizeof(float)), blocks);
        const Pack<T, 4> quad = {from_float<T>(sum.x * ONE<T>), from_float<T>(sum.y * ONE<T>),
                                 from_float<T>(sum.z * ONE<T>), from_float<T>(sum.w * ONE<T>)};
        T* const to = out + int64_t(m) * given.N + n;
        if (given.N % 4 == 0 && n < given.N) {
            *reinterpret_cast<Pack<T, 4>*>(to) = quad;
        } else {
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                if (n + c < given.N) to[c] = quad[c];
            }
        }
    }
}

// A block's part of the boxes of k, and the tiles of its cluster.
struct Work {
    int cluster, clusters, tiles, begin, end, steps;
};

// The warp that loads copies the stages of all tiles. It takes part in the barriers of a cluster of several blocks, two
// for each tile: when as many stages of the next tile are on their way as fit.
template <typename C>
__device__ __forceinline__ void load_stages(const Maps& maps, const Work& work, uint32_t shared, int blocks) {
    const auto sync_tile = [&] {
        if (blocks > 1) cluster_sync(), cluster_sync();
    };
    PipelineState<C::STAGES> to_load;
    const int ahead = min(C::STAGES, work.steps);
    for (int tile = work.cluster; tile < work.tiles; tile += work.clusters) {
        const bool first = tile == work.cluster;
        for (int step = 0; step < work.steps; ++step) {
            mbarrier_wait_parity(shared + C::EMPTY + to_load.stage * MBARRIER_BYTES, to_load.phase ^ 1);
            if (threadIdx.x % 32 == 0) {
                const uint32_t full = shared + C::FULL + to_load.stage * MBARRIER_BYTES;
                const int box = work.begin + step * C::BOXES, count = min(C::BOXES, work.end - box);
                mbarrier_arrive_expect_tx(full, count * C::LOAD_BYTES);
                for (int i = 0; i < count; ++i) {
                    const uint32_t to = shared + to_load.stage * C::STAGE_BYTES + i * C::LOAD_BYTES;
                    tma_load(to, &maps.codes, (box + i) * ROW_BYTES, tile * C::ROWS, full);
                    for (int j = 0; j < X_BOXES; ++j) {
                        const int k = (box + i) * BOX + j * (BOX / X_BOXES);
                        tma_load(to + C::CODE_BYTES + j * C::X_BYTES, &maps.x, k, 0, full);
                    }
                }
            }
            __syncwarp();
            to_load.advance();
            if (step + 1 == ahead && !first) sync_tile();
        }
        if (work.steps == 0 && !first) sync_tile();
    }
    if (work.cluster < work.tiles) sync_tile();
}

// A cluster computes C::ROWS columns of out at a time; its blocks divide k. A `Product` keeps the sums of a warp:
//   Product(row)                             for the rows of the weights in a tile from `row` on
//   Product::scale_row(lane)                 the row, after the first, whose scale a lane loads
//   start()                                  sums are 0
//   add_group(box, address, scales, half)    adds half of a box at a pointer and address in shared memory; scales: those
//                                            of the lane's row, packed
//   write(sums)                              writes the sums to those of its warps that divide k
template <typename T, typename C, typename Product>
__device__ __forceinline__ void few_rows(const Maps& maps, const Given<T>& given, T* __restrict__ out) {
    extern __shared__ char raw[];
    char* const memory = raw + (-shared_address(raw) & (BOX_ALIGNMENT - 1));
    const uint32_t shared = shared_address(memory);
    const int rank = cta_rank_in_cluster(), blocks = ctas_in_cluster();
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;  // uniform
    const int row_warp = warp % C::ROW_WARPS, k_warp = C::K_WARPS > 1 ? warp / C::ROW_WARPS : 0;
    const int boxes = ceil_div(given.K, BOX);
    Work work = {int(blockIdx.x) / blocks, int(gridDim.x) / blocks, ceil_div(given.N, C::ROWS)};
    work.begin = int(int64_t(boxes) * rank / blocks), work.end = int(int64_t(boxes) * (rank + 1) / blocks);
    work.steps = ceil_div(work.end - work.begin, C::BOXES);
    if (threadIdx.x == 0) {
        tma_prefetch_descriptor(&maps.codes);
        tma_prefetch_descriptor(&maps.x);
        for (int stage = 0; stage < C::STAGES; ++stage) {
            mbarrier_init(shared + C::FULL + stage * MBARRIER_BYTES, 1);
            mbarrier_init(shared + C::EMPTY + stage * MBARRIER_BYTES, C::WARPS);
        }
        mbarrier_fence_init();
    }
    __syncthreads();

    if (warp == C::WARPS) return load_stages<C>(maps, work, shared, blocks);

    // All warps of a cluster meet, of a single block those that multiply.
    const auto sync = [&] { blocks > 1 ? cluster_sync() : named_barrier_sync(1, C::WARPS * 32); };

    const int scale_row = row_warp * C::WARP_ROWS + Product::scale_row(lane);
    const auto group_of = [&](const Step& at) { return (work.begin + at.index * C::BOXES) * 2 + k_warp * C::GROUPS; };
    const auto load_scales = [&](RowScales<T, C>& to, const Step& at) {
        if (at.tile < work.tiles) to.load(given, at.tile * C::ROWS + scale_row, group_of(at));
    };
    const int last_group = min(2 * work.end, ceil_div(given.K, GROUP));
    RowScales<T, C> next = {};
    load_scales(next, {work.cluster, 0});
    Product product(row_warp * C::WARP_ROWS);
    PipelineState<C::STAGES> to_read;
    for (int tile = work.cluster; tile < work.tiles; tile += work.clusters) {
        product.start();
#pragma unroll 1
        for (Step at{tile, 0}; at.index < work.steps;) {
            const RowScales<T, C> now = next;
            const int group = group_of(at);
            Step following = at;
            following.advance(work.steps, work.clusters);
            load_scales(next, following);
            mbarrier_wait_parity(shared + C::FULL + to_read.stage * MBARRIER_BYTES, to_read.phase);
            const int box = to_read.stage * C::STAGE_BYTES + k_warp / 2 * C::LOAD_BYTES;
#pragma unroll
            for (int i = 0; i < C::GROUPS; ++i) {
                if (group + i < last_group) {
                    product.add_group(memory + box, shared + box, now.packed(i), C::GROUPS == 2 ? i : k_warp % 2);
                }
            }
            __syncwarp();
            if (lane == 0) mbarrier_arrive(shared + C::EMPTY + to_read.stage * MBARRIER_BYTES);
            to_read.advance();
            ++at.index;
        }
        float* const sums = reinterpret_cast<float*>(memory + C::SUMS);
        product.write(sums + k_warp * 8 * C::TILES * C::PITCH);
        sync();
        store_tile<T, C>(out, given, shared + C::SUMS, tile, rank, blocks);
        sync();  // the sums may be overwritten, or the block exit
    }
}

// Clusters of `parts` blocks that the device runs at a time.
template <typename C, typename Kernel>
int resident_clusters(Kernel kernel, int parts) {
    const auto of = [&](int blocks) {
        return std::max(1, active_clusters(blocks, kernel, C::THREADS, C::SHARED_BYTES));
    };
    static const int found[] = {of(1), of(2), of(4), of(8)};
    return found[parts == 1 ? 0 : parts == 2 ? 1 : parts == 4 ? 2 : 3];
}

template <typename T, typename C, typename Kernel>
cudaError_t launch_few(Kernel kernel, const MatrixOperand& x, const MatrixOperand& weight, const Given<T>& given,
                       void* out, int parts, cudaStream_t stream, LaunchRecord* record) {
    Maps maps = {};
    if (!encode_operand_map<T>(&maps.x, x, given.K, 8 * C::TILES) ||
        !encode_operand_map<Float8>(&maps.codes, weight, ceil_div(given.K, 2), C::ROWS)) {
        return cudaErrorInvalidValue;
    }
    const int tiles = ceil_div(given.N, C::ROWS), turns = ceil_div(tiles, resident_clusters<C>(kernel, parts));
    const int clusters = ceil_div(tiles, turns);
    return launch_clusters(parts, kernel, dim3(unsigned(clusters * parts)), C::THREADS, C::SHARED_BYTES, stream, record,
                           maps, given, static_cast<T*>(out));
}
