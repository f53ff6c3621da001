// out[m, n] = sum over groups g of scale[n, g] * (sum over k in g of x[m, k] * (code[n, k] - zero[n, g])), for at most
// 32 rows
//
// requires: sm_90
//
// Bound by reading the weights: each is read once. One warp copies boxes of 256 k (128 bytes of codes a row, and x) by
// TMA into a ring of stages in shared memory, so that many bytes are in flight whatever the registers hold. Blocks are
// persistent, and the stages of the next tile arrive while the sums of one are added.
//
// A warp multiplies 32 rows of the weights by all rows of x, with mma.sync: 16 rows of the weights are its rows, 8 rows
// of x its columns. The sum may take its k in any order that is the same in both operands. So lane q of four takes 32
// neighbouring codes of a group, 16 bytes: a word of 8 gives 4 pairs (k, k + 4), each by one logical operation and one
// multiplication with addition, and every second one by a shift; 16 bytes of x give the same pairs.
//
// k is divided among the blocks of a cluster, and its groups in turn among warps of a block. Their sums are added in a
// fixed order through the shared memory of the cluster.
//
// Precision: code less zero is exact, in units of a power of two; the sum of a group is multiplied by its scale in
// float32, and the sum of all by the unit.
#include <algorithm>

#include "common/launch.cuh"
#include "common/mma.cuh"
#include "hopper/mbarrier.cuh"
#include "int4_matmul/codes.cuh"

constexpr int WARP_ROWS = 32;                                   // rows of weights of a warp
constexpr int BOX = 2 * GROUP, X_BOXES = 4;                     // k of a box of codes, and boxes of x for it
constexpr int MOST_BLOCKS = 8;                                  // of a cluster
constexpr int MOST_BYTES = 195 * 1024;  // of shared memory: the L1 cache keeps the scales, of which 2 bytes are read

// ROWS rows of weights and TILES tiles of 8 rows of x in a tile; K_WARPS warps divide k. Offsets in shared memory:
// stages, sums, barriers.
template <int ROWS_, int K_WARPS_, int TILES_>
struct FewConfig {
    static constexpr int ROWS = ROWS_, TILES = TILES_, ROW_WARPS = ROWS / WARP_ROWS, K_WARPS = K_WARPS_;
    static constexpr int WARPS = ROW_WARPS * K_WARPS, THREADS = WARPS * 32 + 32;  // the last warp loads
    static constexpr int BOXES = K_WARPS > 2 ? K_WARPS / 2 : 1;  // of a stage
    static constexpr int GROUPS = 2 * BOXES / K_WARPS;           // of a stage, for each warp
    static constexpr int CODE_BYTES = ROWS * ROW_BYTES, X_BYTES = 8 * TILES * ROW_BYTES;
    static constexpr int LOAD_BYTES = CODE_BYTES + X_BOXES * X_BYTES, STAGE_BYTES = BOXES * LOAD_BYTES;
    static constexpr int PITCH = ROWS + 8;  // floats from one row of sums to the next
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

// The row, of eight, that lanes 4 i to 4 i + 3 read. In this order eight lanes that read 16 bytes of x, and 16 lanes
// that read 8 bytes of codes, cover all banks.
__device__ __forceinline__ int row_of(int i) { return i % 4 * 2 + ((i ^ i / 2 ^ i / 4) & 1); }

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

// A lane's place: its row of eight, and the offsets in a stage of its codes and of its x.
template <typename C>
struct Place {
    int row, codes, x;

