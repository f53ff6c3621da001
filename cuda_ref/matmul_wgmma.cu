// out[m, n] = sum over k of a[m, k] * b[k, n], on Hopper's tensor cores, from tiles that TMA brings
//
// requires: sm_90a
//
// What this adds to matmul_double_buffered.cu is the tensor cores, and blocks whose warps have different jobs. One
// thread copies, by TMA, which needs no registers and swizzles the tiles on their way. Two warpgroups of 128 threads
// multiply 64 rows each with wgmma, which reads its factors from shared memory: 2048 multiply-adds a cycle, against
// 128. The ring of STAGES tiles between them is guarded by two mbarriers a stage, and copies run ahead by as many.
// Measured gain: see docs/ladder.md
//
// To keep the tensor cores busy, less has to be moved for each product:
//   - 128 x 256 outputs a block: 85 products for each number that comes to shared memory.
//   - Two blocks, one below the other, form a cluster. Each fetches half of the tile of b, for both (multicast).
//   - Blocks stay and go from tile to tile. While the sums of one are rounded and stored, by TMA too, the copies for
//     the next are under way.
//   - Tiles are visited in bands (tiles.cuh), so that what is worked on at one time is nearly a square of out.
// An output that has too few of such tiles for the device takes 64 x 128, one warpgroup a block, and no clusters.
//
// Precision. 16 bits: products are exact, sums float32. float32: `tf32` only; TMA rounds the factors as it copies them.
// float8: products are exact, but tensor cores keep 14 bits of their sums only. `fast` accepts that; `promoted` has
// them sum 128 products at a time, and adds these sums in float32 while they work for the other warpgroup.
//
// Layouts. An operand is K-major if it is contiguous along k, else MN-major. wgmma takes either in 16 bits, and only
// K-major ones in float8. In tf32 too its factors in shared memory must be K-major, but the left one may come from
// registers instead, so one operand may be MN-major: a as it is; b by computing out^T = b^T a^T and transposing on the
// way out.
//
// Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"; producer and consumer warpgroups, multicast and
// persistent blocks as in CUTLASS 3 (its "warp-specialized cooperative" kernels).
#include <algorithm>

#include "hopper.cuh"
#include "tiles.cuh"

constexpr int ROW_BYTES = 128;  // of a row of a box in shared memory: BLOCK_K elements of a K-major operand
constexpr int BOX_BYTES = 64 * ROW_BYTES;
constexpr int WARPGROUP = 128;
constexpr int FLOAT8 = 3;  // a Dtype that this file has beyond the others

// How a block works. CONSUMERS warpgroups multiply 64 rows each. CLUSTER blocks below each other share b. Tiles are
// visited in bands of BAND rows of tiles.
template <int CONSUMERS_, int BLOCK_N_, int STAGES_, int CLUSTER_, int BAND_>
struct Plan {
    static constexpr int CONSUMERS = CONSUMERS_, BLOCK_M = CONSUMERS * 64, BLOCK_N = BLOCK_N_, STAGES = STAGES_;
    static constexpr int CLUSTER = CLUSTER_, BAND = BAND_;
    // Warps that do not multiply: a warpgroup where registers are to be exchanged with it, else the one that copies.
    static constexpr int THREADS = CONSUMERS * WARPGROUP + (CONSUMERS > 1 ? WARPGROUP : 32);
    static constexpr int A_BYTES = BLOCK_M * ROW_BYTES, B_BYTES = BLOCK_N * ROW_BYTES;
    static constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
    static constexpr int OUT = STAGES * STAGE_BYTES;                  // where two boxes a consumer wait to be stored
    static constexpr int BARRIERS = OUT + CONSUMERS * 2 * BOX_BYTES;  // STAGES full ones, then STAGES empty ones
    static constexpr int BYTES = 1024 + BARRIERS + 2 * STAGES * 8;    // 1024 to start on a multiple of that
    static_assert(BYTES <= 227 * 1024 && CONSUMERS <= 2, "");
};
using Large = Plan<2, 256, 4, 2, 8>;
using Small = Plan<1, 128, 6, 1, 4>;

struct Maps {
    CUtensorMap a, b, out;
};

