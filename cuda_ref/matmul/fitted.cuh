// The matmul kernel in 16 bits with tile heights fitted to the output, and its launch
//
// wgmma multiplies 64 rows by any multiple of 8 columns up to 256; this kernel uses the multiples of 16. It computes
// the transpose of out, so that columns of a wgmma are rows of out. A tile has 64, 128 or 192 columns of out, and the
// number of rows that fills the device best; wgmma.py chooses it. One kernel serves all numbers of rows, since only its
// wgmma shape depends on them.
//
// As in wgmma.cu, a producer loads stages by TMA, consumers multiply, and blocks are persistent. If k is divided,
// blocks store float32 sums of parts in the order of out's rows, and a second kernel adds the parts in order.
//
// Precision: products are exact, sums float32, rounded once.
#pragma once

#include "common/launch.cuh"
#include "hopper/mbarrier.cuh"
#include "matmul/fitted_stage.cuh"

// CONSUMERS warpgroups compute 64 columns and up to ROWS rows of out each.
template <int CONSUMERS_, int ROWS_>
struct Columns {
    static constexpr int CONSUMERS = CONSUMERS_, ROWS = ROWS_, COUNT = CONSUMERS * 64;
    static constexpr int PRODUCER = CONSUMERS * WARPGROUP, THREADS = PRODUCER + (CONSUMERS > 1 ? WARPGROUP : 32);
    static constexpr int BYTES = COUNT * ROW_BYTES;  // bytes of b per stage
    static constexpr int BOXES = 2;                  // boxes of a consumer that hold sums before they are stored
    static constexpr int BOX_ROWS = 16;              // rows that one store takes
};

constexpr int GROUP = 8, MOST_STAGES = 12, BARRIER_BYTES = 2 * MOST_STAGES * MBARRIER_BYTES, BLOCK_K = 64;

// Operands whose loads the blocks of a cluster share: a by blocks side by side, b by blocks one below the other.
enum Sharing { NOTHING, SHARE_A, SHARE_B, SHARE_BOTH };

struct Maps {
    CUtensorMap a, b, out;
};

// A cluster computes one share after the other: for each block a tile, over one part of the steps of k.
struct Work {
    GroupedTileScheduler<GROUP> tiles;  // m counts tiles of columns of out, n tiles of rows
    FastDivisor by_tiles;
    int sharing, cluster;  // sharing: see Sharing; cluster: blocks of a cluster
    int rows, stages, stage_bytes;  // rows of a tile; stages of the ring; bytes of a stage
    int parts, least, longer;       // the first `longer` parts have `least + 1` steps, the others `least`
    float* sums;                    // sums of parts: for each part M rows of N columns

    __device__ __forceinline__ int shares() const { return tiles.count() * parts; }
};

// A block of a cluster. If a is shared, two blocks whose ranks differ in the lowest bit are side by side.
struct Member {
    int rank, x, y;      // x, y: place in the cluster
    int beside, below;   // ranks of the blocks that share a and b with it; its own rank if there is none
    int partners;        // number of blocks with which it shares loads

    __device__ __forceinline__ Member(const Work& work) {
        const bool a = work.sharing & SHARE_A, b = work.sharing & SHARE_B;
        rank = work.cluster > 1 ? int(cta_rank_in_cluster()) : 0;
        x = a ? rank & 1 : 0, y = a ? rank >> 1 : rank;
        beside = a ? rank ^ 1 : rank, below = b ? rank ^ (a ? 2 : 1) : rank;
        partners = int(a) + int(b);
    }
};

struct FittedShare {
    int row, column;  // position of the block's tile, in tiles
    int part, begin, end;

    __device__ __forceinline__ FittedShare(const Work& work, int index, const Member& member) {
        part = work.by_tiles.quotient(index), begin = part * work.least + min(part, work.longer);
        end = begin + work.least + (part < work.longer);
        const TileCoordinate tile = work.tiles[index - part * work.tiles.count()];
        row = work.sharing & SHARE_B ? tile.n * 2 + member.y : tile.n;
        column = work.sharing & SHARE_A ? tile.m * 2 + member.x : tile.m;
    }
};

