// out[m, n] = sum over k of a[m, k] * b[k, n], for any strides of a and b; out is row-major
//
// A block of 256 threads computes a tile of 128 x 256 elements of out, a thread 8 x 16 of them; where that makes too
// few blocks for the device, 128 threads compute 64 x 128, a thread 8 x 8.
//
// What this adds to matmul_register_tiles.cu is that a thread loads ahead. Everything exists twice: while one pair of
// tiles is multiplied, the next is on its way from global memory to registers, and then goes into the other half of
// shared memory; while row k of the tiles is multiplied, row k + 1 is read. So no multiply-add waits for a load of its
// own thread, one barrier a tile is left, and latency needs no second block to hide behind: the registers of both go
// into a larger tile of one, which takes six loads of 16 bytes for 128 multiply-adds.
// Measured gain: see docs/ladder.md
//
// The lanes of a warp form 8 rows of 4, so that 16-byte reads of shared memory meet no bank twice; lanes l and l ^ 1
// have the same rows, l and l ^ 2 the same columns: half a warp then is served at once.
// Tiles that lie inside of a matrix are copied four elements at a time without a question asked; others one by one.
//
// Precision: as in matmul.cu, and the sum is in the same order, so the results are the same to the last bit.
//
// Source: the loop is that of CUTLASS 1 (A. Kerr et al., "CUTLASS: Fast Linear Algebra in CUDA C++", 2017).
#include <type_traits>

#include "common.cuh"

constexpr int BLOCK_K = 16;
constexpr int UNROLL = 16;               // of the loop over them; even, so that registers can take turns
constexpr int LANES_M = 8, LANES_N = 4;  // of a warp
constexpr int THREAD_M = 8;              // rows of a thread; it has THREAD_N columns, both in groups of four

using Quad = Pack<float, 4>;

template <int WARPS_M_, int WARPS_N_, int THREAD_N_>
struct Shape {
    static constexpr int WARPS_M = WARPS_M_, WARPS_N = WARPS_N_, THREAD_N = THREAD_N_;
    static constexpr int WARP_M = LANES_M * THREAD_M, WARP_N = LANES_N * THREAD_N;
    static constexpr int BLOCK_M = WARPS_M * WARP_M, BLOCK_N = WARPS_N * WARP_N, THREADS = WARPS_M * WARPS_N * 32;
    static constexpr int PITCH_M = BLOCK_M + 4, PITCH_N = BLOCK_N + 4;  // see Copy::put
    static constexpr int A_FLOATS = BLOCK_K * PITCH_M, B_FLOATS = BLOCK_K * PITCH_N;
    static constexpr int BYTES = 2 * (A_FLOATS + B_FLOATS) * sizeof(float);  // a_tile[2][BLOCK_K][PITCH_M], then b_tile
};
using Large = Shape<2, 4, 16>;
using Small = Shape<1, 4, 8>;

// One operand: element (x, k) is at[x * stride_x + k * stride_k], where x is m for a and n for b.
template <typename T>
struct Operand {
    const T* __restrict__ at;
    int64_t size, stride_x, stride_k;  // size: M or N
    bool along_k;                      // k is the dimension with the smaller stride
    bool packed;                       // four elements along that dimension can be read at once
};

// What a thread copies of every tile of an operand, BLOCK x BLOCK_K: QUADS times four elements that are neighbours
// along k or across it. Every NEAR of them lie within 8 k.
template <typename T, bool TF32, int BLOCK, int THREADS>
struct Copy {
    static constexpr int QUADS = BLOCK * BLOCK_K / 4 / THREADS, NEAR = BLOCK * 2 / THREADS, PITCH = BLOCK + 4;
    static_assert(NEAR >= 1 && QUADS % NEAR == 0, "");

    Quad quads[QUADS];
    int x, k;      // of the first quad, in the tile
    int64_t left;  // rows of the operand from the tile's first on
    const T* __restrict__ from;
    int64_t step;  // from one of the NEAR quads to the next

    __device__ __forceinline__ Copy(const Operand<T>& operand, unsigned tile) {
        const int thread = threadIdx.x;
        x = operand.along_k ? thread / 2 : thread % (BLOCK / 4) * 4;
        k = operand.along_k ? thread % 2 * 4 : thread / (BLOCK / 4);
        left = operand.size - int64_t(tile) * BLOCK;
        from = operand.at + (int64_t(tile) * BLOCK + x) * operand.stride_x + k * operand.stride_k;
        step = operand.along_k ? THREADS / 2 * operand.stride_x : 8 / NEAR * operand.stride_k;
    }