// Copies ROWS rows of an operand, from `row` on, and the k of one stage, from `k` on: a box for all, or if the operand
// is MN-major, whose boxes have the rows in their lines, as many as it takes.
template <typename T, bool MN, int ROWS, typename Load>
__device__ __forceinline__ void load_boxes(uint32_t to, int row, int k, Load load) {
    if constexpr (MN) {
#pragma unroll
        for (int i = 0; i < ROWS; i += ROW_BYTES / sizeof(T)) load(to + i * ROW_BYTES, row + i, k);
    } else {
        load(to, k, row);
    }
}

// Where this block stands in its cluster, from above.
template <typename P>
__device__ __forceinline__ int place() {
    return P::CLUSTER > 1 ? int(cluster_rank()) : 0;
}

// The thread that fetches: fills a stage whenever all that read it, in all blocks that it is filled for, have done so.
template <typename T, bool A_MN, bool B_MN, typename P>
__device__ __forceinline__ void produce(const Maps& maps, const Bands<P::BAND>& tiles, uint32_t shared, int steps) {
    constexpr int BLOCK_K = ROW_BYTES / sizeof(T), SHARE = P::BLOCK_N / P::CLUSTER;  // rows of b that it fetches
    static_assert(!B_MN || SHARE * sizeof(T) % ROW_BYTES == 0, "a share of b is whole boxes");
    const int rank = place<P>();
    const uint32_t full = shared + P::BARRIERS, empty = full + P::STAGES * 8;
    auto load_a = [&](int stage, Tile tile, int k) {
        const int row = (tile.m * P::CLUSTER + rank) * P::BLOCK_M;
        load_boxes<T, A_MN, P::BLOCK_M>(
            shared + stage * P::STAGE_BYTES, row, k * BLOCK_K,
            [&](uint32_t to, int x, int y) { tma_load(to, &maps.a, x, y, full + stage * 8); });
    };
    auto load_b = [&](int stage, Tile tile, int k, int share, bool for_all) {
        const uint32_t to = shared + stage * P::STAGE_BYTES + P::A_BYTES + share * SHARE * ROW_BYTES;
        const int column = tile.n * P::BLOCK_N + share * SHARE;
        load_boxes<T, B_MN, SHARE>(to, column, k * BLOCK_K, [&](uint32_t box, int x, int y) {
            if (for_all) {
                tma_load_multicast(box, &maps.b, x, y, full + stage * 8, (1 << P::CLUSTER) - 1);
            } else {
                tma_load(box, &maps.b, x, y, full + stage * 8);
            }
        });
    };
    // The first stages a block fills alone: others of the cluster may not have their barriers yet.
    const int alone = min(steps, P::STAGES);
    const int mine = blockIdx.x / P::CLUSTER, clusters = gridDim.x / P::CLUSTER;
    Tile tile = tiles[mine];
    for (int stage = 0; stage < alone; ++stage) {
        mbarrier_expect(full + stage * 8, P::STAGE_BYTES);
        load_a(stage, tile, stage);
        for (int share = 0; share < P::CLUSTER; ++share) load_b(stage, tile, stage, share, false);
    }
    if constexpr (P::CLUSTER > 1) cluster_wait();
    int stage = alone % P::STAGES, k = alone;
    uint32_t phase = alone / P::STAGES;
    for (int index = mine; index < tiles.count(); index += clusters, k = 0) {
        if (index != mine) tile = tiles[index];
#pragma unroll 1
        for (; k < steps; ++k) {
            mbarrier_wait(empty + stage * 8, phase ^ 1);
            mbarrier_expect(full + stage * 8, P::STAGE_BYTES);
            load_a(stage, tile, k);
            load_b(stage, tile, k, rank, P::CLUSTER > 1);
            if (++stage == P::STAGES) stage = 0, phase ^= 1;
        }
    }
    // A block must not be gone while its neighbour may still arrive here: waits until every stage has been given back.
    if constexpr (P::CLUSTER > 1) {
        for (int i = 0; i < P::STAGES; ++i) {
            mbarrier_wait(empty + stage * 8, phase ^ 1);
            if (++stage == P::STAGES) stage = 0, phase ^= 1;
        }
    }
}

// The first empty barrier of the block that this thread of a consumer tells when a stage has been read: each block that
// fills it is told by one thread. 0 for the other threads.
template <typename P>
__device__ __forceinline__ uint32_t to_be_told(uint32_t empty, int thread) {
    if (thread >= P::CLUSTER) return 0;
    return P::CLUSTER > 1 ? cluster_address(empty, thread) : empty;
}