struct Ring {
    uint32_t full, empty;  // addresses of the first barriers
    int stages, stage = 0;
    uint32_t phase = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == stages) stage = 0, phase ^= 1;
    }
};

// Loads one stage of an operand, at most `rows` rows (m or n): all of it, or its half `half`, for this block and
// another one. A half is half of the rows of a K-major operand, or half of the k of an MN-major one.
template <bool MN>
__device__ __forceinline__ void load_stage(const CUtensorMap* map, uint32_t to, int row, int k, int rows, int rank,
                                           int other, int half, uint32_t full) {
    const int first = half * (MN ? BLOCK_K : rows) / 2;
    const auto load = [&](uint32_t box, int x, int y) {
        if (other != rank) {
            tma_load_multicast(box + first * ROW_BYTES, map, x, y + first, full, uint16_t(1 << rank | 1 << other));
        } else {
            tma_load(box, map, x, y, full);
        }
    };
    if constexpr (MN) {
#pragma unroll 1
        for (int i = 0; i < rows; i += 64) load(to + i * ROW_BYTES, row + i, k);
    } else {
        load(to, k, row);
    }
}

template <bool A_MN, bool B_MN, typename C>
__device__ __forceinline__ void produce(const Maps& maps, const Work& work, uint32_t shared, const Member& member,
                                        Ring ring) {
    for (int index = blockIdx.x / work.cluster; index < work.shares(); index += gridDim.x / work.cluster) {
        const FittedShare share(work, index, member);
#pragma unroll 1
        for (int k = share.begin; k < share.end; ++k) {
            const uint32_t full = ring.full + ring.stage * MBARRIER_BYTES, b = shared + ring.stage * work.stage_bytes;
            mbarrier_wait_parity(ring.empty + ring.stage * MBARRIER_BYTES, ring.phase ^ 1);
            mbarrier_arrive_expect_tx(full, work.stage_bytes);
            load_stage<B_MN>(&maps.b, b, share.column * C::COUNT, k * BLOCK_K, C::COUNT, member.rank, member.below,
                             member.y, full);
            load_stage<A_MN>(&maps.a, b + C::BYTES, share.row * work.rows, k * BLOCK_K, work.rows, member.rank,
                             member.beside, member.x, full);
            ring.advance();
        }
    }
    // A block does not exit while another one may still arrive at its barriers.
    if (work.cluster > 1) {
        for (int i = 0; i < work.stages; ++i) {
            mbarrier_wait_parity(ring.empty + ring.stage * MBARRIER_BYTES, ring.phase ^ 1);
            ring.advance();
        }
    }
}

// The barriers at which a consumer thread arrives when a stage has been read, one thread for each block that loads a
// part of the stage. 0 for the other threads.
__device__ __forceinline__ uint32_t empty_to_signal(const Member& member, uint32_t empty, int thread) {
    if (thread > member.partners) return 0;
    if (member.partners == 0) return empty;
    const int other = thread == 1 && member.beside != member.rank ? member.beside : member.below;
    return map_shared_rank(empty, thread == 0 ? member.rank : other);
}

__device__ __forceinline__ void release(const Work& work, uint32_t to_signal, int stage) {
    if (to_signal == 0) return;
    if (work.cluster > 1) {
        mbarrier_arrive_cluster(to_signal + stage * MBARRIER_BYTES);
    } else {
        mbarrier_arrive(to_signal + stage * MBARRIER_BYTES);
    }
}

// acc += the products of the next `count` stages, for work.rows rows of out.
template <typename T, bool A_MN, bool B_MN, typename C>
__device__ __forceinline__ void multiply(float (&acc)[C::ROWS / 2], const Work& work, uint32_t shared, int consumer,
                                         uint32_t to_signal, int count, Ring& ring) {
    int previous = -1;
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
        const uint32_t tile = shared + ring.stage * work.stage_bytes;
        const uint64_t b = wgmma_descriptor(tile + consumer * BOX_BYTES, BOX_BYTES);
        const uint64_t a = wgmma_descriptor(tile + C::BYTES, BOX_BYTES);
        mbarrier_wait_parity(ring.full + ring.stage * MBARRIER_BYTES, ring.phase);
        multiply_stage<T, B_MN, A_MN>(acc, b, a, work.rows / 16 - 1);
        wgmma_wait_group<1>();
        if (previous >= 0) release(work, to_signal, previous);
        previous = ring.stage;
        ring.advance();
    }
    wgmma_wait_group<0>();
    if (previous >= 0) release(work, to_signal, previous);
}

