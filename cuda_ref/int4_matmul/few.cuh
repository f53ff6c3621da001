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
#include <array>

#include "common/launch.cuh"
#include "hopper/mbarrier.cuh"
#include "int4_matmul/codes.cuh"

constexpr int BOX = 2 * GROUP, X_BOXES = 4;                     // k of a box of codes, and boxes of x for it
constexpr int MOST_BLOCKS = 8;                                  // of a cluster
constexpr int MOST_BYTES = 195 * 1024;  // of shared memory; the rest is L1 cache, for scales that are read by 2 bytes

// ROWS rows of weights, WARP_ROWS for each warp, and TILES tiles of 8 rows of x in a tile; K_WARPS warps divide k.
// Offsets in shared memory: stages, sums, barriers.
template <int ROWS_, int WARP_ROWS_, int K_WARPS_, int TILES_, int PADDING, bool MOVES_REGISTERS_>
struct FewConfig {
    static constexpr int ROWS = ROWS_, WARP_ROWS = WARP_ROWS_, TILES = TILES_, K_WARPS = K_WARPS_;
    static constexpr int ROW_WARPS = ROWS / WARP_ROWS, WARPS = ROW_WARPS * K_WARPS;
    static constexpr int GROUPS = K_WARPS == 1 ? 2 : 1;          // of a box, for each warp
    static constexpr int BOXES = K_WARPS > 2 ? K_WARPS / 2 : 1;  // that are multiplied at a time
    // 16 warps that multiply take 112 registers a thread instead of 96, from the warpgroup of the warp that loads.
    static constexpr bool MOVES_REGISTERS = MOVES_REGISTERS_;
    static constexpr int THREADS = WARPS * 32 + (MOVES_REGISTERS ? WARPGROUP : 32);
    static constexpr int CODE_BYTES = ROWS * ROW_BYTES, X_BYTES = 8 * TILES * ROW_BYTES;
    static constexpr int STAGE_BYTES = CODE_BYTES + X_BOXES * X_BYTES;
    static constexpr int PITCH = ROWS + PADDING;  // floats from one row of sums to the next
    static constexpr int SUM_BYTES = K_WARPS * 8 * TILES * PITCH * int(sizeof(float));
    static constexpr int FITTING = (MOST_BYTES - BOX_ALIGNMENT - SUM_BYTES - 256) / STAGE_BYTES;
    static constexpr int STAGES = FITTING < 16 ? FITTING : 16;
    static constexpr int SUMS = STAGES * STAGE_BYTES, FULL = SUMS + SUM_BYTES, EMPTY = FULL + STAGES * MBARRIER_BYTES;
    static constexpr int SHARED_BYTES = BOX_ALIGNMENT + EMPTY + STAGES * MBARRIER_BYTES;
    static_assert(STAGES >= 2 && STAGES >= BOXES && SHARED_BYTES <= MAX_SHARED_BYTES, "");
};

struct Maps {
    CUtensorMap x, codes;
};

template <typename T>
struct Given {
    Groups<T> groups;
    int M, N, K;
};

// The scales and zero points of a lane's row, for the groups that its warp multiplies in a step: addresses of those of
// the next load, and the bits that were loaded. The bits are kept in 32-bit registers: narrower ones are copied at the
// end of a step, which would wait for the loads.
template <typename T, typename C>
struct RowScales {
    const T* scale_at;
    const uint8_t* zero_at;
    uint32_t scale[C::GROUPS] = {}, zero[C::GROUPS];