// Where the tiles are that a consumer has reached.
template <typename P>
struct Ring {
    uint32_t full, empty;  // addresses of the first barriers, as for to_be_told
    int stage, before;     // `before` is still being read; -1 if there is none
    uint32_t phase;

    __device__ __forceinline__ void wait() const { mbarrier_wait(full + stage * 8, phase); }

    // Once all products but those of the last stage are known to be done.
    __device__ __forceinline__ void release() const {
        if (empty == 0 || before < 0) return;
        if constexpr (P::CLUSTER > 1) {
            mbarrier_arrive_cluster(empty + before * 8);
        } else {
            mbarrier_arrive(empty + before * 8);
        }
    }

    __device__ __forceinline__ void advance() {
        before = stage;
        if (++stage == P::STAGES) stage = 0, phase ^= 1;
    }
};

// acc += the products of the next `count` stages.
template <typename T, bool A_MN, bool B_MN, typename P>
__device__ __forceinline__ void multiply(float (&acc)[P::BLOCK_N / 2], uint32_t shared, int consumer, int count,
                                         Ring<P>& ring) {
    constexpr int ALONG = 32 >> 4, ACROSS = 16 * ROW_BYTES >> 4;  // the next K elements of 16 bits, in 16 bytes
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
        const uint32_t tile = shared + ring.stage * P::STAGE_BYTES;
        const uint64_t a = wgmma_operand(tile + consumer * BOX_BYTES, BOX_BYTES);
        const uint64_t b = wgmma_operand(tile + P::A_BYTES, BOX_BYTES);
        ring.wait();
        wgmma_fence();
#pragma unroll
        for (int part = 0; part < 4; ++part) {
            wgmma<T, A_MN, B_MN>(acc, a + part * (A_MN ? ACROSS : ALONG), b + part * (B_MN ? ACROSS : ALONG));
        }
        wgmma_commit();
        wgmma_wait<1>();
        ring.release();
        ring.advance();
    }
    wgmma_wait<0>();
    wgmma_settle(acc);
    ring.release();
    ring.before = -1;
}

// The same of float8, where the 128 products of a stage are summed from zero, for 128 columns at a time: more would not
// fit into registers. While this warpgroup adds these sums to the others, the tensor cores have the other's products.
template <typename P>
__device__ __forceinline__ void multiply_promoted(float (&acc)[P::BLOCK_N / 2], uint32_t shared, int consumer,
                                                  int count, Ring<P>& ring) {
    static_assert(P::BLOCK_N % 128 == 0, "");
    float sums[64] = {};
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
        const uint32_t tile = shared + ring.stage * P::STAGE_BYTES;
        const uint64_t a = wgmma_operand(tile + consumer * BOX_BYTES, 0);
        ring.wait();
#pragma unroll
        for (int j = 0; j < P::BLOCK_N / 2; j += 64) {
            const uint64_t b = wgmma_operand(tile + P::A_BYTES + j * 2 * ROW_BYTES, 0);
            wgmma_fence();
            wgmma<Float8, false, false, false>(sums, a, b);
#pragma unroll
            for (int part = 1; part < 4; ++part) {
                wgmma<Float8, false, false>(sums, a + part * (32 >> 4), b + part * (32 >> 4));
            }
            wgmma_commit();
            wgmma_wait<0>();
            wgmma_settle(sums);
            if (j + 64 == P::BLOCK_N / 2) {
                ring.advance();
                ring.release();
            }
#pragma unroll
            for (int c = 0; c < 64; ++c) acc[j + c] += sums[c];
        }
    }
    ring.before = -1;
}

// In tf32 shared memory must be K-major. Where a is not, threads read its elements, and wgmma takes them from
// registers. A warp reads eight rows and four k at once. If these rows are two groups of four, 16 apart, then in their
// swizzled box they meet 32 banks. So which row of the tile is called row r of the product is chosen to be row_of(r).
__device__ __forceinline__ int row_of(int r) { return r / 32 * 32 + r % 32 / 8 * 4 + r % 8 / 4 * 16 + r % 4; }

