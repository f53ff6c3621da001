// out[m, n] = sum over k of a[m, k] * b[k, n], for any strides of a and b; out is row-major
//
// A block of 256 threads computes a tile of 128 x 128 elements of out, a thread 8 x 8 of them.
//
// What this adds to matmul_tiled.cu is a tile in each thread's registers. A thread reads 8 numbers of a and 8 of b from
// shared memory and multiplies each with each: four loads of 16 bytes for 64 multiply-adds, where there were five for
// four. So the arithmetic is busy, and no longer the loads. Larger tiles also mean that global memory is read four
// times less, and four neighbours by one instruction where alignment allows.
// Measured gain: see docs/ladder.md
//
// Both tiles lie in shared memory with k as the slow dimension, so that what a thread needs is contiguous: its 8 rows
// and columns are two groups of four, 64 apart, and the lanes of a warp read neighbouring groups. An operand that is
// contiguous along k is transposed on its way in. Rows are 132 floats apart: then the two by sixteen elements that a
// warp writes, of rows four apart, meet 32 different banks.
//
// Precision: as in matmul.cu, and the sum is in the same order, so the results are the same to the last bit.
//
// Source: V. Volkov, J. Demmel, "Benchmarking GPUs to Tune Dense Linear Algebra", SC 2008.
#include "common.cuh"

constexpr int BLOCK = 128;  // rows and columns of out in a block's tile
constexpr int BLOCK_K = 8;
constexpr int THREADS = 256;
constexpr int LANES = 16;  // threads along a row, and along a column, of the tile; each has two groups of four
constexpr int PITCH = BLOCK + 4;

using Quad = Pack<float, 4>;

// One operand: element (x, k) is at[x * stride_x + k * stride_k], where x is m for a and n for b.
template <typename T>
struct Operand {
    const T* __restrict__ at;
    int64_t size, stride_x, stride_k;  // size: M or N
    bool along_k;                      // k is the dimension with the smaller stride
    bool packed;                       // four elements along that dimension can be read at once
};

// The four elements of every tile of an operand that a thread copies: from (x, k) in the tile on, along k or across it.
template <typename T>
struct Copy {
    int x, k;
    int x_left;  // how many elements the operand has from x on, at most 4
    const T* __restrict__ from;

    __device__ __forceinline__ Copy(const Operand<T>& operand, unsigned tile) {
        const int thread = threadIdx.x;
        x = operand.along_k ? thread / 2 : thread % (BLOCK / 4) * 4;
        k = operand.along_k ? thread % 2 * 4 : thread / (BLOCK / 4);
        const int64_t first = int64_t(tile) * BLOCK + x;
        x_left = int(max(min(operand.size - first, int64_t(4)), int64_t(0)));
        from = operand.at + first * operand.stride_x + k * operand.stride_k;
    }

    // From the next tile, of which depth k exist. Zeros for what is outside of the matrix.
    template <bool TF32>
    __device__ __forceinline__ Quad fetch(const Operand<T>& operand, int depth) {
        const int left = operand.along_k ? (x_left > 0 ? depth - k : 0) : (k < depth ? x_left : 0);
        Pack<T, 4> in;
        if (operand.packed && left >= 4) {
            in = *reinterpret_cast<const Pack<T, 4>*>(from);
        } else {
            const int64_t step = operand.along_k ? operand.stride_k : operand.stride_x;
#pragma unroll
            for (int i = 0; i < 4; ++i) in[i] = i < left ? from[i * step] : from_float<T>(0.0f);
        }
        from += BLOCK_K * operand.stride_k;
        Quad out;
#pragma unroll
        for (int i = 0; i < 4; ++i) out[i] = TF32 ? round_to_tf32(to_float(in[i])) : to_float(in[i]);
        return out;
    }

    __device__ __forceinline__ void put(float (&tile)[BLOCK_K][PITCH], bool along_k, const Quad& values) const {
        if (along_k) {
#pragma unroll
            for (int i = 0; i < 4; ++i) tile[k + i][x] = values[i];
        } else {
            *reinterpret_cast<Quad*>(&tile[k][x]) = values;
        }
    }
};

