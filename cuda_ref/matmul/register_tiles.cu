// out[m, n] = sum over k of a[m, k] * b[k, n], for any strides of a and b; out is row-major
//
// A block of 256 threads computes a tile of 128 x 128 elements of out, a thread 8 x 8 of them.
//
// Adds a tile in the registers of each thread to tiled.cu. A thread reads 8 elements of a and 8 of b from shared memory
// and multiplies each with each: four loads of 16 bytes for 64 multiply-adds, where tiled.cu needs five for four.
// Arithmetic becomes the limit instead of loads. Larger tiles also read global memory four times less, and one
// instruction loads four neighbours where alignment allows it.
// Speed: docs/ladder.md
//
// Both tiles are stored in shared memory with k as the outer dimension, so that a thread reads contiguous elements. Its
// 8 rows, and its 8 columns, are two groups of four, 64 apart; the lanes of a warp read neighbouring groups. An operand
// that is contiguous along k is transposed when it is stored. Rows are 132 floats apart, so that the 2 x 16 elements
// that a warp stores, in rows four apart, are in 32 different banks.
//
// Precision: as in matmul.cu, and the sum has the same order, so the results are bitwise the same.
//
// Source: V. Volkov, J. Demmel, "Benchmarking GPUs to Tune Dense Linear Algebra", SC 2008.
#include "matmul/operands.cuh"

constexpr int BLOCK = 128;  // rows and columns of out in a block's tile
constexpr int BLOCK_K = 8;
constexpr int THREADS = 256;
constexpr int LANES = 16;         // threads along a row, and along a column, of the tile
constexpr int APART = BLOCK / 2;  // elements between the two groups of four rows, or columns, of a thread
constexpr int PITCH = BLOCK + 4;

// Copies a thread's four elements of each tile of an operand: from (x, k) in the tile on, along the dimension with the
// smaller stride.
template <typename T>
struct TileCopy {
    int x, k;
    int x_left;  // elements of the operand from x on, at most 4
    const T* __restrict__ source;

    __device__ __forceinline__ TileCopy(const StridedOperand<T>& operand, unsigned tile) {
        const int thread = threadIdx.x;
        x = operand.along_k ? thread / 2 : thread % (BLOCK / 4) * 4;
        k = operand.along_k ? thread % 2 * 4 : thread / (BLOCK / 4);
        const int64_t first = int64_t(tile) * BLOCK + x;
        x_left = int(max(min(operand.size - first, int64_t(4)), int64_t(0)));
        source = operand.data + first * operand.stride_x + k * operand.stride_k;
    }

    // Loads from the next tile, whose first `depth` terms are in the matrix; elements outside are zeros.
    template <bool TF32>
    __device__ __forceinline__ Quad load(const StridedOperand<T>& operand, int depth) {
        const int left = operand.along_k ? (x_left > 0 ? depth - k : 0) : (k < depth ? x_left : 0);
        Pack<T, 4> in;
        if (operand.packed && left >= 4) {
            in = *reinterpret_cast<const Pack<T, 4>*>(source);
        } else {
            const int64_t step = operand.along_k ? operand.stride_k : operand.stride_x;
#pragma unroll
            for (int i = 0; i < 4; ++i) in[i] = i < left ? source[i * step] : from_float<T>(0.0f);
        }
        source += BLOCK_K * operand.stride_k;
        Quad out;
#pragma unroll
        for (int i = 0; i < 4; ++i) out[i] = factor<T, TF32>(in[i]);
        return out;
    }

    __device__ __forceinline__ void store(float (&tile)[BLOCK_K][PITCH], bool along_k, const Quad& values) const {
        if (along_k) {
#pragma unroll
            for (int i = 0; i < 4; ++i) tile[k + i][x] = values[i];
        } else {
            *reinterpret_cast<Quad*>(&tile[k][x]) = values;
        }
    }
};

template <typename T, bool TF32>
__global__ void __launch_bounds__(THREADS, 2)
    matmul_register_tiles(const StridedOperand<T> a, const StridedOperand<T> b, T* __restrict__ out, int64_t K) {
    alignas(16) __shared__ float a_tile[BLOCK_K][PITCH];  // [k][m]
    alignas(16) __shared__ float b_tile[BLOCK_K][PITCH];  // [k][n]
    const unsigned tiles_n = unsigned(ceil_div<int64_t>(b.size, BLOCK));
    const unsigned tile_m = blockIdx.x / tiles_n, tile_n = blockIdx.x % tiles_n;
    const int tx = threadIdx.x % LANES, ty = threadIdx.x / LANES;
    TileCopy<T> a_copy(a, tile_m), b_copy(b, tile_n);

    float acc[8][8] = {};
#pragma unroll 1
    for (int64_t k_left = K; k_left > 0; k_left -= BLOCK_K) {
        const int depth = int(min(k_left, int64_t(BLOCK_K)));
        const Quad a_quad = a_copy.template load<TF32>(a, depth), b_quad = b_copy.template load<TF32>(b, depth);
        __syncthreads();  // the previous tiles have been read
        a_copy.store(a_tile, a.along_k, a_quad);
        b_copy.store(b_tile, b.along_k, b_quad);
        __syncthreads();
#pragma unroll 2  // with more steps the compiler loads further ahead than registers allow
        for (int k = 0; k < BLOCK_K; ++k) {
            float a_k[8], b_k[8];
            load_fragment(a_k, a_tile[k] + ty * 4, APART);
            load_fragment(b_k, b_tile[k] + tx * 4, APART);
#pragma unroll
            for (int i = 0; i < 8; ++i) {
#pragma unroll
                for (int j = 0; j < 8; ++j) acc[i][j] = fmaf(a_k[i], b_k[j], acc[i][j]);
            }
        }
    }

    const int64_t m = int64_t(tile_m) * BLOCK + ty * 4, n = int64_t(tile_n) * BLOCK + tx * 4, N = b.size;
    const int rows = int(min(a.size - m, int64_t(BLOCK))), columns = int(min(N - n, int64_t(BLOCK)));
    T* at = out + m * N + n;
#pragma unroll
    for (int i = 0; i < 8; ++i, at += i == 4 ? (APART - 3) * N : N) {
        if (i / 4 * APART + i % 4 >= rows) break;
#pragma unroll
        for (int j = 0; j < 8; j += 4) {
            const int column = j / 4 * APART;
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

extern "C" int matmul_register_tiles(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K,
                                     int64_t stride_am, int64_t stride_ak, int64_t stride_bk, int64_t stride_bn,
                                     int64_t tf32, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(M, BLOCK) * ceil_div<int64_t>(N, BLOCK))), block(THREADS);
    record->set(grid, block);
    return by_precision(dtype, tf32, [&](auto zero, auto rounded) {
        using T = decltype(zero);
        matmul_register_tiles<T, decltype(rounded)::value>
            <<<grid, block, 0, stream>>>(strided_operand<T>(a, M, stride_am, stride_ak),
                                         strided_operand<T>(b, N, stride_bn, stride_bk), static_cast<T*>(out), K);
    });
}