// Stores the sums of work.rows rows from m on and 64 columns from n on. 64 rows are written to a box, and stored from
// there 16 at a time, while the next rows are written to the other box.
template <typename T, typename C>
__device__ __forceinline__ void store(const CUtensorMap* map, const float (&acc)[C::ROWS / 2], int rows, uint32_t boxes,
                                      int consumer, int thread, int m, int n, int& turn) {
    const int lane = thread % 32, row = lane / 16 * 8 + lane % 8, chunk = thread / 32 * 2 + lane / 8 % 2;
#pragma unroll
    for (int first = 0; first < C::ROWS; first += 64) {
        if (first >= rows) continue;
        const uint32_t box = boxes + turn * BOX_BYTES;
        turn ^= 1;
        if (thread == 0) tma_store_wait_group_read<C::BOXES - 1>();
        named_barrier_sync(1 + consumer, WARPGROUP);
#pragma unroll
        for (int i = 0; i < 64 && first + i < C::ROWS; i += 16) {
            const float* const sums = &acc[(first + i) / 2];  // rows 0 to 7, then rows 8 to 15
            stmatrix_x4_transposed(box + (i + row) * ROW_BYTES + (chunk ^ row % 8) * 16,
                                   rounded_pair<T>(sums[0], sums[1]), rounded_pair<T>(sums[2], sums[3]),
                                   rounded_pair<T>(sums[4], sums[5]), rounded_pair<T>(sums[6], sums[7]));
        }
        fence_proxy_async();
        named_barrier_sync(1 + consumer, WARPGROUP);
        if (thread == 0) {
            for (int i = 0; i < min(64, rows - first); i += C::BOX_ROWS) {
                tma_store(map, box + i * ROW_BYTES, n, m + first + i);
            }
            tma_store_commit_group();
        }
    }
}

// Stores the sums of a part from registers: eight neighbouring threads write 32 neighbouring bytes.
template <typename C>
__device__ __forceinline__ void store_part(float* __restrict__ sums, const float (&acc)[C::ROWS / 2], int rows,
                                           int thread, int m, int n, int M, int N) {
    const int column = n + thread / 32 * 16 + thread % 32 / 4, row = thread % 4 * 2, end = min(rows, M - m);
    const bool low = column < N, high = column + 8 < N;
    float* to = sums + int64_t(m + row) * N + column;
#pragma unroll
    for (int i = 0; i < C::ROWS / 2; i += 4, to += 8 * int64_t(N)) {
        const int r = i / 4 * 8 + row;
        if (r < end && low) to[0] = acc[i];
        if (r < end && high) to[8] = acc[i + 2];
        if (r + 1 < end && low) to[N] = acc[i + 1];
        if (r + 1 < end && high) to[N + 8] = acc[i + 3];
    }
}

