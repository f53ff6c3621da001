// out[m, n] = sum over k of a[m, k] * b[k, n], float32, for any strides of a and b; out is row-major
//
// A block of 256 threads computes a tile of 128 x 256 elements of out, a thread 8 x 16 of them. Outputs with too few of
// such tiles for the device take tiles of 64 x 128, with 128 threads and 8 x 8 elements a thread.
//
// Adds asynchronous copies, `cp.async`, to double_buffered.cu: tiles go from global to shared memory
// without passing through registers. Threads spend no instructions on storing them, and no registers on holding them,
// and three tiles are in flight instead of one.
// Two more stalls of the multiply-adds are removed:
//   - At the barrier. A thread arrives when its copies of the next tile are complete, and waits only when it begins
//     that tile (separate arrive and wait on an mbarrier). This takes one more stage: the copies in flight overwrite
//     not the last tile but the one before, which all threads have read.
//   - At the register file. It has two banks with one read a cycle each, and a multiply-add reads three registers.
//     Going down a column of the outputs keeps the element of b in the operand cache; going up the next column keeps
//     the element of a at the turn.
//
// Speed: docs/ladder.md. Variants that were tried: docs/lab/matmul_tried.md
//
// An operand that is contiguous along m (or n) is copied 16 bytes at a time. Any other operand is copied element by
// element, which transposes it. Tiles that overhang the matrix are copied with a test per element; cp.async with a
// source size of 0 writes zeros.
//
// Precision: as in matmul.cu, and the sum has the same order, so the results are bitwise the same.
//
// Source: PTX ISA, "cp.async"; the loop is that of CUTLASS 2 ("multistage").
#include "matmul/operands.cuh"

constexpr int BLOCK_K = 16, STAGES = 5, AHEAD = STAGES - 2;  // tiles in flight
constexpr int LANES_M = 8, LANES_N = 4;  // lanes of a warp along m and n
constexpr int THREAD_M = 8;              // rows of a thread; it has THREAD_N columns, both in groups of four

template <int WARPS_M_, int WARPS_N_, int THREAD_N_>
struct TileConfig {
    static constexpr int WARPS_M = WARPS_M_, WARPS_N = WARPS_N_, THREAD_N = THREAD_N_;
    static constexpr int WARP_M = LANES_M * THREAD_M, WARP_N = LANES_N * THREAD_N;
    static constexpr int BLOCK_M = WARPS_M * WARP_M, BLOCK_N = WARPS_N * WARP_N, THREADS = WARPS_M * WARPS_N * 32;
    static constexpr int PITCH_M = BLOCK_M + 4, PITCH_N = BLOCK_N + 4;
    static constexpr int A_FLOATS = BLOCK_K * PITCH_M, STAGE_FLOATS = A_FLOATS + BLOCK_K * PITCH_N;
    // A stage is a[BLOCK_K][PITCH_M], then b[BLOCK_K][PITCH_N]; the mbarrier comes after all stages.
    static constexpr int BARRIER = STAGES * STAGE_FLOATS;
    static constexpr int BYTES = BARRIER * sizeof(float) + sizeof(uint64_t);
};
using Large = TileConfig<2, 4, 16>;
using Small = TileConfig<1, 4, 8>;

// Element (x, k) is data[x * stride_x + k * stride_k], where x is m of a or n of b.
struct Operand {
    const float* __restrict__ data;
    int64_t size, stride_x, stride_k;  // size: M or N
};

// Copies COUNT neighbours asynchronously, or writes zeros if they do not exist. The data has arrived after the wait for
// the group of the copy. Before compute capability 8.0, and in the host build, the copy is synchronous.
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
__device__ __forceinline__ void copy_commit_group() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits for all groups of copies of this thread but the last PRIOR.
template <int PRIOR>
__device__ __forceinline__ void copy_wait_group() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(PRIOR) : "memory");
#endif
}

// A barrier of all threads of the block, in two parts: `wait` returns when all threads have arrived. Before compute
// capability 8.0 `wait` is __syncthreads.
class SplitBarrier {
    uint32_t address, parity = 0;

public:
    // Called by all threads, with a __syncthreads() before the first arrival.
    __device__ __forceinline__ SplitBarrier(void* shared, int threads) {
#if __CUDA_ARCH__ >= 800
        address = uint32_t(__cvta_generic_to_shared(shared));
        if (threadIdx.x == 0) {
            asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address), "r"(threads) : "memory");
        }
#endif
    }
    __device__ __forceinline__ void arrive() {
#if __CUDA_ARCH__ >= 800
        asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(address) : "memory");
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
                         : "r"(address), "r"(parity)
                         : "memory");
        } while (!complete);
        parity ^= 1;
#else
        __syncthreads();
#endif
    }
};