template <typename P>
__device__ __forceinline__ void multiply_from_registers(float (&acc)[P::BLOCK_N / 2], uint32_t shared,
                                                        const char* stages, int consumer, int thread, int count,
                                                        Ring<P>& ring) {
    uint32_t even[16], odd[16];  // the elements of four products, of this stage and of the one before
    int offset[4];               // of the four elements for one product; the next has the next eight rows of the box
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int row = row_of(thread / 32 * 16 + thread % 32 / 4 + i % 2 * 8), k = thread % 4 + i / 2 * 4;
        const int box = consumer * BOX_BYTES + row / 32 * 32 * ROW_BYTES;
        offset[i] = box + k * ROW_BYTES + (row % 32 / 4 ^ k) * 16 + row % 4 * 4;
    }
    auto step = [&](uint32_t(&now)[16], uint32_t(&before)[16]) {
        const int tile = ring.stage * P::STAGE_BYTES;
        const uint64_t b = wgmma_operand(shared + tile + P::A_BYTES, 0);
        ring.wait();
#pragma unroll
        for (int j = 0; j < 16; ++j) {
            now[j] = *reinterpret_cast<const uint32_t*>(stages + tile + offset[j % 4] + j / 4 * 8 * ROW_BYTES);
        }
        wgmma_fence();
#pragma unroll
        for (int part = 0; part < 4; ++part) wgmma(acc, now + part * 4, b + part * (32 >> 4));
        wgmma_commit();
        wgmma_wait<1>();
        wgmma_settle(before);
        ring.release();
        ring.advance();
    };
#pragma unroll 1
    for (int i = 0; i + 1 < count; i += 2) {
        step(even, odd);
        step(odd, even);
    }
    if (count % 2) step(even, odd);
    wgmma_wait<0>();
    wgmma_settle(acc);
    wgmma_settle(even);
    ring.release();
    ring.before = -1;
}

// Writes 64 rows of sums, from column 8 j on, to a box of 128 bytes' worth of columns, rounded and swizzled.
template <typename T, bool PERMUTED, int COUNT>
__device__ __forceinline__ void fill_box(uint32_t box, const float (&acc)[COUNT], int j, int thread) {
    const int lane = thread % 32, warp_row = thread / 32 * 16;
    if constexpr (sizeof(T) == 2) {
        // stmatrix writes four 8 x 8 matrices; lane l says where row l % 8 of matrix l / 8 goes.
        const int row = warp_row + lane % 16, chunk = lane / 16;
#pragma unroll
        for (int i = 0; i < 8; i += 2) {
            uint32_t x[4];
#pragma unroll
            for (int matrix = 0; matrix < 4; ++matrix) {
                const float* pair = &acc[(j + i) * 4 + matrix * 2];
                const Pack<T, 2> rounded = {from_float<T>(pair[0]), from_float<T>(pair[1])};
                memcpy(&x[matrix], &rounded, 4);
            }
            stmatrix(box + row * ROW_BYTES + ((i + chunk) ^ row % 8) * 16, x);
        }
    } else {
#pragma unroll
        for (int i = 0; i < 8; ++i) {  // four times eight columns, of rows r and r + 8
            const int r = warp_row + lane / 4 + i % 2 * 8, row = PERMUTED ? row_of(r) : r;
            const int chunk = i / 2 * 2 + lane % 4 / 2;
            const float* pair = &acc[(j + i / 2) * 4 + i % 2 * 2];
            store_shared(box + row * ROW_BYTES + (chunk ^ row % 8) * 16 + lane % 2 * 8, make_float2(pair[0], pair[1]));
        }
    }
}

// The transpose of 64 rows and 64 columns of sums, from column 8 j on, to two boxes of 64 rows and 32 columns; float32.
template <int COUNT>
__device__ __forceinline__ void fill_boxes_transposed(uint32_t boxes, const float (&acc)[COUNT], int j, int thread) {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
        const int column = row_of(thread / 32 * 16 + thread % 32 / 4 + i % 4 / 2 * 8);
        const int row = i / 4 * 8 + thread % 4 * 2 + i % 2;
        const int offset = row * ROW_BYTES + (column % 32 / 4 ^ row % 8) * 16 + column % 4 * 4;
        store_shared(boxes + column / 32 * BOX_BYTES + offset, acc[j * 4 + i]);
    }
}