template <typename T, bool A_MN, bool B_MN, typename C>
__global__ void __launch_bounds__(C::THREADS)
    matmul_fitted(const __grid_constant__ Maps maps, const __grid_constant__ Work work, int M, int N) {
    extern __shared__ char raw[];
    const uint32_t shared = (shared_address(raw) + BOX_ALIGNMENT - 1) / BOX_ALIGNMENT * BOX_ALIGNMENT;
    const uint32_t boxes = shared + work.stages * work.stage_bytes;
    const uint32_t barriers = boxes + C::CONSUMERS * C::BOXES * BOX_BYTES;
    const int consumer = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP, 0), thread = threadIdx.x % WARPGROUP;
    const Member member(work);
    Ring ring{barriers, barriers + MOST_STAGES * MBARRIER_BYTES, work.stages};
    if (threadIdx.x == C::PRODUCER) {
        tma_prefetch_descriptor(&maps.a);
        tma_prefetch_descriptor(&maps.b);
    }
    if (consumer == C::CONSUMERS && thread < work.stages) {
        mbarrier_init(ring.full + thread * MBARRIER_BYTES, 1);
        mbarrier_init(ring.empty + thread * MBARRIER_BYTES, C::CONSUMERS * (1 + member.partners));
        mbarrier_fence_init();
    }
    if (threadIdx.x == 0) tma_prefetch_descriptor(&maps.out);
    if (work.cluster > 1) {
        cluster_arrive_relaxed();
        cluster_wait();
    } else {
        __syncthreads();
    }

    if (consumer == C::CONSUMERS) {
        if constexpr (C::CONSUMERS > 1) setmaxnreg_dec<(C::CONSUMERS == 2 ? 40 : 32)>();
        if (threadIdx.x == C::PRODUCER) produce<A_MN, B_MN, C>(maps, work, shared, member, ring);
        return;
    }
    if constexpr (C::CONSUMERS > 1) setmaxnreg_inc<(C::CONSUMERS == 2 ? 232 : 160)>();
    const uint32_t to_signal = empty_to_signal(member, ring.empty, thread);
    int turn = 0;
    for (int index = blockIdx.x / work.cluster; index < work.shares(); index += gridDim.x / work.cluster) {
        const FittedShare share(work, index, member);
        const int m = share.row * work.rows, n = share.column * C::COUNT + consumer * 64;
        int count = share.end - share.begin;
        asm volatile("" : "+r"(count));  // keeps the computation out of the steps
        float acc[C::ROWS / 2] = {};
        multiply<T, A_MN, B_MN, C>(acc, work, shared, consumer, to_signal, count, ring);
        warpgroup_fence_operand(acc);
        if (work.parts > 1) {
            store_part<C>(work.sums + share.part * int64_t(M) * N, acc, work.rows, thread, m, n, M, N);
        } else {
            store<T, C>(&maps.out, acc, work.rows, boxes + consumer * C::BOXES * BOX_BYTES, consumer, thread, m, n,
                        turn);
        }
    }
    if (thread == 0) tma_store_wait_group_read<0>();
}

constexpr int ADD_THREADS = 256, ADD_LOADS = 8;

// out = the sum of the parts, in order; a thread adds four neighbours.
template <typename T>
__global__ void __launch_bounds__(ADD_THREADS)
    add_parts_by_rows(const float* __restrict__ sums, T* __restrict__ out, int64_t count, int parts) {
    const int64_t first = (int64_t(blockIdx.x) * ADD_THREADS + threadIdx.x) * 4;
    if (first >= count) return;
    Pack<float, 4> total = {};
#pragma unroll 1
    for (int part = 0; part < parts; part += ADD_LOADS) {
        Pack<float, 4> x[ADD_LOADS];
#pragma unroll
        for (int i = 0; i < ADD_LOADS; ++i) {
            x[i] = *reinterpret_cast<const Pack<float, 4>*>(sums + min(part + i, parts - 1) * count + first);
        }
#pragma unroll
        for (int i = 0; i < ADD_LOADS; ++i) {
            for (int c = 0; c < 4; ++c) total[c] += part + i < parts ? x[i][c] : 0.0f;
        }
    }
    Pack<T, 4> rounded;
#pragma unroll
    for (int i = 0; i < 4; ++i) rounded[i] = from_float<T>(total[i]);
    *reinterpret_cast<Pack<T, 4>*>(out + first) = rounded;
}