    static __device__ __forceinline__ float convert(T value) {
        return TF32 ? round_to_tf32(to_float(value)) : to_float(value);
    }

    // Reads the next tile, of which depth k exist; zeros for what is outside of the matrix.
    __device__ __forceinline__ void fetch(const Operand<T>& operand, int64_t depth) {
        if (operand.packed && left >= BLOCK && depth >= BLOCK_K) {
#pragma unroll
            for (int i = 0; i < QUADS; ++i) {
                const T* at = from + i % NEAR * step + i / NEAR * 8 * operand.stride_k;
                const auto in = *reinterpret_cast<const Pack<T, 4>*>(at);
#pragma unroll
                for (int j = 0; j < 4; ++j) quads[i][j] = convert(in[j]);
            }
        } else {
#pragma unroll
            for (int i = 0; i < QUADS; ++i) {
                const T* at = from + i % NEAR * step + i / NEAR * 8 * operand.stride_k;
                const int x_i = x + (operand.along_k ? i % NEAR * (THREADS / 2) : 0);
                const int k_i = k + (operand.along_k ? 0 : i % NEAR * (8 / NEAR)) + i / NEAR * 8;
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const bool exists = operand.along_k ? x_i < left && k_i + j < depth : x_i + j < left && k_i < depth;
                    const int64_t stride = operand.along_k ? operand.stride_k : operand.stride_x;
                    quads[i][j] = exists ? convert(at[j * stride]) : 0.0f;
                }
            }
        }
        from += BLOCK_K * operand.stride_k;
    }

    // To shared memory, where k is the slow dimension: quads along k are transposed. A warp has two of them for each of
    // 16 x; rows of a tile are PITCH floats apart, 4 more than a multiple of 32, so these two times 16 meet 32 banks.
    __device__ __forceinline__ void put(float* tile, bool along_k) const {
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

// COUNT rows or columns of a thread, in groups of four that are `apart`.
template <int COUNT>
__device__ __forceinline__ void read(float (&values)[COUNT], const float* row, int apart) {
#pragma unroll
    for (int i = 0; i < COUNT; i += 4) {
        const Quad quad = *reinterpret_cast<const Quad*>(row + i / 4 * apart);
#pragma unroll
        for (int j = 0; j < 4; ++j) values[i + j] = quad[j];
    }
}

// The 1 lets a thread take the registers that it needs: nothing is spilled.
template <typename T, bool TF32, typename S>
__global__ void __launch_bounds__(S::THREADS, 1)
    matmul_double_buffered(const Operand<T> a, const Operand<T> b, T* __restrict__ out, int64_t K) {
    constexpr int APART_M = LANES_M * 4, APART_N = LANES_N * 4, THREAD_N = S::THREAD_N;
    extern __shared__ float4 shared[];
    float* const a_tiles = reinterpret_cast<float*>(shared);
    float* const b_tiles = a_tiles + 2 * S::A_FLOATS;
    const unsigned tiles_n = unsigned(ceil_div<int64_t>(b.size, S::BLOCK_N));
    const unsigned tile_m = blockIdx.x / tiles_n, tile_n = blockIdx.x % tiles_n;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int thread_m = warp / S::WARPS_N * S::WARP_M + lane / 2 % 8 * 4;
    const int thread_n = warp % S::WARPS_N * S::WARP_N + (lane % 2 + lane / 16 * 2) * 4;

    Copy<T, TF32, S::BLOCK_M, S::THREADS> a_copy(a, tile_m);
    Copy<T, TF32, S::BLOCK_N, S::THREADS> b_copy(b, tile_n);
    const float* a_now = a_tiles + thread_m;
    const float* b_now = b_tiles + thread_n;
    float acc[THREAD_M][THREAD_N] = {}, a_k[2][THREAD_M], b_k[2][THREAD_N];
    a_copy.fetch(a, K);
    b_copy.fetch(b, K);
    a_copy.put(a_tiles, a.along_k);
    b_copy.put(b_tiles, b.along_k);
    __syncthreads();
    read(a_k[0], a_now, APART_M);
    read(b_k[0], b_now, APART_N);

    int half = 0;  // of shared memory that is being multiplied
#pragma unroll 1
    for (int64_t k_left = K; k_left > 0; k_left -= BLOCK_K) {
        const bool more = k_left > BLOCK_K;
        if (more) {
            a_copy.fetch(a, k_left - BLOCK_K);
            b_copy.fetch(b, k_left - BLOCK_K);
        }
#pragma unroll 1
        for (int first = 0; first < BLOCK_K; first += UNROLL) {
#pragma unroll
            for (int k = 0; k < UNROLL; ++k) {
                if (k == UNROLL - 1 && first < BLOCK_K - UNROLL) {
                    a_now += UNROLL * S::PITCH_M;
                    b_now += UNROLL * S::PITCH_N;
                } else if (k == UNROLL - 1 && more) {
                    half ^= 1;
                    a_copy.put(a_tiles + half * S::A_FLOATS, a.along_k);
                    b_copy.put(b_tiles + half * S::B_FLOATS, b.along_k);
                    __syncthreads();  // these tiles are whole; and of those before, the last row is in registers
                    a_now = a_tiles + half * S::A_FLOATS + thread_m;
                    b_now = b_tiles + half * S::B_FLOATS + thread_n;
                }
                read(a_k[(k + 1) % 2], a_now + (k + 1) % UNROLL * S::PITCH_M, APART_M);
                read(b_k[(k + 1) % 2], b_now + (k + 1) % UNROLL * S::PITCH_N, APART_N);
#pragma unroll
                for (int i = 0; i < THREAD_M; ++i) {
#pragma unroll
                    for (int j = 0; j < THREAD_N; ++j) acc[i][j] = fmaf(a_k[k % 2][i], b_k[k % 2][j], acc[i][j]);
                }
            }
        }
    }

    const int64_t N = b.size, m = int64_t(tile_m) * S::BLOCK_M + thread_m, n = int64_t(tile_n) * S::BLOCK_N + thread_n;
    const int rows = int(min(a.size - m, int64_t(S::BLOCK_M))), columns = int(min(N - n, int64_t(S::BLOCK_N)));
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

template <typename T>
Operand<T> describe(const void* at, int64_t size, int64_t stride_x, int64_t stride_k) {
    const bool along_k = stride_k < stride_x;
    const int64_t fast = along_k ? stride_k : stride_x, slow = along_k ? stride_x : stride_k;
    const bool packed = fast == 1 && slow % 4 == 0 && is_aligned(at, 4 * sizeof(T));
    return {static_cast<const T*>(at), size, stride_x, stride_k, along_k, packed};
}

template <typename T, bool TF32, typename S>
void launch(Operand<T> a, Operand<T> b, void* out, int64_t K, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(a.size, S::BLOCK_M) * ceil_div<int64_t>(b.size, S::BLOCK_N)));
    const dim3 block(S::THREADS);
    record->set(grid, block, S::BYTES);
    cudaFuncSetAttribute(matmul_double_buffered<T, TF32, S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES);
    matmul_double_buffered<T, TF32, S><<<grid, block, S::BYTES, stream>>>(a, b, static_cast<T*>(out), K);
}

extern "C" int matmul_double_buffered(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K,
                                      int64_t stride_am, int64_t stride_ak, int64_t stride_bk, int64_t stride_bn,
                                      int64_t tf32, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    int device, multiprocessors;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    const int64_t large_tiles = ceil_div<int64_t>(M, Large::BLOCK_M) * ceil_div<int64_t>(N, Large::BLOCK_N);
    const bool large = large_tiles * 3 > multiprocessors * 2;  // more than two thirds of the device have one
    auto run = [&](auto zero, auto rounded) {
        using T = decltype(zero);
        constexpr bool TF32 = decltype(rounded)::value;
        const auto left = describe<T>(a, M, stride_am, stride_ak), right = describe<T>(b, N, stride_bn, stride_bk);
        if (large) {
            launch<T, TF32, Large>(left, right, out, K, stream, record);
        } else {
            launch<T, TF32, Small>(left, right, out, K, stream, record);
        }
    };
    if (tf32 && dtype == FLOAT32) {
        run(float(), std::true_type());
        return cudaGetLastError();
    }
    return by_dtype(dtype, [&](auto zero) { run(zero, std::false_type()); });
}