// Stores a box of 64 rows to out, from (m, n) on: TMA does, unless the rows of out are no multiple of 16 bytes.
template <typename T>
__device__ __forceinline__ void store_box(const CUtensorMap* map, T* __restrict__ out, uint32_t shared, const char* box,
                                          int thread, int m, int n, int M, int N) {
    constexpr int COLUMNS = ROW_BYTES / sizeof(T);
    if (N % (16 / sizeof(T)) == 0) {
        if (thread == 0) tma_store(map, shared, n, m);
    } else {
#pragma unroll 1
        for (int i = thread; i < 64 * COLUMNS; i += WARPGROUP) {
            const int row = i / COLUMNS, column = i % COLUMNS, byte = column * sizeof(T);
            const char* x = box + row * ROW_BYTES + (byte / 16 ^ row % 8) * 16 + byte % 16;
            if (m + row < M && n + column < N) out[int64_t(m + row) * N + n + column] = *reinterpret_cast<const T*>(x);
        }
    }
}

// Stores the 64 rows of a warpgroup, from (m, n) of its product on, box by box, while TMA reads the box before. If
// TRANSPOSED, out is the product's transpose; M and N are its own sizes in either case.
template <typename T, bool PERMUTED, bool TRANSPOSED, int COUNT>
__device__ __forceinline__ void store(const CUtensorMap* map, T* __restrict__ out, const float (&acc)[COUNT],
                                      uint32_t shared, const char* boxes, int consumer, int thread, int m, int n, int M,
                                      int N) {
    constexpr int COLUMNS = TRANSPOSED ? 64 : ROW_BYTES / sizeof(T);  // of the product, that are stored at once
#pragma unroll
    for (int j = 0; j < COUNT / 4; j += COLUMNS / 8) {
        const int offset = TRANSPOSED ? 0 : j / (COLUMNS / 8) % 2 * BOX_BYTES;
        if (thread == 0) tma_store_wait_read<TRANSPOSED ? 0 : 1>();
        named_barrier(1 + consumer, WARPGROUP);  // the boxes may be overwritten
        if constexpr (TRANSPOSED) {
            fill_boxes_transposed(shared, acc, j, thread);
        } else {
            fill_box<T, PERMUTED>(shared + offset, acc, j, thread);
        }
        fence_async_shared();
        named_barrier(1 + consumer, WARPGROUP);
        if constexpr (TRANSPOSED) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int box = i * BOX_BYTES;
                store_box(map, out, shared + box, boxes + box, thread, n + j * 8, m + i * 32, M, N);
            }
        } else {
            store_box(map, out, shared + offset, boxes + offset, thread, m, n + j * 8, M, N);
        }
        if (thread == 0) tma_store_commit();
    }
}

template <typename T>
using Output = std::conditional_t<std::is_same_v<T, Float8>, __nv_bfloat16, T>;

