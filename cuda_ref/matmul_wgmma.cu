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
//   - Tiles are visited in bands of GROUP tile rows, so that what is worked on at one time is nearly a square of out,
//     and the rows of a and columns of b that it needs are few enough for the L2 cache.
// An output that has too few of such tiles for the device takes 128 x 128, and two blocks a tile, which share K and add
// up through the shared memory of their cluster.
//
// Precision. 16 bits: products are exact, sums float32. float32: `tf32` only; TMA rounds the factors as it copies them.
//
// Layouts. An operand is K-major if it is contiguous along k, else MN-major. wgmma takes either in 16 bits. In tf32 its
// factors in shared memory must be K-major, but the left one may come from registers instead, so one operand may be
// MN-major: a as it is; b by computing out^T = b^T a^T and transposing on the way out.
//
// Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"; producer and consumer warpgroups, multicast and
// persistent blocks as in CUTLASS 3 (its "warp-specialized cooperative" kernels).
#include <algorithm>

#include "hopper.cuh"

constexpr int CONSUMERS = 2;            // warpgroups that multiply
constexpr int BLOCK_M = CONSUMERS * 64;
constexpr int ROW_BYTES = 128;          // of a row of a box in shared memory: BLOCK_K elements of a K-major operand
constexpr int BOX_BYTES = 64 * ROW_BYTES;
constexpr int WARPGROUP = 128;
constexpr int THREADS = (1 + CONSUMERS) * WARPGROUP;
constexpr int GROUP = 8;                // tile rows of clusters in a band

// How a block works. CLUSTER_M blocks below each other share b; SPLIT_K blocks share the products of one tile.
template <int BLOCK_N_, int STAGES_, int CLUSTER_M_, int SPLIT_K_>
struct Plan {
    static constexpr int BLOCK_N = BLOCK_N_, STAGES = STAGES_, CLUSTER_M = CLUSTER_M_, SPLIT_K = SPLIT_K_;
    static constexpr int CLUSTER = CLUSTER_M * SPLIT_K;
    static constexpr int A_BYTES = BLOCK_M * ROW_BYTES, B_BYTES = BLOCK_N * ROW_BYTES;
    static constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
    static constexpr int OUT = STAGES * STAGE_BYTES;                  // where two boxes a consumer wait to be stored
    static constexpr int BARRIERS = OUT + CONSUMERS * 2 * BOX_BYTES;  // STAGES full ones, then STAGES empty ones
    static constexpr int BYTES = 1024 + BARRIERS + 2 * STAGES * 8;    // 1024 to start on a multiple of that
    static_assert(BYTES <= 227 * 1024 && SPLIT_K <= 2 && BLOCK_N / CLUSTER_M % 64 == 0, "");
};
using Large = Plan<256, 4, 2, 1>;
using Small = Plan<128, 6, 1, 2>;

struct Maps {
    CUtensorMap a, b, out;
};

struct Tile {
    int m, n;
};

// Tile number `index`, in tiles of a cluster: down the rows of a band, then to the next column, then to the next band.
__device__ __forceinline__ Tile tile_at(int index, int tiles_m, int tiles_n) {
    const int band = index / (GROUP * tiles_n), within = index % (GROUP * tiles_n);
    const int rows = min(tiles_m - band * GROUP, GROUP);
    return {band * GROUP + within % rows, within / rows};
}

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

