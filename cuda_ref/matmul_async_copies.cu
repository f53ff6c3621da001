// out[m, n] = sum over k of a[m, k] * b[k, n], float32, for any strides of a and b; out is row-major
//
// A block of 256 threads computes a tile of 128 x 256 elements of out, a thread 8 x 16 of them; where that makes too
// few blocks for the device, 128 threads compute 64 x 128, a thread 8 x 8.
//
// What this adds to matmul_double_buffered.cu is that tiles come by `cp.async`: from global to shared memory without a
// stay in registers. A thread needs no instruction to store what it has loaded, nor a register to hold it meanwhile,
// and three tiles are on their way at a time instead of one.
// With so little beside the multiply-adds, what they wait for counts:
//   - For each other. A thread says early that its copies of the next tile are there, and waits for the others only
//     when it turns to that tile (a barrier in two halves). One more stage pays for it: what is overwritten meanwhile
//     is not the tile just read, but the one before, which all have left.
//   - For registers. They lie in two banks that give an operand a cycle each, and a multiply-add takes three. Down a
//     column of the outputs b's factor is held at its port, and as the next column is walked upwards, a's is held at
//     the turn.
// Measured gain: see docs/ladder.md
//
// An operand whose elements are neighbours along m (or n) is copied 16 bytes at a time; any other element by element,
// which is how it is transposed. Tiles that overhang a matrix are copied with a test for each element: a copy that is
// told that its source has no bytes writes zeros.
//
// Precision: as in matmul.cu, and the sum is in the same order, so the results are the same to the last bit.
//
// Source: PTX ISA, "cp.async"; the loop is that of CUTLASS 2 ("multistage").
#include <type_traits>

#include "common.cuh"

constexpr int BLOCK_K = 16, STAGES = 5, AHEAD = STAGES - 2;  // tiles on their way
constexpr int LANES_M = 8, LANES_N = 4;  // of a warp
constexpr int THREAD_M = 8;              // rows of a thread; it has THREAD_N columns, both in groups of four

using Quad = Pack<float, 4>;

template <int WARPS_M_, int WARPS_N_, int THREAD_N_>
struct Shape {
    static constexpr int WARPS_M = WARPS_M_, WARPS_N = WARPS_N_, THREAD_N = THREAD_N_;
    static constexpr int WARP_M = LANES_M * THREAD_M, WARP_N = LANES_N * THREAD_N;
    static constexpr int BLOCK_M = WARPS_M * WARP_M, BLOCK_N = WARPS_N * WARP_N, THREADS = WARPS_M * WARPS_N * 32;
    static constexpr int PITCH_M = BLOCK_M + 4, PITCH_N = BLOCK_N + 4;
    static constexpr int A_FLOATS = BLOCK_K * PITCH_M, STAGE_FLOATS = A_FLOATS + BLOCK_K * PITCH_N;
    static constexpr int BARRIER = STAGES * STAGE_FLOATS;  // after the stages: of each a[BLOCK_K][PITCH_M], then b
    static constexpr int BYTES = BARRIER * sizeof(float) + sizeof(uint64_t);
};
using Large = Shape<2, 4, 16>;
using Small = Shape<1, 4, 8>;

// One operand: element (x, k) is at[x * stride_x + k * stride_k], where x is m for a and n for b.
struct Operand {
    const float* __restrict__ at;
    int64_t size, stride_x, stride_k;  // size: M or N
};

// Copies COUNT neighbours, or if they do not exist writes zeros, some time before the wait for the group that it is in;
// before compute capability 8.0, at once.
template <int COUNT>
__device__ __forceinline__ void copy_async(float* to, const float* from) {
#if __CUDA_ARCH__ >= 800
    const uint32_t shared = uint32_t(__cvta_generic_to_shared(to));
    if constexpr (COUNT == 4) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared), "l"(from) : "memory");
    }
#else
    for (int i = 0; i < COUNT; ++i) to[i] = from[i];