// Two consumers are given registers of the threads that do not multiply: 3 x 168 are divided into 40 and 2 x 232.
template <typename T, bool A_MN, bool B_MN, bool TRANSPOSED, bool PROMOTED, typename P>
__global__ void __launch_bounds__(P::THREADS)
    matmul_wgmma(const __grid_constant__ Maps maps, const Bands<P::BAND> tiles, Output<T>* __restrict__ out, int M,
                 int N, int K, const float* __restrict__ a_scale, const float* __restrict__ b_scale) {
    constexpr bool FROM_REGISTERS = A_MN && sizeof(T) == 4;
    constexpr int BLOCK_K = ROW_BYTES / sizeof(T), PRODUCER = P::CONSUMERS * WARPGROUP;
    extern __shared__ char raw[];
    char* const stages = raw + (-shared_address(raw) & 1023);
    const uint32_t shared = shared_address(stages);
    const int consumer = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP, 0), thread = threadIdx.x % WARPGROUP;
    const int out_rows = TRANSPOSED ? N : M, out_columns = TRANSPOSED ? M : N;
    const int steps = ceil_div(K, BLOCK_K);

    if (threadIdx.x == PRODUCER) {
        tma_prefetch(&maps.a);
        tma_prefetch(&maps.b);
        for (int stage = 0; stage < P::STAGES; ++stage) {
            mbarrier_init(shared + P::BARRIERS + stage * 8, 1);
            mbarrier_init(shared + P::BARRIERS + (P::STAGES + stage) * 8, P::CONSUMERS * P::CLUSTER);
        }
        mbarrier_fence_init();
    }
    if (threadIdx.x == 0 && out_columns % (16 / sizeof(*out)) == 0) tma_prefetch(&maps.out);
    // Nobody may arrive at barriers, or write to another block, before they are ready there.
    if constexpr (P::CLUSTER > 1) {
        cluster_arrive_relaxed();
    } else {
        __syncthreads();
    }

    if (consumer == P::CONSUMERS) {
        if constexpr (P::CONSUMERS > 1) give_up_registers<40>();
        if (threadIdx.x == PRODUCER) {
            produce<T, A_MN, B_MN, P>(maps, tiles, shared, steps);
        } else if constexpr (P::CLUSTER > 1) {
            cluster_wait();
        }
    } else {
        if constexpr (P::CONSUMERS > 1) take_registers<232>();
        if constexpr (P::CLUSTER > 1) cluster_wait();
        float scale = 1;
        if constexpr (std::is_same_v<T, Float8>) scale = *a_scale * *b_scale;
        const int rank = place<P>(), boxes = P::OUT + consumer * 2 * BOX_BYTES;
        const uint32_t full = shared + P::BARRIERS;
        Ring<P> ring{full, to_be_told<P>(full + P::STAGES * 8, thread), 0, -1, 0};
        for (int index = blockIdx.x / P::CLUSTER; index < tiles.count(); index += gridDim.x / P::CLUSTER) {
            const Tile tile = tiles[index];
            int m = (tile.m * P::CLUSTER + rank) * P::BLOCK_M + consumer * 64, n = tile.n * P::BLOCK_N;
            asm volatile("" : "+r"(m), "+r"(n));  // now, while the first products are waited for
            float acc[P::BLOCK_N / 2] = {};
            if constexpr (FROM_REGISTERS) {
                multiply_from_registers<P>(acc, shared, stages, consumer, thread, steps, ring);
            } else if constexpr (PROMOTED) {
                multiply_promoted<P>(acc, shared, consumer, steps, ring);
            } else {
                multiply<T, A_MN, B_MN, P>(acc, shared, consumer, steps, ring);
            }
            if constexpr (std::is_same_v<T, Float8>) {
#pragma unroll
                for (int i = 0; i < P::BLOCK_N / 2; ++i) acc[i] *= scale;
            }
            store<Output<T>, FROM_REGISTERS, TRANSPOSED>(&maps.out, out, acc, shared + boxes, stages + boxes, consumer,
                                                         thread, m, n, out_rows, out_columns);
        }
        if (thread == 0) tma_store_wait_read<0>();
    }
}

template <typename T>
constexpr CUtensorMapDataType MAP_TYPE = CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;  // rounds to tf32
template <>
constexpr CUtensorMapDataType MAP_TYPE<__half> = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
template <>
constexpr CUtensorMapDataType MAP_TYPE<__nv_bfloat16> = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
template <>
constexpr CUtensorMapDataType MAP_TYPE<Float8> = CU_TENSOR_MAP_DATA_TYPE_UINT8;

struct Operand {
    const void* at;
    bool mn;             // MN-major: its rows lie side by side, not its k
    int64_t rows;        // M or N
    int64_t stride;      // of the other dimension, in elements
    const float* scale;  // of float8
};

template <typename T>
bool operand_map(CUtensorMap* map, const Operand& x, int64_t K, int box_rows) {
    return tensor_map(map, MAP_TYPE<T>, sizeof(T), x.at, x.mn ? x.rows : K, x.mn ? K : x.rows, x.stride,
                      x.mn ? ROW_BYTES / int(sizeof(T)) : box_rows);
}

// The tiles of clusters in out, and how many of them a cluster gets, at most, if the device is full of clusters.
template <typename P>
Bands<P::BAND> tiles_of(int64_t M, int64_t N) {
    return {ceil_div<int64_t>(M, P::BLOCK_M * P::CLUSTER), ceil_div<int64_t>(N, P::BLOCK_N)};
}
template <typename P>
int64_t rounds(int64_t M, int64_t N, int multiprocessors) {
    return ceil_div<int64_t>(tiles_of<P>(M, N).count(), multiprocessors / P::CLUSTER);
}

