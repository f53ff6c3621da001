// out[m, n] = sum over k of a[m, k] * b[k, n], for any strides of a and b; out is row-major
//
// A block of 256 threads computes a tile of 128 x 256 elements of out, a thread 8 x 16 of them. Outputs with too few of
// such tiles for the device take tiles of 64 x 128, with 128 threads and 8 x 8 elements a thread.
//
// Adds double buffering to register_tiles.cu, at two levels. While one pair of tiles is multiplied, the next pair is
// loaded from global memory to registers, and then stored to the other half of shared memory. While row k of the tiles
// is multiplied, row k + 1 is read from shared memory. The multiply-adds of a thread wait for none of its loads, and
// one barrier per tile is left. No second block is needed to hide latency: its registers go into a larger tile, which
// takes six loads of 16 bytes for 128 multiply-adds.
// Speed: docs/ladder.md
//
// The lanes of a warp form 8 rows of 4, so that 16-byte reads of shared memory have no bank conflicts. Lanes l and l ^
// 1 have the same rows, and l and l ^ 2 the same columns, so one access serves half a warp. Tiles inside the matrix are
// copied four elements at a time without tests, others element by element.
//
// Precision: as in matmul.cu, and the sum has the same order, so the results are bitwise the same.
//
// Source: the loop is that of CUTLASS 1 (A. Kerr et al., "CUTLASS: Fast Linear Algebra in CUDA C++", 2017).
#include "matmul/operands.cuh"

constexpr int BLOCK_K = 16;
constexpr int UNROLL = 16;               // unrolling of the loop over them; even, since two sets of registers alternate
constexpr int LANES_M = 8, LANES_N = 4;  // lanes of a warp along m and n
constexpr int THREAD_M = 8;              // rows of a thread; it has THREAD_N columns, both in groups of four

template <int WARPS_M_, int WARPS_N_, int THREAD_N_>
struct TileConfig {
    static constexpr int WARPS_M = WARPS_M_, WARPS_N = WARPS_N_, THREAD_N = THREAD_N_;
    static constexpr int WARP_M = LANES_M * THREAD_M, WARP_N = LANES_N * THREAD_N;
    static constexpr int BLOCK_M = WARPS_M * WARP_M, BLOCK_N = WARPS_N * WARP_N, THREADS = WARPS_M * WARPS_N * 32;
    static constexpr int PITCH_M = BLOCK_M + 4, PITCH_N = BLOCK_N + 4;  // see TileCopy::store
    static constexpr int A_FLOATS = BLOCK_K * PITCH_M, B_FLOATS = BLOCK_K * PITCH_N;
    static constexpr int BYTES = 2 * (A_FLOATS + B_FLOATS) * sizeof(float);  // a_tile[2][BLOCK_K][PITCH_M], then b_tile
};
using Large = TileConfig<2, 4, 16>;
using Small = TileConfig<1, 4, 8>;

// Copies a thread's part of each tile of an operand, BLOCK x BLOCK_K: QUADS groups of four neighbours along the
// dimension with the smaller stride. Each NEAR successive groups lie within 8 terms.
template <typename T, bool TF32, int BLOCK, int THREADS>
struct TileCopy {
    static constexpr int QUADS = BLOCK * BLOCK_K / 4 / THREADS, NEAR = BLOCK * 2 / THREADS, PITCH = BLOCK + 4;
    static_assert(NEAR >= 1 && QUADS % NEAR == 0, "");

    Quad quads[QUADS];
    int x, k;      // position of the first group in the tile
    int64_t left;  // rows of the operand from the tile's first row on
    const T* __restrict__ source;
    int64_t step;  // distance between successive groups of the NEAR ones

    __device__ __forceinline__ TileCopy(const StridedOperand<T>& operand, unsigned tile) {
        const int thread = threadIdx.x;
        x = operand.along_k ? thread / 2 : thread % (BLOCK / 4) * 4;
        k = operand.along_k ? thread % 2 * 4 : thread / (BLOCK / 4);
        left = operand.size - int64_t(tile) * BLOCK;
        source = operand.data + (int64_t(tile) * BLOCK + x) * operand.stride_x + k * operand.stride_k;
        step = operand.along_k ? THREADS / 2 * operand.stride_x : 8 / NEAR * operand.stride_k;
    }

