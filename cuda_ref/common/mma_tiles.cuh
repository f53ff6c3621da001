// Shared by kernels that multiply by mma.sync: the shape of their work, tiles in shared memory, products of a stage,
// and the store of the sums. Rows of a tile are padded by one 16-byte chunk, so that ldmatrix has no bank conflicts.
#pragma once

#include "common/mma.cuh"
#include "common/unaligned.cuh"

#ifdef __CUDACC__
#include "common/launch.cuh"
#endif

template <int BLOCK_M_, int BLOCK_N_, int BLOCK_K_, int WARPS_M_, int WARPS_N_, int STAGES_>
struct MmaConfig {
    static constexpr int BLOCK_M = BLOCK_M_, BLOCK_N = BLOCK_N_, BLOCK_K = BLOCK_K_, STAGES = STAGES_;
    static constexpr int WARPS_M = WARPS_M_, WARPS_N = WARPS_N_, THREADS = WARPS_M * WARPS_N * 32;
    static constexpr int TILES_M = BLOCK_M / WARPS_M / 16, TILES_N = BLOCK_N / WARPS_N / 8;  // tiles per warp
    static_assert(TILES_N % 2 == 0, "ldmatrix loads two tiles of b");
    // Sums before they are stored. A warp stores 8 rows of 4 pairs to 32 banks.
    static constexpr int PITCH = BLOCK_N + 8, SUM_BYTES = BLOCK_M * PITCH * 4;
};

// The tile of an operand in shared memory. Rows of the tile are rows of memory: m (or n) if it is K-major, else k.
template <int MN, int K, bool MN_MAJOR>
struct TileRows {
    static constexpr int ROWS = MN_MAJOR ? K : MN, CHUNKS = (MN_MAJOR ? MN : K) / CHUNK;
    static constexpr int PITCH = (CHUNKS + 1) * 16, BYTES = ROWS * PITCH;
    static constexpr int STEP_MN = MN_MAJOR ? 2 : PITCH, STEP_K = MN_MAJOR ? PITCH : 2;  // bytes to the next element
    static_assert(CHUNKS % 2 == 0, "an odd number of chunks with the padding");
};

// sums += the products of one stage.
template <typename T, bool A_MN, bool B_MN, typename C>
__device__ __forceinline__ void multiply(float (&sums)[C::TILES_M][C::TILES_N][4], const char* a, const char* b) {
    using A = TileRows<C::BLOCK_M, C::BLOCK_K, A_MN>;
    using B = TileRows<C::BLOCK_N, C::BLOCK_K, B_MN>;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = lane % 8, low = lane / 8 % 2, high = lane / 16;
    const int m0 = warp / C::WARPS_N * C::TILES_M * 16, n0 = warp % C::WARPS_N * C::TILES_N * 8;
    // The second of the four matrices of ldmatrix is the one below the first in a, and the next one along k in b.
    const char* const from_a = a + (m0 + low * 8) * A::STEP_MN + high * 8 * A::STEP_K + row * A::PITCH;
    const char* const from_b = b + (n0 + high * 8) * B::STEP_MN + low * 8 * B::STEP_K + row * B::PITCH;
#pragma unroll
    for (int k = 0; k < C::BLOCK_K; k += 16) {
        uint32_t left[C::TILES_M][4], right[C::TILES_N / 2][4];
#pragma unroll
        for (int i = 0; i < C::TILES_M; ++i) {
            ldmatrix_x4<A_MN>(left[i], from_a + i * 16 * A::STEP_MN + k * A::STEP_K);
        }
#pragma unroll
        for (int j = 0; j < C::TILES_N / 2; ++j) {
            ldmatrix_x4<B_MN>(right[j], from_b + j * 16 * B::STEP_MN + k * B::STEP_K);
        }
#pragma unroll
        for (int i = 0; i < C::TILES_M; ++i) {
#pragma unroll
            for (int j = 0; j < C::TILES_N; ++j) {
                mma<T>(sums[i][j], left[i], right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1]);
            }
        }
    }
}

// Writes the sums of a warp as rows of the tile.
template <typename C>
__device__ __forceinline__ void write_sums(float* to, const float (&sums)[C::TILES_M][C::TILES_N][4]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int m = warp / C::WARPS_N * C::TILES_M * 16 + lane / 4, n = warp % C::WARPS_N * C::TILES_N * 8 + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < C::TILES_M; ++i) {
#pragma unroll
        for (int j = 0; j < C::TILES_N; ++j) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                float2* const at = reinterpret_cast<float2*>(to + (m + i * 16 + h * 8) * C::PITCH + n + j * 8);
                *at = make_float2(sums[i][j][2 * h], sums[i][j][2 * h + 1]);
            }
        }
    }
}

// Element `at` of the sums, or each of WIDTH neighbours, added up over the blocks of the cluster.
template <int WIDTH>
__device__ __forceinline__ Pack<float, WIDTH> add_blocks(const float* at, int blocks) {
    Pack<float, WIDTH> sum = *reinterpret_cast<const Pack<float, WIDTH>*>(at);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (blocks > 1) {
        sum = {};
        for (int first = 0; first < blocks; first += 4) {  // four loads in flight
            Pack<float, WIDTH> x[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                if (first + i >= blocks) continue;
                const uint32_t remote = map_shared_rank(shared_address(at), first + i);
                if constexpr (WIDTH == 4) {
                    const float4 quad = load_shared_cluster(remote);
                    x[i] = {quad.x, quad.y, quad.z, quad.w};
                } else {
                    x[i] = {load_shared_cluster_float(remote)};
                }
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                if (first + i >= blocks) continue;
#pragma unroll
                for (int c = 0; c < WIDTH; ++c) sum[c] += x[i][c];
            }
        }
    }
#endif
    return sum;
}

// Stores this block's share of the tile at (m, n), four neighbours at a time. If rows of out do not begin at multiples
// of four elements, the groups of four of a row begin up to three columns before the tile.
template <typename T, typename C>
__device__ __forceinline__ void store_tile(T* __restrict__ out, const float* sums, int rank, int blocks, int m, int n,
                                           int M, int N) {
    const bool packed = N % 4 == 0;
    const int groups = C::BLOCK_N / 4 + (packed ? 0 : 1), columns = min(C::BLOCK_N, N - n);
    for (int i = rank * C::THREADS + threadIdx.x; i < C::BLOCK_M * groups; i += blocks * C::THREADS) {
        const int row = packed ? i / (C::BLOCK_N / 4) : i / (C::BLOCK_N / 4 + 1);
        if (m + row >= M) break;
        T* const to = out + int64_t(m + row) * N + n;
        const int column = (i - row * groups) * 4 - (packed ? 0 : int(reinterpret_cast<uintptr_t>(to) / sizeof(T) % 4));
        if (column >= columns) continue;
        const float* const from = sums + row * C::PITCH + column;
        Pack<float, 4> sum = {};
        if (packed) {
            sum = add_blocks<4>(from, blocks);
        } else {
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                if (column + c >= 0 && column + c < columns) sum[c] = add_blocks<1>(from + c, blocks)[0];
            }
        }
        const Pack<T, 4> quad = {from_float<T>(sum[0]), from_float<T>(sum[1]), from_float<T>(sum[2]),
                                 from_float<T>(sum[3])};
        if (column >= 0 && column + 4 <= columns) {
            *reinterpret_cast<Pack<T, 4>*>(to + column) = quad;
        } else {
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                if (column + c >= 0 && column + c < columns) to[column + c] = quad[c];
            }
        }
    }
}