#endif
}
template <int COUNT>
__device__ __forceinline__ void copy_async(float* to, const float* from, bool exists) {
#if __CUDA_ARCH__ >= 800
    const uint32_t shared = uint32_t(__cvta_generic_to_shared(to));
    const int bytes = exists ? COUNT * 4 : 0;
    if constexpr (COUNT == 4) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(from), "r"(bytes) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(from), "r"(bytes) : "memory");
    }
#else
    for (int i = 0; i < COUNT; ++i) to[i] = exists ? from[i] : 0.0f;
#endif
}
__device__ __forceinline__ void copy_commit() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Until all groups of this thread but the last PRIOR have been copied.
template <int PRIOR>
__device__ __forceinline__ void copy_wait() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(PRIOR) : "memory");
#endif
}

// A barrier of the block's threads in two halves: `wait` returns when all have arrived once more. Before compute
// capability 8.0 all of it is in `wait`.
class Barrier {
    uint32_t at, phase = 0;

public:
    // By all threads, and before any arrives a __syncthreads().
    __device__ __forceinline__ Barrier(void* shared, int threads) {
#if __CUDA_ARCH__ >= 800
        at = uint32_t(__cvta_generic_to_shared(shared));
        if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at), "r"(threads) : "memory");
#endif
    }
    __device__ __forceinline__ void arrive() {
#if __CUDA_ARCH__ >= 800
        asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(at) : "memory");
#endif
    }
    __device__ __forceinline__ void wait() {
#if __CUDA_ARCH__ >= 800
        uint32_t complete;
        do {
            asm volatile("{\n.reg .pred p;\n"
#if __CUDA_ARCH__ >= 900
                         "mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n"
#else
                         "mbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n"
#endif
                         "selp.u32 %0, 1, 0, p;\n}"
                         : "=r"(complete)
                         : "r"(at), "r"(phase)
                         : "memory");
        } while (!complete);
        phase ^= 1;
#else
        __syncthreads();
#endif
    }
};

// What a thread copies of every tile of an operand, BLOCK x BLOCK_K: PIECES times four neighbours along x, or one
// element. Piece i + 1 lies `step` elements after piece i, and PIECE_FLOATS in shared memory.
template <bool QUADS, int BLOCK, int THREADS>
struct Copy {
    static constexpr int COUNT = QUADS ? 4 : 1, PITCH = BLOCK + 4;
    static constexpr int PIECES = BLOCK * BLOCK_K / COUNT / THREADS;
    static constexpr int ACROSS = QUADS ? BLOCK / 4 : BLOCK_K;  // threads that copy what is nearest in memory
    static constexpr int PIECE_FLOATS = THREADS / ACROSS * (QUADS ? PITCH : 1);

    const float* __restrict__ from;
    int64_t step, last_step;
    int to;        // of the first piece, in the tile
    int64_t left;  // rows of the operand from the tile's first on

    __device__ __forceinline__ Copy(const Operand& operand, unsigned tile) {
        const int near = threadIdx.x % ACROSS, far = threadIdx.x / ACROSS;
        const int x = QUADS ? near * 4 : far, k = QUADS ? far : near;
        from = operand.at + (int64_t(tile) * BLOCK + x) * operand.stride_x + k * operand.stride_k;
        step = THREADS / ACROSS * (QUADS ? operand.stride_k : operand.stride_x);
        last_step = BLOCK_K * operand.stride_k - (PIECES - 1) * step;
        to = k * PITCH + x;
        left = operand.size - int64_t(tile) * BLOCK;
    }

    __device__ __forceinline__ void piece(float* tile, int i) {
        copy_async<COUNT>(tile + to + i * PIECE_FLOATS, from);
        from += i < PIECES - 1 ? step : last_step;
#if __CUDA_ARCH__
        asm("" : "+l"(from));  // lets the address go along, instead of being added up for each piece
#endif
    }