    // Loads from the next tile, whose first `depth` terms are in the matrix; elements outside are zeros.
    __device__ __forceinline__ void load(const StridedOperand<T>& operand, int64_t depth) {
        if (operand.packed && left >= BLOCK && depth >= BLOCK_K) {
#pragma unroll
            for (int i = 0; i < QUADS; ++i) {
                const T* at = source + i % NEAR * step + i / NEAR * 8 * operand.stride_k;
                const auto in = *reinterpret_cast<const Pack<T, 4>*>(at);
#pragma unroll
                for (int j = 0; j < 4; ++j) quads[i][j] = factor<T, TF32>(in[j]);
            }
        } else {
#pragma unroll
            for (int i = 0; i < QUADS; ++i) {
                const T* at = source + i % NEAR * step + i / NEAR * 8 * operand.stride_k;
                const int x_i = x + (operand.along_k ? i % NEAR * (THREADS / 2) : 0);
                const int k_i = k + (operand.along_k ? 0 : i % NEAR * (8 / NEAR)) + i / NEAR * 8;
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const bool exists = operand.along_k ? x_i < left && k_i + j < depth : x_i + j < left && k_i < depth;
                    const int64_t stride = operand.along_k ? operand.stride_k : operand.stride_x;
                    quads[i][j] = exists ? factor<T, TF32>(at[j * stride]) : 0.0f;
                }
            }
        }
        source += BLOCK_K * operand.stride_k;
    }

    // Stores to shared memory, where k is the outer dimension: groups along k are transposed. A warp has two of
    // them for each of 16 x. Rows of a tile are PITCH floats apart, a multiple of 32 plus 4, so that they use 32
    // different banks.
    __device__ __forceinline__ void store(float* tile, bool along_k) const {
        float* const to = tile + k * PITCH + x;
#pragma unroll
        for (int i = 0; i < QUADS; ++i) {
            if (along_k) {
#pragma unroll
                for (int j = 0; j < 4; ++j) to[(i / NEAR * 8 + j) * PITCH + i % NEAR * (THREADS / 2)] = quads[i][j];
            } else {
                *reinterpret_cast<Quad*>(to + (i / NEAR * 8 + i % NEAR * (8 / NEAR)) * PITCH) = quads[i];
            }
        }
    }
};