// The thread that fetches: fills a stage whenever all that read it, in all blocks that it is filled for, have done so.
template <typename T, bool A_MN, bool B_MN, typename P>
__device__ __forceinline__ void produce(const Maps& maps, uint32_t shared, int M, int N, int k_begin, int k_end,
                                        int tiles_m, int tiles_n) {
    constexpr int BLOCK_K = ROW_BYTES / sizeof(T), SHARE = P::BLOCK_N / P::CLUSTER_M;
    const int rank = cluster_rank(), m_rank = rank % P::CLUSTER_M;
    const uint16_t column = ((1 << P::CLUSTER_M) - 1) << (rank - m_rank);  // the blocks that share b
    const uint32_t full = shared + P::BARRIERS, empty = full + P::STAGES * 8;
    int stage = 0;
    uint32_t phase = 0;
    for (int index = blockIdx.x / P::CLUSTER; index < tiles_m * tiles_n; index += gridDim.x / P::CLUSTER) {
        const Tile tile = tile_at(index, tiles_m, tiles_n);
        const int m = (tile.m * P::CLUSTER_M + m_rank) * BLOCK_M, n = tile.n * P::BLOCK_N + m_rank * SHARE;
#pragma unroll 1
        for (int k = k_begin; k < k_end; ++k) {
            const uint32_t a_tile = shared + stage * P::STAGE_BYTES;
            const uint32_t b_share = a_tile + P::A_BYTES + m_rank * SHARE * ROW_BYTES;
            const uint32_t barrier = full + stage * 8;
            mbarrier_wait(empty + stage * 8, phase ^ 1);
            mbarrier_expect(barrier, P::STAGE_BYTES);
            load_boxes<T, A_MN, BLOCK_M>(a_tile, m, k * BLOCK_K, [&](uint32_t to, int x, int y) {
                tma_load(to, &maps.a, x, y, barrier);
            });
            load_boxes<T, B_MN, SHARE>(b_share, n, k * BLOCK_K, [&](uint32_t to, int x, int y) {
                if constexpr (P::CLUSTER_M > 1) {
                    tma_load_multicast(to, &maps.b, x, y, barrier, column);
                } else {
                    tma_load(to, &maps.b, x, y, barrier);
                }
            });
            if (++stage == P::STAGES) stage = 0, phase ^= 1;
        }
    }
    // A block must not be gone while its neighbour may still arrive here: waits until every stage has been given back.
    for (int i = 0; i < P::STAGES; ++i) {
        mbarrier_wait(empty + stage * 8, phase ^ 1);
        if (++stage == P::STAGES) stage = 0, phase ^= 1;
    }
}

// Tells the producers that fill it that this warpgroup has read a stage.
template <typename P>
__device__ __forceinline__ void release(uint32_t empty, int thread) {
    if constexpr (P::CLUSTER_M > 1) {
        const uint32_t rank = cluster_rank();
        if (thread < P::CLUSTER_M) mbarrier_arrive_cluster(cluster_address(empty, rank - rank % P::CLUSTER_M + thread));
    } else {
        if (thread == 0) mbarrier_arrive(empty);
    }
}

// Where the tiles are that a consumer has reached.
template <typename P>
struct Ring {
    uint32_t full;  // address of the first barrier; those of the empty ones follow
    int stage, before;  // `before` is still being read; -1 if there is none
    uint32_t phase;

    __device__ __forceinline__ void wait() const { mbarrier_wait(full + stage * 8, phase); }

    // Once all products but those of the last stage are known to be done.
    __device__ __forceinline__ void release(int thread) const {
        if (before >= 0) ::release<P>(full + (P::STAGES + before) * 8, thread);
    }

    __device__ __forceinline__ void advance() {
        before = stage;
        if (++stage == P::STAGES) stage = 0, phase ^= 1;
    }
};

// acc += the products of the next `count` stages.
template <typename T, bool A_MN, bool B_MN, typename P>
__device__ __forceinline__ void multiply(float (&acc)[P::BLOCK_N / 2], uint32_t shared, int consumer, int thread,
                                         int count, Ring<P>& ring) {
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
        ring.release(thread);
        ring.advance();
    }
    wgmma_wait<0>();
    wgmma_settle(acc);
    ring.release(thread);
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
        for (int i = 0; i < 16; ++i) {
            now[i] = *reinterpret_cast<const uint32_t*>(stages + tile + offset[i % 4] + i / 4 * 8 * ROW_BYTES);
        }
        wgmma_fence();
#pragma unroll
        for (int part = 0; part < 4; ++part) wgmma(acc, now + part * 4, b + part * (32 >> 4));
        wgmma_commit();
        wgmma_wait<1>();
        wgmma_settle(before);
        ring.release(thread);
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
    ring.release(thread);
    ring.before = -1;
}