    // A tile of which depth k exist.
    __device__ __forceinline__ void careful(float* tile, int64_t depth, const float* __restrict__ valid) const {
        const int x = to % PITCH, k = to / PITCH;
#pragma unroll
        for (int i = 0; i < PIECES; ++i) {
            const int x_i = QUADS ? x : x + i * (THREADS / ACROSS), k_i = QUADS ? k + i * (THREADS / ACROSS) : k;
            const bool exists = x_i < left && k_i < depth;
            copy_async<COUNT>(tile + to + i * PIECE_FLOATS, exists ? from + i * step : valid, exists);
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
template <bool A_QUADS, bool B_QUADS, typename S>
__global__ void __launch_bounds__(S::THREADS, 1)
    matmul_async_copies(const Operand a, const Operand b, float* __restrict__ out, int64_t K) {
    constexpr int APART_M = LANES_M * 4, APART_N = LANES_N * 4, THREAD_N = S::THREAD_N;
    using CopyA = Copy<A_QUADS, S::BLOCK_M, S::THREADS>;
    using CopyB = Copy<B_QUADS, S::BLOCK_N, S::THREADS>;
    constexpr int PIECES = CopyA::PIECES + CopyB::PIECES;
    static_assert(PIECES <= 2 * (BLOCK_K - 2), "all of them before the group is closed");
    extern __shared__ float4 shared[];
    float* const stages = reinterpret_cast<float*>(shared);
    const unsigned tiles_n = unsigned(ceil_div<int64_t>(b.size, S::BLOCK_N));
    const unsigned tile_m = blockIdx.x / tiles_n, tile_n = blockIdx.x % tiles_n;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int thread_m = warp / S::WARPS_N * S::WARP_M + lane / 2 % 8 * 4;
    const int thread_n = warp % S::WARPS_N * S::WARP_N + (lane % 2 + lane / 16 * 2) * 4;

    CopyA a_copy(a, tile_m);
    CopyB b_copy(b, tile_n);
    const bool inside = a_copy.left >= S::BLOCK_M && b_copy.left >= S::BLOCK_N;
    int64_t to_fetch = K;
    auto fetched = [&] {
        to_fetch -= BLOCK_K;
        copy_commit();
    };
    auto fetch_carefully = [&](float* stage) {
        a_copy.careful(stage, to_fetch, a.at);
        b_copy.careful(stage + S::A_FLOATS, to_fetch, b.at);
        a_copy.from += BLOCK_K * a.stride_k;
        b_copy.from += BLOCK_K * b.stride_k;
    };
#pragma unroll
    for (int stage = 0; stage < AHEAD; ++stage) {
        if (to_fetch > 0) fetch_carefully(stages + stage * S::STAGE_FLOATS);
        fetched();
    }
    copy_wait<AHEAD - 1>();
    Barrier barrier(stages + S::BARRIER, S::THREADS);
    __syncthreads();

    float acc[THREAD_M][THREAD_N] = {}, a_k[2][THREAD_M], b_k[2][THREAD_N];
    float* const last = stages + (STAGES - 1) * S::STAGE_FLOATS;
    float *now = stages, *filled = stages + AHEAD * S::STAGE_FLOATS;  // stages: what is multiplied, what is copied to
    const float* a_now = stages + thread_m;
    const float* b_now = stages + S::A_FLOATS + thread_n;
    read(a_k[0], a_now, APART_M);
    read(b_k[0], b_now, APART_N);
    // One tile. Two loops, so that the one that nearly all tiles go through asks nothing.
    auto multiply = [&](auto whole) {
        constexpr bool quick = decltype(whole)::value;
        if (!quick && to_fetch > 0) fetch_carefully(filled);
#pragma unroll
        for (int k = 0; k < BLOCK_K; ++k) {
            if (quick) {  // two pieces, so that they do not meet in the queue to memory: all at once cost 4%
#pragma unroll
                for (int i = k * 2; i < k * 2 + 2 && i < PIECES; ++i) {
                    if (i < CopyA::PIECES) {
                        a_copy.piece(filled, i);
                    } else {
                        b_copy.piece(filled + S::A_FLOATS, i - CopyA::PIECES);
                    }
                }
            }
            if (k == BLOCK_K - 2) {
                fetched();
                copy_wait<AHEAD - 1>();
                barrier.arrive();  // this thread's part of the next tile is there
            }
            if (k == BLOCK_K - 1) {
                filled = filled == last ? stages : filled + S::STAGE_FLOATS;
                now = now == last ? stages : now + S::STAGE_FLOATS;
                barrier.wait();  // now all of it; and every warp has left the tile that `filled` had
                a_now = now + thread_m;
                b_now = now + S::A_FLOATS + thread_n;
            }
            read(a_k[(k + 1) % 2], a_now + (k + 1) % BLOCK_K * S::PITCH_M, APART_M);
            read(b_k[(k + 1) % 2], b_now + (k + 1) % BLOCK_K * S::PITCH_N, APART_N);
#pragma unroll
            for (int step = 0; step < THREAD_M * THREAD_N; ++step) {  // down a column, up the next
                const int j = step / THREAD_M, i = j % 2 ? THREAD_M - 1 - step % THREAD_M : step % THREAD_M;
                acc[i][j] = fmaf(a_k[k % 2][i], b_k[k % 2][j], acc[i][j]);
            }
        }
    };
    int64_t k_left = K;
#pragma unroll 1
    for (; inside && to_fetch >= BLOCK_K; k_left -= BLOCK_K) multiply(std::true_type());
#pragma unroll 1
    for (; k_left > 0; k_left -= BLOCK_K) multiply(std::false_type());
    copy_wait<0>();

    const int64_t N = b.size, m = int64_t(tile_m) * S::BLOCK_M + thread_m, n = int64_t(tile_n) * S::BLOCK_N + thread_n;
    const int rows = int(min(a.size - m, int64_t(S::BLOCK_M))), columns = int(min(N - n, int64_t(S::BLOCK_N)));
    float* at = out + m * N + n;
#pragma unroll
    for (int i = 0; i < THREAD_M; ++i, at += i == 4 ? (APART_M - 3) * N : N) {
        if (i / 4 * APART_M + i % 4 >= rows) break;
#pragma unroll
        for (int j = 0; j < THREAD_N; j += 4) {
            const int column = j / 4 * APART_N;
            Quad quad;
#pragma unroll
            for (int c = 0; c < 4; ++c) quad[c] = acc[i][j + c];
            if (N % 4 == 0) {
                if (column < columns) *reinterpret_cast<Quad*>(at + column) = quad;
            } else {
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    if (column + c < columns) at[column + c] = quad[c];
                }
            }
        }
    }
}

bool in_quads(const Operand& x) {
    return x.stride_x == 1 && x.size % 4 == 0 && x.stride_k % 4 == 0 && is_aligned(x.at, 16);
}

template <bool A_QUADS, bool B_QUADS, typename S>
void launch(Operand a, Operand b, void* out, int64_t K, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(a.size, S::BLOCK_M) * ceil_div<int64_t>(b.size, S::BLOCK_N)));
    const dim3 block(S::THREADS);
    record->set(grid, block, S::BYTES);
    cudaFuncSetAttribute(matmul_async_copies<A_QUADS, B_QUADS, S>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         S::BYTES);
    matmul_async_copies<A_QUADS, B_QUADS, S><<<grid, block, S::BYTES, stream>>>(a, b, static_cast<float*>(out), K);
}

extern "C" int matmul_async_copies(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K,
                                   int64_t stride_am, int64_t stride_ak, int64_t stride_bk, int64_t stride_bn,
                                   cudaStream_t stream, LaunchRecord* record) {
    int device, multiprocessors;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    const Operand left{static_cast<const float*>(a), M, stride_am, stride_ak};
    const Operand right{static_cast<const float*>(b), N, stride_bn, stride_bk};
    const int64_t large_tiles = ceil_div<int64_t>(M, Large::BLOCK_M) * ceil_div<int64_t>(N, Large::BLOCK_N);
    const bool large = large_tiles * 3 > multiprocessors * 2;  // more than two thirds of the device have one
    const bool a_quads = in_quads(left), b_quads = in_quads(right);
    const auto start = large ? (a_quads ? b_quads ? launch<true, true, Large> : launch<true, false, Large>
                                        : b_quads ? launch<false, true, Large> : launch<false, false, Large>)
                             : (a_quads ? b_quads ? launch<true, true, Small> : launch<true, false, Small>
                                        : b_quads ? launch<false, true, Small> : launch<false, false, Small>);
    start(left, right, out, K, stream, record);
    return cudaGetLastError();
}
