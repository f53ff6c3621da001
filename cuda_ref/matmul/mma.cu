// out[m, n] = sum over k of a[m, k] * b[k, n], 16 bits, for small outputs and for rows at any address
//
// This kernel is for products that suit neither TMA nor wgmma: outputs below 64 x 64, rows that begin at odd addresses,
// and a few tiles with long sums. It uses mma.sync, which the tensor cores of every GPU since Ampere have.
//
// Tiles of k pass through a ring of STAGES stages, copied by cp.async, 16 bytes at a time.
//   - Rows at any address. The 16-byte chunks that hold a row's part are copied as they lie: one more chunk than an
//     aligned part has. Before the products, threads shift them into place. The room for the extra chunk in each row
//     also is the padding that keeps ldmatrix free of bank conflicts.
//   - Long sums. The blocks of a cluster divide the k of a tile. They leave their sums in shared memory, and each adds
//     up its part of the rows over the whole cluster, in the order of the blocks: no workspace, no second kernel.
//
// Precision: products of 16 bits are exact, sums float32, rounded once.
//
// Source: PTX ISA, "mma", "ldmatrix" and "cp.async"; the loop is that of CUTLASS 2 ("multistage").
#include "common/mma_tiles.cuh"
#include "common/tiles.cuh"

constexpr int GROUP_M = 8, SEGMENT = 4;  // chunks that a thread shifts at a time

struct MmaOperand {
    const char* data;
    int rows, columns;  // in memory
    int64_t stride;     // bytes from row to row
    bool aligned;       // rows begin at multiples of 16 bytes
};

// Copies 16 bytes at (row, column + c * CHUNK), as they lie in memory; bytes beyond the row become zeros.
template <typename Tile>
__device__ __forceinline__ void copy_chunk(char* to, const MmaOperand& x, const char* row_begin, bool exists,
                                           int columns, int r, int c) {
    const int offset = x.aligned ? 0 : misalignment(row_begin);
    const int left = exists ? columns + offset - c * CHUNK : 0;  // elements to the row's end
    const char* const from = left <= 0 ? x.data - misalignment(x.data) * 2 : row_begin - offset * 2 + c * 16;
    copy_async(to + r * Tile::PITCH + c * 16, from, left <= 0 ? 0 : left >= CHUNK ? 16 : 2 * left);
}

// Copies the part from (row, column) on, as it lies in memory. Elements outside the matrix become zeros; in rows that
// are shifted later they may belong to another row.
template <typename Tile, int THREADS>
__device__ __forceinline__ void copy_tile(char* to, const MmaOperand& x, int row, int column) {
    constexpr int ROWS_APART = THREADS / Tile::CHUNKS;  // rows between a thread's chunks, which have the same columns
    static_assert(Tile::ROWS % ROWS_APART == 0, "");
    const int first = threadIdx.x / Tile::CHUNKS, c = threadIdx.x % Tile::CHUNKS, columns = x.columns - column;
    const char* const begin = x.data + row * x.stride + int64_t(column) * 2;
#pragma unroll
    for (int i = 0; i < Tile::ROWS / ROWS_APART; ++i) {
        const int r = first + i * ROWS_APART;
        copy_chunk<Tile>(to, x, begin + r * x.stride, row + r < x.rows, columns, r, c);
    }
    if (x.aligned) return;
    for (int r = threadIdx.x; r < Tile::ROWS; r += THREADS) {
        copy_chunk<Tile>(to, x, begin + r * x.stride, row + r < x.rows, columns, r, Tile::CHUNKS);
    }
}

// Shifts the rows of a tile into place. A row's segments belong to neighbouring lanes of one warp.
template <typename Tile, int THREADS>
__device__ __forceinline__ void shift_tile(char* tile, const MmaOperand& x, int row, int column) {
    constexpr int LENGTH = Tile::CHUNKS < SEGMENT ? Tile::CHUNKS : SEGMENT, SEGMENTS = Tile::CHUNKS / LENGTH;
    static_assert(32 % SEGMENTS == 0, "");
#pragma unroll 1
    for (int i = threadIdx.x; i < ceil_div(Tile::ROWS * SEGMENTS, 32) * 32; i += THREADS) {
        const int r = i / SEGMENTS, c = i % SEGMENTS * LENGTH;
        uint4* const at = reinterpret_cast<uint4*>(tile + r * Tile::PITCH) + c;
        const int offset = misalignment(x.data + (row + r) * x.stride + int64_t(column) * 2);
        const int left = x.columns - column - c * CHUNK;
        uint4 chunks[LENGTH + 1];
        const bool inside = r < Tile::ROWS;
        if (inside) {
#pragma unroll
            for (int j = 0; j <= LENGTH; ++j) chunks[j] = at[j];
        }
        __syncwarp();
        if (inside) {
#pragma unroll
            for (int j = 0; j < LENGTH; ++j) {
                at[j] = first_elements(shifted(chunks[j], chunks[j + 1], offset), left - j * CHUNK);
            }
        }
    }
}