template <typename T, bool A_MN, bool B_MN, bool TRANSPOSED, bool PROMOTED, typename P>
cudaError_t launch(const Operand& a, const Operand& b, void* out, int64_t K, int multiprocessors, cudaStream_t stream,
                   LaunchRecord* record) {
    using Out = Output<T>;
    const auto out_type = sizeof(T) == 4 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : MAP_TYPE<Out>;
    const int64_t M = a.rows, N = b.rows, out_rows = TRANSPOSED ? N : M, out_columns = TRANSPOSED ? M : N;
    const bool out_by_tma = out_columns % (16 / sizeof(Out)) == 0;
    Maps maps = {};
    if (!operand_map<T>(&maps.a, a, K, P::BLOCK_M) || !operand_map<T>(&maps.b, b, K, P::BLOCK_N / P::CLUSTER) ||
        (out_by_tma && !tensor_map(&maps.out, out_type, sizeof(Out), out, out_columns, out_rows, out_columns, 64))) {
        return cudaErrorInvalidValue;
    }
    // As few blocks as need no more rounds than all would: the device's power is better spent on them.
    const Bands<P::BAND> tiles = tiles_of<P>(M, N);
    const int64_t clusters = ceil_div<int64_t>(tiles.count(), rounds<P>(M, N, multiprocessors));
    const dim3 grid(unsigned(clusters * P::CLUSTER)), block(P::THREADS);
    record->set(grid, block, P::BYTES);
    return launch_clusters(P::CLUSTER, matmul_wgmma<T, A_MN, B_MN, TRANSPOSED, PROMOTED, P>, grid, block, P::BYTES,
                           stream, maps, tiles, static_cast<Out*>(out), M, N, K, a.scale, b.scale);
}

template <typename T, bool A_MN, bool B_MN, bool TRANSPOSED = false, bool PROMOTED = false>
cudaError_t launch(const Operand& a, const Operand& b, void* out, int64_t K, cudaStream_t stream,
                   LaunchRecord* record) {
    int device, multiprocessors;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    // A round of Large has the work of four of Small, and takes as long as 2.3: Small moves more for each product.
    if (16 * rounds<Large>(a.rows, b.rows, multiprocessors) <= 7 * rounds<Small>(a.rows, b.rows, multiprocessors)) {
        return launch<T, A_MN, B_MN, TRANSPOSED, PROMOTED, Large>(a, b, out, K, multiprocessors, stream, record);
    }
    return launch<T, A_MN, B_MN, TRANSPOSED, PROMOTED, Small>(a, b, out, K, multiprocessors, stream, record);
}

template <typename T>
cudaError_t by_layout(const Operand& a, const Operand& b, void* out, int64_t K, cudaStream_t stream,
                      LaunchRecord* record) {
    if constexpr (sizeof(T) == 2) {
        if (a.mn && b.mn) return launch<T, true, true>(a, b, out, K, stream, record);
        if (b.mn) return launch<T, false, true>(a, b, out, K, stream, record);
    } else {
        if (a.mn && b.mn) return cudaErrorNotSupported;
        if (b.mn) return launch<T, true, false, true>(b, a, out, K, stream, record);  // out^T = b^T a^T
    }
    if (a.mn) return launch<T, true, false>(a, b, out, K, stream, record);
    return launch<T, false, false>(a, b, out, K, stream, record);
}

// a_mn says that a[m, k] lies at a + m + k * a_stride, else at a + m * a_stride + k; b_mn, the same of n. The scales
// and `promoted` are for float8.
extern "C" int matmul_wgmma(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K, int64_t a_mn,
                            int64_t a_stride, int64_t b_mn, int64_t b_stride, const float* scale_a,
                            const float* scale_b, int64_t promoted, int64_t dtype, cudaStream_t stream,
                            LaunchRecord* record) {
    const Operand left{a, a_mn != 0, M, a_stride, scale_a}, right{b, b_mn != 0, N, b_stride, scale_b};
    switch (dtype) {
        case FLOAT32: return by_layout<float>(left, right, out, K, stream, record);
        case FLOAT16: return by_layout<__half>(left, right, out, K, stream, record);
        case BFLOAT16: return by_layout<__nv_bfloat16>(left, right, out, K, stream, record);
        case FLOAT8:
            if (left.mn || right.mn) return cudaErrorNotSupported;
            return promoted ? launch<Float8, false, false, false, true>(left, right, out, K, stream, record)
                            : launch<Float8, false, false>(left, right, out, K, stream, record);
        default: return cudaErrorInvalidValue;
    }
}