    // For the rows of the weights from first_row on.
    __device__ __forceinline__ explicit Place(int first_row) : row(row_of(threadIdx.x % 32 / 4)) {
        const int q = threadIdx.x % 4;
        // Lanes 2 and 3 of four take words in the order 2, 3, 0, 1: their x is then in other banks.
        codes = (first_row + row) * ROW_BYTES + (q ^ row) * 16 + q / 2 * 8;
        x = C::CODE_BYTES + q / 2 * C::X_BYTES + row * ROW_BYTES + ((q % 2 * 4 + q / 2 * 2) ^ row) * 16;
    }
};

// acc[i][j] += the products of a group, for rows 16 i to 16 i + 15 of the weights of a warp and 8 j to 8 j + 7 of x.
// scales: those of row `lane`, packed. half: that of the box.
template <typename T, typename C>
__device__ __forceinline__ void multiply(float (&acc)[2][C::TILES][4], const char* box, const Place<C>& place,
                                         uint32_t scales, int half) {
    float sums[2][C::TILES][4] = {};
    Pair<T> zeros[4];
    float scale[4];
    uint32_t words[4][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const uint32_t both = __shfl_sync(0xffffffffu, scales, place.row + 8 * i);
        const uint16_t bits = uint16_t(both);
        T of_row;
        memcpy(&of_row, &bits, 2);
        scale[i] = to_float(of_row), zeros[i] = minus_zeros<T>(__byte_perm(both, both, 0x3232));
#pragma unroll
        for (int part = 0; part < 2; ++part) {
            const char* const from = box + (place.codes ^ (half * 64 + part * 8)) + 8 * i * ROW_BYTES;
            const uint2 found = *reinterpret_cast<const uint2*>(from);
            words[i][part * 2] = found.x, words[i][part * 2 + 1] = found.y;
        }
    }
#pragma unroll
    for (int step = 0; step < 4; ++step) {
        uint32_t weights[2][2][4];  // of 16 rows each, for pairs 0 and 1, and for pairs 2 and 3
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
#pragma unroll
                for (int row = 0; row < 2; ++row) {
                    const uint32_t codes = words[2 * i + row][step] >> 8 * half;
                    weights[i][half][row] = code_units<T, false>(codes, zeros[2 * i + row]);
                    weights[i][half][row + 2] = code_units<T, true>(codes, zeros[2 * i + row]);
                }
            }
        }
        const char* const x = box + ((place.x + half * 2 * C::X_BYTES) ^ step * 16);
#pragma unroll
        for (int j = 0; j < C::TILES; ++j) {
            const uint4 of_x = *reinterpret_cast<const uint4*>(x + j * 8 * ROW_BYTES);
            const uint32_t pairs[4] = {__byte_perm(of_x.x, of_x.z, 0x5410), __byte_perm(of_x.x, of_x.z, 0x7632),
                                       __byte_perm(of_x.y, of_x.w, 0x5410), __byte_perm(of_x.y, of_x.w, 0x7632)};
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                mma<T>(sums[i][j], weights[i][0], pairs[0], pairs[1]);
                mma<T>(sums[i][j], weights[i][1], pairs[2], pairs[3]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < C::TILES; ++j) {
#pragma unroll
            for (int c = 0; c < 4; ++c) acc[i][j][c] += sums[i][j][c] * scale[2 * i + c / 2];
        }
    }
}

// Writes the sums of a warp's 32 columns of out, from `column` of the tile on, to rows of sums.
template <typename C>
__device__ __forceinline__ void write_sums(float* sums, const float (&acc)[2][C::TILES][4], int column) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < C::TILES; ++j) {
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                const int n = column + i * 16 + c / 2 * 8 + row_of(lane / 4), m = j * 8 + row_of(lane % 4 * 2 + c % 2);
                sums[m * C::PITCH + n] = acc[i][j][c];
            }
        }
    }
}

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

// The warp that loads copies the stages of all tiles, and takes part in the barriers of the block or cluster, two for
// each tile: when as many stages of the next tile are on their way as fit.
template <typename C, typename Sync>
__device__ __forceinline__ void load_stages(const Maps& maps, const Work& work, uint32_t shared, Sync sync) {
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
            if (step + 1 == ahead && !first) sync(), sync();
        }
        if (work.steps == 0 && !first) sync(), sync();
    }
    if (work.cluster < work.tiles) sync(), sync();
}

// A cluster computes C::ROWS columns of out at a time; its blocks divide k.
template <typename T, typename C>
__global__ void __launch_bounds__(C::THREADS, 1)
    int4_few(const __grid_constant__ Maps maps, const __grid_constant__ Given<T> given, T* __restrict__ out) {
    extern __shared__ char raw[];
    char* const memory = raw + (-shared_address(raw) & (BOX_ALIGNMENT - 1));
    const uint32_t shared = shared_address(memory);
    const int rank = cta_rank_in_cluster(), blocks = ctas_in_cluster();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row_warp = warp % C::ROW_WARPS, k_warp = warp / C::ROW_WARPS, boxes = ceil_div(given.K, BOX);
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

    const auto sync = [&] { blocks > 1 ? cluster_sync() : __syncthreads(); };
    if (warp == C::WARPS) return load_stages<C>(maps, work, shared, sync);

    const auto group_of = [&](const Step& at) { return (work.begin + at.index * C::BOXES) * 2 + k_warp * C::GROUPS; };
    const auto load_scales = [&](RowScales<T, C>& to, const Step& at) {
        if (at.tile < work.tiles) to.load(given, at.tile * C::ROWS + row_warp * WARP_ROWS + lane, group_of(at));
    };
    const int last_group = min(2 * work.end, ceil_div(given.K, GROUP));
    RowScales<T, C> next = {};
    load_scales(next, {work.cluster, 0});
    const Place<C> place(row_warp * WARP_ROWS);
    PipelineState<C::STAGES> to_read;
    for (int tile = work.cluster; tile < work.tiles; tile += work.clusters) {
        float acc[2][C::TILES][4] = {};
#pragma unroll 1
        for (Step at{tile, 0}; at.index < work.steps;) {
            const RowScales<T, C> now = next;
            const int group = group_of(at);
            Step following = at;
            following.advance(work.steps, work.clusters);
            load_scales(next, following);
            mbarrier_wait_parity(shared + C::FULL + to_read.stage * MBARRIER_BYTES, to_read.phase);
            const char* const box = memory + to_read.stage * C::STAGE_BYTES + k_warp / 2 * C::LOAD_BYTES;
#pragma unroll
            for (int i = 0; i < C::GROUPS; ++i) {
                if (group + i < last_group) {
                    multiply<T, C>(acc, box, place, now.packed(i), C::GROUPS == 2 ? i : k_warp % 2);
                }
            }
            __syncwarp();
            if (lane == 0) mbarrier_arrive(shared + C::EMPTY + to_read.stage * MBARRIER_BYTES);
            to_read.advance();
            ++at.index;
        }
        float* const sums = reinterpret_cast<float*>(memory + C::SUMS);
        write_sums<C>(sums + k_warp * 8 * C::TILES * C::PITCH, acc, row_warp * WARP_ROWS);
        sync();
        store_tile<T, C>(out, given, shared + C::SUMS, tile, rank, blocks);
        sync();  // the sums may be overwritten, or the block exit
    }
}