// A block computes the sums of one tile over its share of k: block `rank` of the cluster has share `rank`.
template <typename T, bool A_MN, bool B_MN, typename C>
__global__ void __launch_bounds__(C::THREADS)
    matmul_mma(const MmaOperand a, const MmaOperand b, const GroupedTileScheduler<GROUP_M> tiles, T* __restrict__ out,
               int M, int N, int K, int blocks) {
    using A = TileRows<C::BLOCK_M, C::BLOCK_K, A_MN>;
    using B = TileRows<C::BLOCK_N, C::BLOCK_K, B_MN>;
    constexpr int STAGE_BYTES = A::BYTES + B::BYTES;
    extern __shared__ __align__(16) char shared[];
    const int index = blockIdx.x / blocks, rank = blockIdx.x - index * blocks;
    const TileCoordinate tile = tiles[index];
    const int m = tile.m * C::BLOCK_M, n = tile.n * C::BLOCK_N, steps = ceil_div(K, C::BLOCK_K);
    const int begin = steps * rank / blocks, end = steps * (rank + 1) / blocks;  // products are at most 2^25 * 16

    auto copy = [&](int step) {
        if (step < end) {
            char* const stage = shared + (step - begin) % C::STAGES * STAGE_BYTES;
            const int k = step * C::BLOCK_K;
            copy_tile<A, C::THREADS>(stage, a, A_MN ? k : m, A_MN ? m : k);
            copy_tile<B, C::THREADS>(stage + A::BYTES, b, B_MN ? k : n, B_MN ? n : k);
        }
        __pipeline_commit();
    };
#pragma unroll 1
    for (int step = begin; step < begin + C::STAGES - 1; ++step) copy(step);
    float sums[C::TILES_M][C::TILES_N][4] = {};
#pragma unroll 1
    for (int step = begin; step < end; ++step) {
        char* const stage = shared + (step - begin) % C::STAGES * STAGE_BYTES;
        const int k = step * C::BLOCK_K;
        __pipeline_wait_prior(C::STAGES - 2);
        __syncthreads();  // this stage has arrived, and all threads have read the previous one
        copy(step + C::STAGES - 1);
        if (!a.aligned || !b.aligned) {
            if (!a.aligned) shift_tile<A, C::THREADS>(stage, a, A_MN ? k : m, A_MN ? m : k);
            if (!b.aligned) shift_tile<B, C::THREADS>(stage + A::BYTES, b, B_MN ? k : n, B_MN ? n : k);
            __syncthreads();
        }
        multiply<T, A_MN, B_MN, C>(sums, stage, stage + A::BYTES);
    }
    __pipeline_wait_prior(0);
    __syncthreads();  // all threads have read the last stages
    write_sums<C>(reinterpret_cast<float*>(shared), sums);
#ifdef __CUDA_ARCH__
#if __CUDA_ARCH__ >= 900
    if (blocks > 1) cluster_sync();
#endif
#endif
    __syncthreads();
    store_tile<T, C>(out, reinterpret_cast<const float*>(shared), rank, blocks, m, n, M, N);
#ifdef __CUDA_ARCH__
#if __CUDA_ARCH__ >= 900
    // A block must not exit while others read its sums. The arrival is relaxed, because this thread has already used
    // the sums that it read.
    if (blocks > 1) {
        cluster_arrive_relaxed();
        cluster_wait();
    }
#endif
#endif
}