    __device__ __forceinline__ void seek(const Groups<T>& groups, int n, int group) {
        scale_at = groups.scale + n * groups.scale_row + group * groups.scale_group;
        zero_at = groups.zero + n * groups.zero_row + group * groups.zero_group;
#pragma unroll
        for (int i = 0; i < C::GROUPS; ++i) zero[i] = MIDDLE;
    }
    // Loads those of `count` groups at most, and moves on by `distance` groups.
    __device__ __forceinline__ void load(const Groups<T>& groups, int count, int distance) {
#pragma unroll
        for (int i = 0; i < C::GROUPS; ++i) {
            if (i >= count) continue;
            const T of_row = scale_at[i * groups.scale_group];
            uint16_t bits;
            memcpy(&bits, &of_row, 2);
            scale[i] = bits;
            if (groups.zero != nullptr) zero[i] = zero_at[i * groups.zero_group];
        }
        scale_at += distance * groups.scale_group, zero_at += distance * groups.zero_group;
    }
    // The scale of a group, and above it its zero point.
    __device__ __forceinline__ void pack(uint32_t (&scales)[C::GROUPS]) const {
#pragma unroll
        for (int i = 0; i < C::GROUPS; ++i) {
            scales[i] = scale[i] | zero[i] << 16;
#ifdef __CUDA_ARCH__
            asm volatile("" : "+r"(scales[i])::"memory");
#endif
        }
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

// A block's part of the boxes of k, `count` from `begin` on, and the tiles of its cluster.
struct Work {
    int cluster, clusters, tiles, begin, count;
};

// The warp that loads copies the boxes of all tiles. It takes part in the barriers of a cluster of several blocks, two
// for each tile: when as many boxes of the next tile are on their way as fit.
template <typename C>
__device__ __forceinline__ void load_stages(const Maps& maps, const Work& work, uint32_t shared, int blocks) {
    const auto sync_tile = [&] {
        if (blocks > 1) cluster_sync(), cluster_sync();
    };
    PipelineState<C::STAGES> to_load;
    const int ahead = min(C::STAGES, work.count);
    for (int tile = work.cluster; tile < work.tiles; tile += work.clusters) {
        const bool first = tile == work.cluster;
        for (int i = 0; i < work.count; ++i) {
            const int box = work.begin + i;
            mbarrier_wait_parity(shared + C::EMPTY + to_load.stage * MBARRIER_BYTES, to_load.phase ^ 1);
            if (threadIdx.x % 32 == 0) {
                const uint32_t full = shared + C::FULL + to_load.stage * MBARRIER_BYTES;
                const uint32_t to = shared + to_load.stage * C::STAGE_BYTES;
                mbarrier_arrive_expect_tx(full, C::STAGE_BYTES);
                tma_load(to, &maps.codes, box * ROW_BYTES, tile * C::ROWS, full);
                for (int j = 0; j < X_BOXES; ++j) {
                    tma_load(to + C::CODE_BYTES + j * C::X_BYTES, &maps.x, box * BOX + j * (BOX / X_BOXES), 0, full);
                }
            }
            __syncwarp();
            to_load.advance();
            if (i + 1 == ahead && !first) sync_tile();
        }
        if (work.count == 0 && !first) sync_tile();
    }
    if (work.cluster < work.tiles) sync_tile();
}

// A cluster computes C::ROWS columns of out at a time; its blocks divide k. A `Product` keeps the sums of a warp:
//   Product(row)                             for the rows of the weights in a tile from `row` on
//   Product::scale_row(lane)                 the row, after the first, whose scale a lane loads
//   start()                                  sums are 0
//   add_group(memory, shared, box, scales, half)
//                                            adds half of the box at an offset in shared memory, given as pointer and
//                                            address; scales: those of the lane's row, packed
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
    work.begin = int(int64_t(boxes) * rank / blocks);
    work.count = int(int64_t(boxes) * (rank + 1) / blocks) - work.begin;
    if (threadIdx.x == 0) {
        tma_prefetch_descriptor(&maps.codes);
        tma_prefetch_descriptor(&maps.x);
        for (int stage = 0; stage < C::STAGES; ++stage) {
            mbarrier_init(shared + C::FULL + stage * MBARRIER_BYTES, 1);
            mbarrier_init(shared + C::EMPTY + stage * MBARRIER_BYTES, C::WARPS / C::BOXES);
        }
        mbarrier_fence_init();
    }
    __syncthreads();

    if (warp >= C::WARPS) {
        if constexpr (C::MOVES_REGISTERS) setmaxnreg_dec<32>();
        if (warp == C::WARPS) load_stages<C>(maps, work, shared, blocks);
        return;
    }
    if constexpr (C::MOVES_REGISTERS) setmaxnreg_inc<112>();

    // All warps of a cluster meet, of a single block those that multiply.
    const auto sync = [&] { blocks > 1 ? cluster_sync() : named_barrier_sync(1, C::WARPS * 32); };

    const int scale_row = row_warp * C::WARP_ROWS + Product::scale_row(lane), groups = ceil_div(given.K, GROUP);
    const int mine = k_warp / 2, half = k_warp % 2;  // the warp's first box, and half of a box
    RowScales<T, C> next;
    // Loads the first scales of a tile, if the warp has a box of it. Others are loaded a step ahead.
    const auto seek = [&](int tile) {
        const int first = 2 * (work.begin + mine) + half;
        next.seek(given.groups, min(tile * C::ROWS + scale_row, given.N - 1), first);
        if (tile < work.tiles && mine < work.count) next.load(given.groups, groups - first, 2 * C::BOXES);
    };
    seek(work.cluster);
    Product product(row_warp * C::WARP_ROWS);
    int loaded = 0;  // boxes of earlier tiles
    for (int tile = work.cluster; tile < work.tiles; tile += work.clusters) {
        product.start();
        int stage = (loaded + mine) % C::STAGES, phase = (loaded + mine) / C::STAGES % 2;
#pragma unroll 1
        for (int i = mine; i < work.count; i += C::BOXES) {
            const int rest = groups - (2 * (work.begin + i) + half);
            uint32_t scales[C::GROUPS];
            next.pack(scales);
            if (i + C::BOXES < work.count) next.load(given.groups, rest - 2 * C::BOXES, 2 * C::BOXES);
            mbarrier_wait_parity(shared + C::FULL + stage * MBARRIER_BYTES, phase);
            const int box = stage * C::STAGE_BYTES;
#pragma unroll
            for (int j = 0; j < C::GROUPS; ++j) {
                if (j < rest) product.add_group(memory, shared, box, scales[j], half + j);
            }
            __syncwarp();
            if (lane == 0) mbarrier_arrive(shared + C::EMPTY + stage * MBARRIER_BYTES);
            stage += C::BOXES;
            if (stage >= C::STAGES) stage -= C::STAGES, phase ^= 1;
        }
        seek(tile + work.clusters);
        loaded += work.count;
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
    static const auto found = [&] {
        std::array<int, MOST_BLOCKS> clusters;
        for (int i = 0; i < MOST_BLOCKS; ++i) {
            clusters[i] = std::max(1, active_clusters(i + 1, kernel, C::THREADS, C::SHARED_BYTES));
        }
        return clusters;
    }();
    return found[parts - 1];
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