// Clusters of `parts` blocks that the device runs at a time.
template <typename T, typename C>
int resident_clusters(int parts) {
    const auto of = [](int blocks) {
        return std::max(1, active_clusters(blocks, int4_few<T, C>, C::THREADS, C::SHARED_BYTES));
    };
    static const int found[] = {of(1), of(2), of(4), of(8)};
    return found[parts == 1 ? 0 : parts == 2 ? 1 : parts == 4 ? 2 : 3];
}

template <typename T, typename C>
cudaError_t launch(const MatrixOperand& x, const MatrixOperand& weight, const Given<T>& given, void* out, int parts,
                   cudaStream_t stream, LaunchRecord* record) {
    Maps maps = {};
    if (!encode_operand_map<T>(&maps.x, x, given.K, 8 * C::TILES) ||
        !encode_operand_map<Float8>(&maps.codes, weight, ceil_div(given.K, 2), C::ROWS)) {
        return cudaErrorInvalidValue;
    }
    const int tiles = ceil_div(given.N, C::ROWS), turns = ceil_div(tiles, resident_clusters<T, C>(parts));
    const int clusters = ceil_div(tiles, turns);
    return launch_clusters(parts, int4_few<T, C>, dim3(unsigned(clusters * parts)), C::THREADS, C::SHARED_BYTES, stream,
                           record, maps, given, static_cast<T*>(out));
}

// Rows of x and weight are contiguous, x_row elements and weight_row bytes apart, at multiples of 16 bytes; other
// strides are in elements. zero: null if there are no zero points. rows: of the weights in a tile, 64, 128 or 224; for
// at most 16 rows of x also 32.
// Clusters of `parts` blocks (1, 2, 4 or 8) divide k in boxes of 256.
extern "C" int int4_few(const void* x, const uint8_t* weight, const void* scale, const uint8_t* zero, void* out,
                        int64_t M, int64_t N, int64_t K, int64_t x_row, int64_t weight_row, int64_t scale_row,
                        int64_t scale_group, int64_t zero_row, int64_t zero_group, int64_t dtype, int64_t rows,
                        int64_t parts, cudaStream_t stream, LaunchRecord* record) {
    const MatrixOperand left{x, false, M, x_row}, right{weight, false, N, weight_row};
    const auto run = [&](auto of_type) {
        using T = decltype(of_type);
        const Groups<T> groups{static_cast<const T*>(scale), zero, scale_row, scale_group, zero_row, zero_group};
        const Given<T> given{groups, int(M), int(N), int(K)};
        const auto with = [&](auto config) {
            return launch<T, decltype(config)>(left, right, given, out, int(parts), stream, record);
        };
        const auto with_rows = [&](auto tiles) {
            constexpr int TILES = decltype(tiles)::value;
            constexpr int MANY = TILES == 1 ? 2 : 1;  // twice the warps where registers allow it
            if constexpr (TILES < 4) {
                if (rows == 32) return with(FewConfig<32, 8, TILES>());
            }
            if (rows == 64) return with(FewConfig<64, 4 * MANY, TILES>());
            return rows == 128 ? with(FewConfig<128, 2 * MANY, TILES>()) : with(FewConfig<224, MANY, TILES>());
        };
        if (M <= 8) return with_rows(std::integral_constant<int, 1>());
        return M <= 16 ? with_rows(std::integral_constant<int, 2>()) : with_rows(std::integral_constant<int, 4>());
    };
    return dtype == BFLOAT16 ? run(__nv_bfloat16()) : run(__half());
}