// Eight rows or columns of a thread: four from 4 * `lane` on, and four 64 further.
__device__ __forceinline__ void read_eight(float (&eight)[8], const float* row, int lane) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const Quad quad = *reinterpret_cast<const Quad*>(row + half * (BLOCK / 2) + lane * 4);
#pragma unroll
        for (int i = 0; i < 4; ++i) eight[half * 4 + i] = quad[i];
    }
}

template <typename T, bool TF32>
__global__ void __launch_bounds__(THREADS, 2)
    matmul_register_tiles(const Operand<T> a, const Operand<T> b, T* __restrict__ out, int64_t K) {
    alignas(16) __shared__ float a_tile[BLOCK_K][PITCH];  // [k][m]
    alignas(16) __shared__ float b_tile[BLOCK_K][PITCH];  // [k][n]
    const unsigned tiles_n = unsigned(ceil_div<int64_t>(b.size, BLOCK));
    const unsigned tile_m = blockIdx.x / tiles_n, tile_n = blockIdx.x % tiles_n;
    const int tx = threadIdx.x % LANES, ty = threadIdx.x / LANES;
    Copy<T> a_copy(a, tile_m), b_copy(b, tile_n);

    float acc[8][8] = {};
#pragma unroll 1
    for (int64_t k_left = K; k_left > 0; k_left -= BLOCK_K) {
        const int depth = int(min(k_left, int64_t(BLOCK_K)));
        const Quad a_quad = a_copy.template fetch<TF32>(a, depth), b_quad = b_copy.template fetch<TF32>(b, depth);
        __syncthreads();  // the last tiles have been used
        a_copy.put(a_tile, a.along_k, a_quad);
        b_copy.put(b_tile, b.along_k, b_quad);
        __syncthreads();
#pragma unroll 2  // if it sees more steps, the compiler loads further ahead than there are registers for
        for (int k = 0; k < BLOCK_K; ++k) {
            float a_k[8], b_k[8];
            read_eight(a_k, a_tile[k], ty);
            read_eight(b_k, b_tile[k], tx);
#pragma unroll
            for (int i = 0; i < 8; ++i) {
#pragma unroll
                for (int j = 0; j < 8; ++j) acc[i][j] = fmaf(a_k[i], b_k[j], acc[i][j]);
            }
        }
    }

    const int64_t m = int64_t(tile_m) * BLOCK + ty * 4, n = int64_t(tile_n) * BLOCK + tx * 4, N = b.size;
    const int rows = int(min(a.size - m, int64_t(BLOCK))), columns = int(min(N - n, int64_t(BLOCK)));  // that exist
    T* at = out + m * N + n;
#pragma unroll
    for (int i = 0; i < 8; ++i, at += i == 4 ? (BLOCK / 2 - 3) * N : N) {
        if (i / 4 * (BLOCK / 2) + i % 4 >= rows) break;
#pragma unroll
        for (int j = 0; j < 8; j += 4) {
            const int column = j / 4 * (BLOCK / 2);
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

template <typename T>
Operand<T> describe(const void* at, int64_t size, int64_t stride_x, int64_t stride_k) {
    const bool along_k = stride_k < stride_x;
    const int64_t fast = along_k ? stride_k : stride_x, slow = along_k ? stride_x : stride_k;
    const bool packed = fast == 1 && slow % 4 == 0 && is_aligned(at, 4 * sizeof(T));
    return {static_cast<const T*>(at), size, stride_x, stride_k, along_k, packed};
}

extern "C" int matmul_register_tiles(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K,
                                     int64_t stride_am, int64_t stride_ak, int64_t stride_bk, int64_t stride_bn,
                                     int64_t tf32, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(M, BLOCK) * ceil_div<int64_t>(N, BLOCK))), block(THREADS);
    record->set(grid, block);
    auto launch = [&](auto kernel, auto zero) {
        using T = decltype(zero);
        kernel<<<grid, block, 0, stream>>>(describe<T>(a, M, stride_am, stride_ak),
                                           describe<T>(b, N, stride_bn, stride_bk), static_cast<T*>(out), K);
    };
    if (tf32 && dtype == FLOAT32) {
        launch(matmul_register_tiles<float, true>, float());
        return cudaGetLastError();
    }
    return by_dtype(dtype, [&](auto zero) { launch(matmul_register_tiles<decltype(zero), false>, zero); });
}