// One block per multiprocessor: a thread may use as many registers as it needs, without spilling.
template <typename T, bool TF32, typename C>
__global__ void __launch_bounds__(C::THREADS, 1)
    matmul_double_buffered(const StridedOperand<T> a, const StridedOperand<T> b, T* __restrict__ out, int64_t K) {
    constexpr int APART_M = LANES_M * 4, APART_N = LANES_N * 4, THREAD_N = C::THREAD_N;
    extern __shared__ float4 shared[];
    float* const a_tiles = reinterpret_cast<float*>(shared);
    float* const b_tiles = a_tiles + 2 * C::A_FLOATS;
    const unsigned tiles_n = unsigned(ceil_div<int64_t>(b.size, C::BLOCK_N));
    const unsigned tile_m = blockIdx.x / tiles_n, tile_n = blockIdx.x % tiles_n;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int thread_m = warp / C::WARPS_N * C::WARP_M + lane / 2 % 8 * 4;
    const int thread_n = warp % C::WARPS_N * C::WARP_N + (lane % 2 + lane / 16 * 2) * 4;

    TileCopy<T, TF32, C::BLOCK_M, C::THREADS> a_copy(a, tile_m);
    TileCopy<T, TF32, C::BLOCK_N, C::THREADS> b_copy(b, tile_n);
    const float* a_now = a_tiles + thread_m;
    const float* b_now = b_tiles + thread_n;
    float acc[THREAD_M][THREAD_N] = {}, a_k[2][THREAD_M], b_k[2][THREAD_N];
    a_copy.load(a, K);
    b_copy.load(b, K);
    a_copy.store(a_tiles, a.along_k);
    b_copy.store(b_tiles, b.along_k);
    __syncthreads();
    load_fragment(a_k[0], a_now, APART_M);
    load_fragment(b_k[0], b_now, APART_N);

    int half = 0;  // half of shared memory that is being multiplied
#pragma unroll 1
    for (int64_t k_left = K; k_left > 0; k_left -= BLOCK_K) {
        const bool more = k_left > BLOCK_K;
        if (more) {
            a_copy.load(a, k_left - BLOCK_K);
            b_copy.load(b, k_left - BLOCK_K);
        }
#pragma unroll 1
        for (int first = 0; first < BLOCK_K; first += UNROLL) {
#pragma unroll
            for (int k = 0; k < UNROLL; ++k) {
                if (k == UNROLL - 1 && first < BLOCK_K - UNROLL) {
                    a_now += UNROLL * C::PITCH_M;
                    b_now += UNROLL * C::PITCH_N;
                } else if (k == UNROLL - 1 && more) {
                    half ^= 1;
                    a_copy.store(a_tiles + half * C::A_FLOATS, a.along_k);
                    b_copy.store(b_tiles + half * C::B_FLOATS, b.along_k);
                    __syncthreads();  // the new tiles are complete, and the last row of the old ones is in registers
                    a_now = a_tiles + half * C::A_FLOATS + thread_m;
                    b_now = b_tiles + half * C::B_FLOATS + thread_n;
                }
                load_fragment(a_k[(k + 1) % 2], a_now + (k + 1) % UNROLL * C::PITCH_M, APART_M);
                load_fragment(b_k[(k + 1) % 2], b_now + (k + 1) % UNROLL * C::PITCH_N, APART_N);
#pragma unroll
                for (int i = 0; i < THREAD_M; ++i) {
#pragma unroll
                    for (int j = 0; j < THREAD_N; ++j) acc[i][j] = fmaf(a_k[k % 2][i], b_k[k % 2][j], acc[i][j]);
                }
            }
        }
    }

    const int64_t N = b.size, m = int64_t(tile_m) * C::BLOCK_M + thread_m, n = int64_t(tile_n) * C::BLOCK_N + thread_n;
    const int rows = int(min(a.size - m, int64_t(C::BLOCK_M))), columns = int(min(N - n, int64_t(C::BLOCK_N)));
    T* at = out + m * N + n;
#pragma unroll
    for (int i = 0; i < THREAD_M; ++i, at += i == 4 ? (APART_M - 3) * N : N) {
        if (i / 4 * APART_M + i % 4 >= rows) break;
#pragma unroll
        for (int j = 0; j < THREAD_N; j += 4) {
            const int column = j / 4 * APART_N;
            Pack<T, 4> quad;
#pragma unroll
            for (int c = 0; c < 4; ++c) quad[c] = from_float<T>(acc[i][j + c]);
            if (N % 4 == 0) {
                if (column < columns) *reinterpret_cast<Pack<T, 4>*>(at + column) = quad;
            } else {
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    if (column + c < columns) at[column + c] = quad[c];
                }
            }
        }
    }
}

template <typename T, bool TF32, typename C>
void launch(StridedOperand<T> a, StridedOperand<T> b, void* out, int64_t K, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(a.size, C::BLOCK_M) * ceil_div<int64_t>(b.size, C::BLOCK_N)));
    const dim3 block(C::THREADS);
    record->set(grid, block, C::BYTES);
    cudaFuncSetAttribute(matmul_double_buffered<T, TF32, C>, cudaFuncAttributeMaxDynamicSharedMemorySize, C::BYTES);
    matmul_double_buffered<T, TF32, C><<<grid, block, C::BYTES, stream>>>(a, b, static_cast<T*>(out), K);
}

extern "C" int matmul_double_buffered(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K,
                                      int64_t stride_am, int64_t stride_ak, int64_t stride_bk, int64_t stride_bn,
                                      int64_t tf32, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const int64_t large_tiles = ceil_div<int64_t>(M, Large::BLOCK_M) * ceil_div<int64_t>(N, Large::BLOCK_N);
    const bool large = large_tiles * 3 > multiprocessor_count() * 2;  // they occupy over two thirds of the device
    return by_precision(dtype, tf32, [&](auto zero, auto rounded) {
        using T = decltype(zero);
        constexpr bool TF32 = decltype(rounded)::value;
        const auto left = strided_operand<T>(a, M, stride_am, stride_ak);
        const auto right = strided_operand<T>(b, N, stride_bn, stride_bk);
        if (large) {
            launch<T, TF32, Large>(left, right, out, K, stream, record);
        } else {
            launch<T, TF32, Small>(left, right, out, K, stream, record);
        }
    });
}