// Copies a thread's part of each tile of an operand, BLOCK x BLOCK_K: PIECES pieces of four neighbours along x, or of
// one element. Piece i + 1 is `step` elements after piece i in memory, and PIECE_FLOATS after it in shared memory.
template <bool QUADS, int BLOCK, int THREADS>
struct TileCopy {
    static constexpr int COUNT = QUADS ? 4 : 1, PITCH = BLOCK + 4;
    static constexpr int PIECES = BLOCK * BLOCK_K / COUNT / THREADS;
    static constexpr int ACROSS = QUADS ? BLOCK / 4 : BLOCK_K;  // threads along the contiguous dimension
    static constexpr int PIECE_FLOATS = THREADS / ACROSS * (QUADS ? PITCH : 1);

    const float* __restrict__ source;
    int64_t step, last_step;
    int target;    // position of the first piece in the tile
    int64_t left;  // rows of the operand from the tile's first row on

    __device__ __forceinline__ TileCopy(const Operand& operand, unsigned tile) {
        const int near = threadIdx.x % ACROSS, far = threadIdx.x / ACROSS;
        const int x = QUADS ? near * 4 : far, k = QUADS ? far : near;
        source = operand.data + (int64_t(tile) * BLOCK + x) * operand.stride_x + k * operand.stride_k;
        step = THREADS / ACROSS * (QUADS ? operand.stride_k : operand.stride_x);
        last_step = BLOCK_K * operand.stride_k - (PIECES - 1) * step;
        target = k * PITCH + x;
        left = operand.size - int64_t(tile) * BLOCK;
    }

    __device__ __forceinline__ void piece(float* tile, int i) {
        copy_async<COUNT>(tile + target + i * PIECE_FLOATS, source);
        source += i < PIECES - 1 ? step : last_step;
#if __CUDA_ARCH__
        asm("" : "+l"(source));  // keeps one running address instead of one sum for each piece
#endif
    }

    // Copies a whole tile with bounds checks: its first `depth` terms are in the matrix. `valid` is any valid address.
    __device__ __forceinline__ void checked(float* tile, int64_t depth, const float* __restrict__ valid) const {
        const int x = target % PITCH, k = target / PITCH;
#pragma unroll
        for (int i = 0; i < PIECES; ++i) {
            const int x_i = QUADS ? x : x + i * (THREADS / ACROSS), k_i = QUADS ? k + i * (THREADS / ACROSS) : k;
            const bool exists = x_i < left && k_i < depth;
            copy_async<COUNT>(tile + target + i * PIECE_FLOATS, exists ? source + i * step : valid, exists);
        }
    }
};