template <typename T, bool A_MN, bool B_MN, typename C>
cudaError_t launch(const MatrixOperand& a, const MatrixOperand& b, void* out, int64_t K, int rows, Sharing sharing,
                   int parts, float* sums, cudaStream_t stream, LaunchRecord* record) {
    const int64_t M = a.rows, N = b.rows;
    const int steps = int(ceil_div<int64_t>(K, BLOCK_K)), of_a = sharing & SHARE_A ? 2 : 1;
    const int of_b = sharing & SHARE_B ? 2 : 1, cluster = of_a * of_b;  // blocks that share b; blocks of a cluster
    const int stage_bytes = C::BYTES + (A_MN ? ceil_div(rows, 64) * 64 : rows) * ROW_BYTES;
    const int fixed = BOX_ALIGNMENT + C::CONSUMERS * C::BOXES * BOX_BYTES + BARRIER_BYTES;
    const int stages = min(MOST_STAGES, (MAX_SHARED_BYTES - fixed) / stage_bytes);
    const GroupedTileScheduler<GROUP> tiles(ceil_div<int64_t>(N, C::COUNT * of_a), ceil_div<int64_t>(M, rows * of_b));
    const Work work{tiles, FastDivisor(tiles.count()), sharing, cluster, rows, stages, stage_bytes, parts,
                    steps / parts, steps % parts, sums};
    Maps maps = {};
    if (rows % 16 != 0 || rows < 16 || rows > C::ROWS || parts > steps ||
        !encode_operand_map<T>(&maps.a, a, K, rows / of_a, BLOCK_K / of_a) ||
        !encode_operand_map<T>(&maps.b, b, K, C::COUNT / of_b, BLOCK_K / of_b) ||
        !encode_tensor_map(&maps.out, TENSOR_MAP_TYPE<T>, sizeof(T), out, N, M, N, C::BOX_ROWS)) {
        return cudaErrorInvalidValue;
    }
    const int64_t shares = int64_t(tiles.count()) * parts;
    int clusters = multiprocessor_count() / cluster;
    if (cluster > 2) {
        static const int active = active_clusters(4, matmul_fitted<T, A_MN, B_MN, C>, C::THREADS, MAX_SHARED_BYTES);
        clusters = max(1, min(clusters, active));
    }
    const int64_t waves = ceil_div<int64_t>(shares, clusters);
    const dim3 grid(unsigned(ceil_div<int64_t>(shares, waves) * cluster));
    const cudaError_t error =
        launch_clusters_up_to(MAX_SHARED_BYTES, cluster, matmul_fitted<T, A_MN, B_MN, C>, grid, C::THREADS,
                              size_t(fixed + stages * stage_bytes), stream, record, maps, work, M, N);
    if (error != cudaSuccess || parts == 1) return error;
    const dim3 blocks(unsigned(ceil_div<int64_t>(M * N, 4 * ADD_THREADS)));
    record->set(blocks, ADD_THREADS);
    add_parts_by_rows<<<blocks, ADD_THREADS, 0, stream>>>(sums, static_cast<T*>(out), M * N, parts);
    return cudaGetLastError();
}

// Arguments as for matmul_wgmma; N is a multiple of 8. A tile has 64, 128 or 192 `columns`, and `rows`, a multiple of
// 16 up to 256, or up to 192 with 192 columns. `sharing` is a value of Sharing.
template <typename T>
int run(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K, int64_t a_mn, int64_t a_stride,
        int64_t b_mn, int64_t b_stride, int64_t columns, int64_t rows, int64_t sharing, int64_t parts, float* sums,
        cudaStream_t stream, LaunchRecord* record) {
    const MatrixOperand left{a, a_mn != 0, M, a_stride}, right{b, b_mn != 0, N, b_stride};
    const auto with = [&](auto across_a, auto across_b) {
        const auto run = [&](auto config) {
            return launch<T, decltype(across_a)::value, decltype(across_b)::value, decltype(config)>(
                left, right, out, K, int(rows), Sharing(sharing), int(parts), sums, stream, record);
        };
        switch (columns) {
            case 64: return run(Columns<1, 256>());
            case 128: return run(Columns<2, 256>());
            case 192: return run(Columns<3, 192>());
            default: return cudaErrorInvalidValue;
        }
    };
    constexpr std::true_type yes;
    constexpr std::false_type no;
    return a_mn ? b_mn ? with(yes, yes) : with(yes, no) : b_mn ? with(no, yes) : with(no, no);
}