template <typename T, bool A_MN, bool B_MN, typename C>
cudaError_t launch(const MmaOperand& a, const MmaOperand& b, void* out, int M, int N, int K, int blocks,
                   cudaStream_t stream, LaunchRecord* record) {
    constexpr int STAGE_BYTES =
        TileRows<C::BLOCK_M, C::BLOCK_K, A_MN>::BYTES + TileRows<C::BLOCK_N, C::BLOCK_K, B_MN>::BYTES;
    const int64_t steps = ceil_div<int64_t>(ceil_div<int64_t>(K, C::BLOCK_K), blocks);
    const int stages = int(steps < C::STAGES ? steps : C::STAGES);  // more would only take room from other blocks
    const int shared_bytes = stages * STAGE_BYTES > C::SUM_BYTES ? stages * STAGE_BYTES : C::SUM_BYTES;
    constexpr int MOST_BYTES = C::STAGES * STAGE_BYTES > C::SUM_BYTES ? C::STAGES * STAGE_BYTES : C::SUM_BYTES;
    const GroupedTileScheduler<GROUP_M> tiles(ceil_div(M, C::BLOCK_M), ceil_div(N, C::BLOCK_N));
    const dim3 grid(unsigned(tiles.count()) * blocks);
    const auto kernel = matmul_mma<T, A_MN, B_MN, C>;
#ifdef __CUDACC__
    if (blocks > 8) cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    return launch_clusters_up_to(MOST_BYTES, blocks, kernel, grid, C::THREADS, shared_bytes, stream, record, a, b,
                                 tiles, static_cast<T*>(out), M, N, K, blocks);
#else
    if (blocks > 1) return cudaErrorNotSupported;
    record->set(grid, C::THREADS, shared_bytes);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, MOST_BYTES);
    matmul_mma<T, A_MN, B_MN, C><<<grid, C::THREADS, shared_bytes, stream>>>(a, b, tiles, static_cast<T*>(out), M, N,
                                                                            K, blocks);
    return cudaGetLastError();
#endif
}

template <typename T, typename C>
cudaError_t launch_layout(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K, bool a_mn,
                          int64_t a_stride, bool b_mn, int64_t b_stride, int blocks, cudaStream_t stream,
                          LaunchRecord* record) {
    const auto operand = [&](const void* data, bool mn_major, int64_t size, int64_t stride) {
        const bool aligned = misalignment(data) == 0 && stride % CHUNK == 0;
        return MmaOperand{static_cast<const char*>(data), int(mn_major ? K : size), int(mn_major ? size : K),
                          stride * 2, aligned};
    };
    const MmaOperand left = operand(a, a_mn, M, a_stride), right = operand(b, b_mn, N, b_stride);
    const auto with = [&](auto a_is_mn, auto b_is_mn) {
        return launch<T, decltype(a_is_mn)::value, decltype(b_is_mn)::value, C>(left, right, out, int(M), int(N),
                                                                                int(K), blocks, stream, record);
    };
    constexpr std::true_type yes;
    constexpr std::false_type no;
    return a_mn ? b_mn ? with(yes, yes) : with(yes, no) : b_mn ? with(no, yes) : with(no, no);
}

// a_mn: a[m, k] is at a + m + k * a_stride, otherwise at a + m * a_stride + k; b_mn: the same with n. `tile` is the
// number of a tile in _tiles.py, `blocks` those of a cluster, which divide k.
extern "C" int matmul_mma(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K, int64_t a_mn,
                          int64_t a_stride, int64_t b_mn, int64_t b_stride, int64_t tile, int64_t blocks,
                          int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const auto run = [&](auto zero, auto config) {
        return launch_layout<decltype(zero), decltype(config)>(a, b, out, M, N, K, a_mn != 0, a_stride, b_mn != 0,
                                                               b_stride, int(blocks), stream, record);
    };
    const auto run_tile = [&](auto zero) {
        switch (tile) {
            case 0: return run(zero, MmaConfig<32, 32, 128, 2, 2, 4>());
#ifdef __CUDACC__  // one tile is enough on the CPU
            case 1: return run(zero, MmaConfig<64, 16, 128, 4, 1, 4>());
            case 2: return run(zero, MmaConfig<128, 128, 64, 2, 4, 3>());
#endif
            default: return cudaErrorInvalidValue;
        }
    };
    switch (dtype) {
        case FLOAT16: return run_tile(__half());
        case BFLOAT16: return run_tile(__nv_bfloat16());
        default: return cudaErrorInvalidValue;
    }
}