// One block per multiprocessor: a thread may use as many registers as it needs, without spilling.
template <bool A_QUADS, bool B_QUADS, typename C>
__global__ void __launch_bounds__(C::THREADS, 1)
    matmul_async_copies(const Operand a, const Operand b, float* __restrict__ out, int64_t K) {
    constexpr int APART_M = LANES_M * 4, APART_N = LANES_N * 4, THREAD_N = C::THREAD_N;
    using CopyA = TileCopy<A_QUADS, C::BLOCK_M, C::THREADS>;
    using CopyB = TileCopy<B_QUADS, C::BLOCK_N, C::THREADS>;
    constexpr int PIECES = CopyA::PIECES + CopyB::PIECES;
    static_assert(PIECES <= 2 * (BLOCK_K - 2), "all pieces are copied before the group is committed");
    extern __shared__ float4 shared[];
    float* const stages = reinterpret_cast<float*>(shared);
    const unsigned tiles_n = unsigned(ceil_div<int64_t>(b.size, C::BLOCK_N));
    const unsigned tile_m = blockIdx.x / tiles_n, tile_n = blockIdx.x % tiles_n;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int thread_m = warp / C::WARPS_N * C::WARP_M + lane / 2 % 8 * 4;
    const int thread_n = warp % C::WARPS_N * C::WARP_N + (lane % 2 + lane / 16 * 2) * 4;

    CopyA a_copy(a, tile_m);
    CopyB b_copy(b, tile_n);
    const bool inside = a_copy.left >= C::BLOCK_M && b_copy.left >= C::BLOCK_N;
    int64_t k_to_load = K;
    auto commit = [&] {
        k_to_load -= BLOCK_K;
        copy_commit_group();
    };
    auto load_checked = [&](float* stage) {
        a_copy.checked(stage, k_to_load, a.data);
        b_copy.checked(stage + C::A_FLOATS, k_to_load, b.data);
        a_copy.source += BLOCK_K * a.stride_k;
        b_copy.source += BLOCK_K * b.stride_k;
    };
#pragma unroll
    for (int stage = 0; stage < AHEAD; ++stage) {
        if (k_to_load > 0) load_checked(stages + stage * C::STAGE_FLOATS);
        commit();
    }
    copy_wait_group<AHEAD - 1>();
    SplitBarrier barrier(stages + C::BARRIER, C::THREADS);
    __syncthreads();

    float acc[THREAD_M][THREAD_N] = {}, a_k[2][THREAD_M], b_k[2][THREAD_N];
    float* const last = stages + (STAGES - 1) * C::STAGE_FLOATS;
    float *current = stages, *target = stages + AHEAD * C::STAGE_FLOATS;  // stages being multiplied and being copied to
    const float* a_now = stages + thread_m;
    const float* b_now = stages + C::A_FLOATS + thread_n;
    load_fragment(a_k[0], a_now, APART_M);
    load_fragment(b_k[0], b_now, APART_N);
    // Multiplies one tile. `unchecked` is the loop for tiles inside of the matrix, without bounds checks.
    auto multiply = [&](auto inner) {
        constexpr bool unchecked = decltype(inner)::value;
        if (!unchecked && k_to_load > 0) load_checked(target);
#pragma unroll
        for (int k = 0; k < BLOCK_K; ++k) {
            if (unchecked) {  // two pieces at a time: all at once would stall in the queue to memory
#pragma unroll
                for (int i = k * 2; i < k * 2 + 2 && i < PIECES; ++i) {
                    if (i < CopyA::PIECES) {
                        a_copy.piece(target, i);
                    } else {
                        b_copy.piece(target + C::A_FLOATS, i - CopyA::PIECES);
                    }
                }
            }
            if (k == BLOCK_K - 2) {
                commit();
                copy_wait_group<AHEAD - 1>();
                barrier.arrive();  // this thread's part of the next tile has arrived
            }
            if (k == BLOCK_K - 1) {
                target = target == last ? stages : target + C::STAGE_FLOATS;
                current = current == last ? stages : current + C::STAGE_FLOATS;
                barrier.wait();  // all parts have arrived, and all warps have left the previous tile of `target`
                a_now = current + thread_m;
                b_now = current + C::A_FLOATS + thread_n;
            }
            load_fragment(a_k[(k + 1) % 2], a_now + (k + 1) % BLOCK_K * C::PITCH_M, APART_M);
            load_fragment(b_k[(k + 1) % 2], b_now + (k + 1) % BLOCK_K * C::PITCH_N, APART_N);
#pragma unroll
            for (int step = 0; step < THREAD_M * THREAD_N; ++step) {  // down one column, up the next
                const int j = step / THREAD_M, i = j % 2 ? THREAD_M - 1 - step % THREAD_M : step % THREAD_M;
                acc[i][j] = fmaf(a_k[k % 2][i], b_k[k % 2][j], acc[i][j]);
            }
        }
    };
    int64_t k_left = K;
#pragma unroll 1
    for (; inside && k_to_load >= BLOCK_K; k_left -= BLOCK_K) multiply(std::true_type());
#pragma unroll 1
    for (; k_left > 0; k_left -= BLOCK_K) multiply(std::false_type());
    copy_wait_group<0>();

    const int64_t N = b.size, m = int64_t(tile_m) * C::BLOCK_M + thread_m, n = int64_t(tile_n) * C::BLOCK_N + thread_n;
    const int rows = int(min(a.size - m, int64_t(C::BLOCK_M))), columns = int(min(N - n, int64_t(C::BLOCK_N)));
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
    return x.stride_x == 1 && x.size % 4 == 0 && x.stride_k % 4 == 0 && is_aligned(x.data, 16);
}

template <bool A_QUADS, bool B_QUADS, typename C>
void launch(Operand a, Operand b, void* out, int64_t K, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(a.size, C::BLOCK_M) * ceil_div<int64_t>(b.size, C::BLOCK_N)));
    const dim3 block(C::THREADS);
    record->set(grid, block, C::BYTES);
    cudaFuncSetAttribute(matmul_async_copies<A_QUADS, B_QUADS, C>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         C::BYTES);
    matmul_async_copies<A_QUADS, B_QUADS, C><<<grid, block, C::BYTES, stream>>>(a, b, static_cast<float*>(out), K);
}

extern "C" int matmul_async_copies(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K,
                                   int64_t stride_am, int64_t stride_ak, int64_t stride_bk, int64_t stride_bn,
                                   cudaStream_t stream, LaunchRecord* record) {
    const Operand left{static_cast<const float*>(a), M, stride_am, stride_ak};
    const Operand right{static_cast<const float*>(b), N, stride_bn, stride_bk};
    const int64_t large_tiles = ceil_div<int64_t>(M, Large::BLOCK_M) * ceil_div<int64_t>(N, Large::BLOCK_N);
    const bool large = large_tiles * 3 > multiprocessor_count() * 2;  // they occupy over two thirds of the device
    const bool a_quads = in_quads(left), b_quads = in_quads(right);
    const auto start = large ? (a_quads ? b_quads ? launch<true, true, Large> : launch<true, false, Large>
                                        : b_quads ? launch<false, true, Large> : launch<false, false, Large>)
                             : (a_quads ? b_quads ? launch<true, true, Small> : launch<true, false, Small>
                                        : b_quads ? launch<false, true, Small> : launch<false, false, Small>);
    start(left, right, out, K, stream, record);
    return cudaGetLastError();
}