// Adds the halves of a tile, which two blocks have summed: each gives away one warpgroup's and completes the other's.
template <typename P>
__device__ __forceinline__ void add_up(float (&acc)[P::BLOCK_N / 2], uint32_t shared, char* stages, int consumer,
                                       int thread) {
    const uint32_t half = cluster_rank() / P::CLUSTER_M, other = cluster_rank() ^ P::CLUSTER_M;
    cluster_sync();  // the stages have been read
    if (consumer != half) {
        const uint32_t remote = cluster_address(shared + thread * 16, other);
#pragma unroll
        for (int i = 0; i < P::BLOCK_N / 8; ++i) {
            store_cluster(remote + i * WARPGROUP * 16,
                          make_float4(acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]));
        }
    }
    cluster_sync();
    if (consumer == half) {
#pragma unroll
        for (int i = 0; i < P::BLOCK_N / 8; ++i) {
            const float4 x = reinterpret_cast<const float4*>(stages)[i * WARPGROUP + thread];
            acc[4 * i] += x.x, acc[4 * i + 1] += x.y, acc[4 * i + 2] += x.z, acc[4 * i + 3] += x.w;
        }
    }
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

// The 1 is what lets warpgroups exchange registers: 3 x 168 are divided into 40 and 2 x 232.
template <typename T, bool A_MN, bool B_MN, bool TRANSPOSED, typename P>
__global__ void __cluster_dims__(P::CLUSTER) __launch_bounds__(THREADS, 1)
    matmul_wgmma(const __grid_constant__ Maps maps, T* __restrict__ out, int M, int N, int K) {
    constexpr bool FROM_REGISTERS = A_MN && sizeof(T) == 4;
    constexpr int BLOCK_K = ROW_BYTES / sizeof(T);
    extern __shared__ char raw[];
    char* const stages = raw + (-shared_address(raw) & 1023);
    const uint32_t shared = shared_address(stages);
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP, 0), thread = threadIdx.x % WARPGROUP;
    const int tiles_m = ceil_div(M, BLOCK_M * P::CLUSTER_M), tiles_n = ceil_div(N, P::BLOCK_N);
    const int steps = ceil_div(K, BLOCK_K), part = cluster_rank() / P::CLUSTER_M;
    const int k_begin = steps * part / P::SPLIT_K, k_end = steps * (part + 1) / P::SPLIT_K;

    if (threadIdx.x == 0) {
        tma_prefetch(&maps.a);
        tma_prefetch(&maps.b);
        for (int stage = 0; stage < P::STAGES; ++stage) {
            mbarrier_init(shared + P::BARRIERS + stage * 8, 1);
            mbarrier_init(shared + P::BARRIERS + (P::STAGES + stage) * 8, CONSUMERS * P::CLUSTER_M);
        }
        mbarrier_fence_init();
    }
    cluster_sync_relaxed();  // nobody may write to a block, or arrive at its barriers, before that is ready

    if (warpgroup == 0) {
        give_up_registers<40>();
        if (threadIdx.x == 0) {
            produce<T, A_MN, B_MN, P>(maps, shared, M, N, k_begin, k_end, tiles_m, tiles_n);
        }
        __syncwarp();
        if constexpr (P::SPLIT_K > 1) {
            cluster_sync();
            cluster_sync();
        }
    } else {
        take_registers<232>();
        const int consumer = warpgroup - 1;
        const int boxes = P::OUT + consumer * 2 * BOX_BYTES;
        Ring<P> ring{shared + P::BARRIERS, 0, -1, 0};
        for (int index = blockIdx.x / P::CLUSTER; index < tiles_m * tiles_n; index += gridDim.x / P::CLUSTER) {
            float acc[P::BLOCK_N / 2] = {};
            if constexpr (FROM_REGISTERS) {
                multiply_from_registers<P>(acc, shared, stages, consumer, thread, k_end - k_begin, ring);
            } else {
                multiply<T, A_MN, B_MN, P>(acc, shared, consumer, thread, k_end - k_begin, ring);
            }
            if constexpr (P::SPLIT_K > 1) add_up<P>(acc, shared, stages, consumer, thread);
            if (P::SPLIT_K == 1 || consumer == part) {
                const Tile tile = tile_at(index, tiles_m, tiles_n);
                const int m = (tile.m * P::CLUSTER_M + int(cluster_rank()) % P::CLUSTER_M) * BLOCK_M + consumer * 64;
                store<T, FROM_REGISTERS, TRANSPOSED>(&maps.out, out, acc, shared + boxes, stages + boxes, consumer,
                                                     thread, m, tile.n * P::BLOCK_N, TRANSPOSED ? N : M,
                                                     TRANSPOSED ? M : N);
            }
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

struct Operand {
    const void* at;
    bool mn;         // MN-major: its rows lie side by side, not its k
    int64_t rows;    // M or N
    int64_t stride;  // of the other dimension, in elements
};

template <typename T>
bool operand_map(CUtensorMap* map, const Operand& x, int64_t K, int box_rows) {
    return tensor_map(map, MAP_TYPE<T>, sizeof(T), x.at, x.mn ? x.rows : K, x.mn ? K : x.rows, x.stride,
                      x.mn ? ROW_BYTES / int(sizeof(T)) : box_rows);
}

template <typename T, bool A_MN, bool B_MN, bool TRANSPOSED, typename P>
cudaError_t launch(const Operand& a, const Operand& b, void* out, int64_t K, int multiprocessors, cudaStream_t stream,
                   LaunchRecord* record) {
    const auto out_type = sizeof(T) == 4 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : MAP_TYPE<T>;
    const int64_t M = a.rows, N = b.rows, out_rows = TRANSPOSED ? N : M, out_columns = TRANSPOSED ? M : N;
    const bool out_by_tma = out_columns % (16 / sizeof(T)) == 0;
    Maps maps = {};
    if (!operand_map<T>(&maps.a, a, K, BLOCK_M) || !operand_map<T>(&maps.b, b, K, P::BLOCK_N / P::CLUSTER_M) ||
        (out_by_tma && !tensor_map(&maps.out, out_type, sizeof(T), out, out_columns, out_rows, out_columns, 64))) {
        return cudaErrorInvalidValue;
    }
    const int64_t tiles = ceil_div<int64_t>(M, BLOCK_M * P::CLUSTER_M) * ceil_div<int64_t>(N, P::BLOCK_N);
    const int64_t resident = multiprocessors / P::CLUSTER;
    const dim3 grid(unsigned((P::SPLIT_K > 1 ? tiles : std::min(tiles, resident)) * P::CLUSTER)), block(THREADS);
    record->set(grid, block, P::BYTES);
    const auto kernel = matmul_wgmma<T, A_MN, B_MN, TRANSPOSED, P>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, P::BYTES);
    kernel<<<grid, block, P::BYTES, stream>>>(maps, static_cast<T*>(out), int(M), int(N), int(K));
    return cudaGetLastError();
}

template <typename T, bool A_MN, bool B_MN, bool TRANSPOSED = false>
cudaError_t launch(const Operand& a, const Operand& b, void* out, int64_t K, cudaStream_t stream,
                   LaunchRecord* record) {
    int device, multiprocessors;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    const int64_t large_tiles = ceil_div<int64_t>(a.rows, BLOCK_M) * ceil_div<int64_t>(b.rows, Large::BLOCK_N);
    if (large_tiles * 3 > multiprocessors * 2) {  // more than two thirds of the device have one
        return launch<T, A_MN, B_MN, TRANSPOSED, Large>(a, b, out, K, multiprocessors, stream, record);
    }
    return launch<T, A_MN, B_MN, TRANSPOSED, Small>(a, b, out, K, multiprocessors, stream, record);
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

// a_mn says that a[m, k] lies at a + m + k * a_stride, else at a + m * a_stride + k; b_mn, the same of n.
extern "C" int matmul_wgmma(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K, int64_t a_mn,
                            int64_t a_stride, int64_t b_mn, int64_t b_stride, int64_t dtype, cudaStream_t stream,
                            LaunchRecord* record) {
    const Operand left{a, a_mn != 0, M, a_stride}, right{b, b_mn != 0, N, b_stride};
    switch (dtype) {
        case FLOAT32: return by_layout<float>(left, right, out, K, stream, record);
        case FLOAT16: return by_layout<__half>(left, right, out, K, stream, record);
        case BFLOAT16: return by_layout<__nv_bfloat16>(left, right, out, K, stream, record);
        default: return cudaErrorInvalidValue;
    }
}
