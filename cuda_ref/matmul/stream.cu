// out[m, n] = sum over k of a[m, k] * b[k, n], 16 bits, for at most 16 rows or columns: bound by reading one operand
//
// The larger operand is called the stream; the other one, `few`, has few rows (or columns). Each warp copies its parts
// of the stream to a ring in shared memory that no other warp uses, so no barrier is needed until all is read. Loads to
// registers would need no ring, but the compiler would decide how many are in flight.
//   - mma.sync multiplies 16 elements of the stream by 8 rows of `few`. The choice of these 16, and the order of k, are
//     free as long as both operands agree. So a thread takes 16 bytes along k or across it, and holds whole fragments:
//     along k as they are, across k after exchanging halves between two registers.
//   - The warps of a block, and the blocks of a cluster, divide k. Their sums are added in shared memory, in fixed
//     order.
// Rows may begin at any address (common/unaligned.cuh).
//
// Precision: products of 16 bits are exact, sums float32, rounded once.
//
// Source: PTX ISA, "Warp Level Matrix Instructions".
#include <algorithm>

#include "common/mma.cuh"
#include "common/tiles.cuh"
#include "common/unaligned.cuh"

#ifdef __CUDACC__
#include "common/launch.cuh"
#endif

constexpr int LOG_WARPS = 3, WARPS = 1 << LOG_WARPS, THREADS = WARPS * 32, LOG_STRIP = 6;
constexpr int LINE = 64;  // elements of a cache line
// STRIP: elements of the stream that a warp multiplies. PITCH: 65 avoids bank conflicts.
constexpr int STRIP = 1 << LOG_STRIP, PITCH = STRIP + 1;

struct Stream {
    const uint16_t* data;
    int size, K;     // rows (or columns), and terms
    int64_t stride;  // from row to row if it is contiguous along k, else from k to k
};

struct Few {
    const uint16_t* data;
    int size;
    int64_t stride, stride_k;
    bool pairs;  // two neighbours along k can be read at once; then K is even

    // Brings this thread's share of all elements to the L2 cache. (prefetch.global.L2 in the loop is slower.)
    __device__ __forceinline__ void touch(int thread, int threads, int K) const {
        const int step = stride_k == 1 ? LINE : 1, rows = stride_k == 1 ? size : 1, count = ceil_div(K, step);
        for (int r = 0; r < rows; ++r) {
            for (int i = thread; i < count; i += threads) load_now(data + r * stride + i * step * stride_k);
        }
    }
};

// Elements k and k + 1 of row r of `few`, while their loads are in flight, as in Neighbours.
struct FewPair {
    uint32_t first, second;
    bool exists, has_second;

    FewPair() = default;
    __device__ __forceinline__ FewPair(const Few& few, int r, int k, int K)
        : second(0), exists(r < few.size && k < K), has_second(r < few.size && k + 1 < K) {
        const uint16_t* const from = exists ? few.data + r * few.stride + k * few.stride_k : few.data;
        if (few.pairs) {
            first = load_now(reinterpret_cast<const uint32_t*>(from));
        } else {
            first = load_now(from);
            second = load_now(from + (has_second ? few.stride_k : 0));
        }
    }
    __device__ __forceinline__ uint32_t value(const Few& few) const {
        const uint32_t pair = few.pairs ? first : first | (has_second ? second << 16 : 0);
        return exists ? pair : 0;
    }
};

// Eight neighbours of the stream. `count` elements of their row are left from there on; negative beyond its end.
struct Part {
    const uint16_t* from;
    int count;
};

// The order in which a warp reads the stream: each thread loads CHUNKS chunks of 16 bytes, for STRIP elements and TERMS
// terms. WIDTH threads have neighbours in memory. g = lane / 4, q = lane % 4.
// Contiguous along k: chunk 2 i + h has terms 8 q ... 8 q + 7 of element 16 i + 8 h + g.
template <bool ALONG_K>
struct Order {
    static constexpr int TERMS = 32, CHUNKS = 8, PAIRS = 4, WIDTH = 4;

    static __device__ __forceinline__ Part part(const Stream& x, int i, int s, int k, int g, int q) {
        const int row = s + i * 8 + g;
        return {x.data + row * x.stride + k + 8 * q, row < x.size ? x.K - k - 8 * q : -CHUNK};
    }
    static __device__ __forceinline__ int pair(int i, int q) { return 8 * q + 2 * i; }
    static __device__ __forceinline__ int element(int i, int half, int g) { return 16 * i + 8 * half + g; }

    template <typename T, int FEW>
    static __device__ __forceinline__ void multiply(float (&sums)[4][FEW / 8][4], const uint4 (&x)[CHUNKS],
                                                    const uint32_t (&few)[FEW / 8][PAIRS]) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint32_t low[4] = {x[2 * i].x, x[2 * i + 1].x, x[2 * i].y, x[2 * i + 1].y};
            const uint32_t high[4] = {x[2 * i].z, x[2 * i + 1].z, x[2 * i].w, x[2 * i + 1].w};
#pragma unroll
            for (int j = 0; j < FEW / 8; ++j) {
                mma<T>(sums[i][j], low, few[j][0], few[j][1]);
                mma<T>(sums[i][j], high, few[j][2], few[j][3]);
            }
        }
    }
};

// Contiguous across k: chunk i has elements 8 g ... 8 g + 7 of term 2 q + {0, 1, 8, 9}[i].
template <>
struct Order<false> {
    static constexpr int TERMS = 16, CHUNKS = 4, PAIRS = 2, WIDTH = 8;

    static __device__ __forceinline__ Part part(const Stream& x, int i, int s, int k, int g, int q) {
        const int row = k + 2 * q + i % 2 + i / 2 * 8;
        return {x.data + row * x.stride + s + 8 * g, row < x.K ? x.size - s - 8 * g : -CHUNK};
    }
    static __device__ __forceinline__ int pair(int i, int q) { return 2 * q + 8 * i; }
    static __device__ __forceinline__ int element(int i, int half, int g) { return 8 * g + 2 * i + half; }

    template <typename T, int FEW>
    static __device__ __forceinline__ void multiply(float (&sums)[4][FEW / 8][4], const uint4 (&x)[CHUNKS],
                                                    const uint32_t (&few)[FEW / 8][PAIRS]) {
        const uint32_t words[CHUNKS][4] = {{x[0].x, x[0].y, x[0].z, x[0].w},
                                           {x[1].x, x[1].y, x[1].z, x[1].w},
                                           {x[2].x, x[2].y, x[2].z, x[2].w},
                                           {x[3].x, x[3].y, x[3].z, x[3].w}};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            uint32_t a[4];
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const uint32_t first = words[2 * h][i], second = words[2 * h + 1][i];
                a[2 * h] = (first & 0xffff) | second << 16;
                a[2 * h + 1] = first >> 16 | (second & 0xffff0000);
            }
#pragma unroll
            for (int j = 0; j < FEW / 8; ++j) mma<T>(sums[i][j], a, few[j][0], few[j][1]);
        }
    }
};

// The ring of a warp. Eight neighbouring threads copy neighbours in memory, since 16-byte accesses are served for eight
// threads at a time; other threads read them. Rows at any address are copied as they lie, with one extra chunk, and
// shifted when they are read.
template <bool ALONG_K, bool ALIGNED>
struct Ring {
    using O = Order<ALONG_K>;
    static constexpr int ROW = O::WIDTH + (ALIGNED ? 0 : 1), SLOTS = 32 / O::WIDTH * ROW;
    static constexpr int STEP_BYTES = O::CHUNKS * SLOTS * 16;
    static constexpr int STAGES = 100 * 1024 / (WARPS * STEP_BYTES);  // leaves room for two blocks on a multiprocessor

    // Avoids bank conflicts, both for threads that copy and for threads that read.
    static __device__ __forceinline__ int slot(int row, int place) {
        return row * ROW + (ALIGNED && !ALONG_K ? place ^ row * 2 : place);
    }
    static __device__ __forceinline__ int bytes_of(int count) { return count <= 0 ? 0 : 2 * min(count, CHUNK); }

    static __device__ __forceinline__ void copy(char* to, const Stream& x, int s, int k, int lane) {
        const int row = lane / O::WIDTH, place = lane % O::WIDTH;
#pragma unroll
        for (int i = 0; i < O::CHUNKS; ++i) {
            const Part part = O::part(x, i, s, k, ALONG_K ? row : place, ALONG_K ? place : row);
            const int offset = ALIGNED ? 0 : misalignment(part.from), left = part.count + offset;
            const uint16_t* const from = left > 0 ? part.from - offset : x.data - misalignment(x.data);
            char* const at = to + i * SLOTS * 16;
            copy_async(at + slot(row, place) * 16, reinterpret_cast<const char*>(from), bytes_of(left));
            if (!ALIGNED && place == O::WIDTH - 1) {
                const int more = offset > 0 ? left - CHUNK : 0;
                copy_async(at + slot(row, O::WIDTH) * 16,
                           reinterpret_cast<const char*>(more > 0 ? from + CHUNK : from), bytes_of(more));
            }
        }
    }
    static __device__ __forceinline__ uint4 read(const char* ring, const Stream& x, int i, int s, int k, int g, int q) {
        const int row = ALONG_K ? g : q, place = ALONG_K ? q : g;
        const uint4* const at = reinterpret_cast<const uint4*>(ring) + i * SLOTS;
        if constexpr (ALIGNED) return at[slot(row, place)];
        return shifted(at[slot(row, place)], at[slot(row, place + 1)], misalignment(O::part(x, i, s, k, g, q).from));
    }
};

// Sum over the warps for row r at an element of a strip, in shared memory.
template <int FEW>
__device__ __forceinline__ float add_warps(const float* at, int warps, int r) {
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < WARPS; ++warp) {
        if (warp < warps) sum += at[(warp * FEW + r) * PITCH];
    }
    return sum;
}

// Sum over the blocks of the cluster. Each block has added up its warps before.
__device__ __forceinline__ float add_blocks(const float* at, int blocks) {
    float sum = *at;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    sum = 0;
    for (int first = 0; first < blocks; first += 8) {  // eight loads in flight
        float x[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            if (first + i < blocks) x[i] = load_shared_cluster_float(map_shared_rank(shared_address(at), first + i));
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            if (first + i < blocks) sum += x[i];
        }
    }
#endif
    return sum;
}

// A block multiplies WARPS / warps strips of the stream; `warps` warps and `blocks` blocks of a cluster divide the k of
// each. Element (r, s) of the product is out[r * out_r + s * out_s]; one of these is 1.
template <typename T, bool ALONG_K, bool ALIGNED, int FEW>
__global__ void __launch_bounds__(THREADS, 2)
    matmul_stream(const Stream x, const Few few, const FastDivisor few_size, T* __restrict__ out, int64_t out_r,
                  int64_t out_s, int log_warps, int blocks) {
    using O = Order<ALONG_K>;
    using R = Ring<ALONG_K, ALIGNED>;
    extern __shared__ __align__(16) char dynamic[];
    float* const shared = reinterpret_cast<float*>(dynamic);
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    const int warps = 1 << log_warps, strips = WARPS >> log_warps, member = warp & (warps - 1);
    const int index = blockIdx.x / blocks, rank = blockIdx.x - index * blocks;
    const int first = index * strips * STRIP, s = first + (warp >> log_warps) * STRIP;
    const int steps = ceil_div(x.K, O::TERMS);  // at most 2^26
    const int begin = steps * rank / blocks + member, end = steps * (rank + 1) / blocks;
    const int turns = begin < end && s < x.size ? (end - begin - 1 >> log_warps) + 1 : 0;  // steps of this warp
    const auto k_of = [&](int n) { return (begin + n * warps) * O::TERMS; };

    // The warp's slots of a stage. There are at most as many stages as a warp has steps.
    const auto stage = [&](int n) { return dynamic + (n % R::STAGES * WARPS + warp) * R::STEP_BYTES; };
    const auto copy = [&](int n) {
        if (n < turns) R::copy(stage(n), x, s, k_of(n), threadIdx.x % 32);
        __pipeline_commit();
    };
    few.touch(int(blockIdx.x) * THREADS + threadIdx.x, int(gridDim.x) * THREADS, x.K);
    FewPair next[FEW / 8][O::PAIRS];
    const auto load_few = [&](int n) {
#pragma unroll
        for (int j = 0; j < FEW / 8; ++j) {
#pragma unroll
            for (int i = 0; i < O::PAIRS; ++i) next[j][i] = {few, 8 * j + g, k_of(n) + O::pair(i, q), x.K};
        }
    };
#pragma unroll 1
    for (int n = 0; n < R::STAGES; ++n) copy(n);
    if (turns > 0) load_few(0);
    float sums[4][FEW / 8][4] = {};
#pragma unroll 1
    for (int n = 0; n < turns; ++n) {
        uint32_t pairs[FEW / 8][O::PAIRS];
#pragma unroll
        for (int j = 0; j < FEW / 8; ++j) {
#pragma unroll
            for (int i = 0; i < O::PAIRS; ++i) pairs[j][i] = next[j][i].value(few);
        }
        if (n + 1 < turns) load_few(n + 1);
        __pipeline_wait_prior(R::STAGES - 1);
        __syncwarp();  // a thread reads data that others have copied
        uint4 chunks[O::CHUNKS];
#pragma unroll
        for (int i = 0; i < O::CHUNKS; ++i) chunks[i] = R::read(stage(n), x, i, s, k_of(n), g, q);
        O::template multiply<T, FEW>(sums, chunks, pairs);
        __syncwarp();
        copy(n + R::STAGES);
    }
    __syncthreads();  // all rings have been read
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < FEW / 8; ++j) {
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                shared[(warp * FEW + 8 * j + 2 * q + c % 2) * PITCH + O::element(i, c / 2, g)] = sums[i][j][c];
            }
        }
    }
    __syncthreads();

    // Neighbouring threads store neighbours in memory. A row of out has STRIP columns per strip, or few.size columns.
    const int width = min(strips * STRIP, x.size - first), log_columns = LOG_STRIP + LOG_WARPS - log_warps;
    const int count = out_s == 1 ? few.size << log_columns : width * few.size;
    const auto place = [&](int i, int& r, int& column) {
        const int outer = out_s == 1 ? i >> log_columns : few_size.quotient(i);
        const int inner = out_s == 1 ? i & ((1 << log_columns) - 1) : i - outer * few.size;
        r = out_s == 1 ? outer : inner;
        column = out_s == 1 ? inner : outer;
        return shared + column / STRIP * warps * (FEW * PITCH) + column % STRIP;
    };
    int r, column;
    if (blocks > 1) {
        for (int i = threadIdx.x; i < count; i += THREADS) {
            float* const sums = place(i, r, column);
            sums[r * PITCH] = add_warps<FEW>(sums, warps, r);
        }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        cluster_sync();
#endif
    }
    for (int i = rank * THREADS + threadIdx.x; i < count; i += blocks * THREADS) {
        const float* const sums = place(i, r, column);
        const float sum = blocks > 1 ? add_blocks(sums + r * PITCH, blocks) : add_warps<FEW>(sums, warps, r);
        if (column < width) out[r * out_r + (first + column) * out_s] = from_float<T>(sum);
    }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    // A block must not exit while others read its sums. The arrival is relaxed, because this thread has already used
    // the sums that it read.
    if (blocks > 1) {
        cluster_arrive_relaxed();
        cluster_wait();
    }
#endif
}

template <typename T, bool ALONG_K, bool ALIGNED, int FEW>
cudaError_t launch(const Stream& x, const Few& few, void* out, int64_t out_r, int64_t out_s, int log_warps, int blocks,
                   cudaStream_t stream, LaunchRecord* record) {
    using R = Ring<ALONG_K, ALIGNED>;
    const dim3 grid(unsigned(ceil_div(x.size, (WARPS >> log_warps) * STRIP)) * blocks);
    const int steps = ceil_div(ceil_div(x.K, Order<ALONG_K>::TERMS), blocks << log_warps);  // steps of a warp
    const auto bytes = [](int stages) { return std::max(WARPS * stages * R::STEP_BYTES, WARPS * FEW * PITCH * 4); };
    const int shared_bytes = bytes(std::min(steps, R::STAGES));
    const auto kernel = matmul_stream<T, ALONG_K, ALIGNED, FEW>;
    const FastDivisor few_size(few.size);
#ifdef __CUDACC__
    if (blocks > 8) cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    return launch_clusters_up_to(bytes(R::STAGES), blocks, kernel, grid, THREADS, shared_bytes, stream, record, x, few,
                                 few_size, static_cast<T*>(out), out_r, out_s, log_warps, blocks);
#else
    if (blocks > 1) return cudaErrorNotSupported;
    record->set(grid, THREADS, shared_bytes);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes(R::STAGES));
    matmul_stream<T, ALONG_K, ALIGNED, FEW><<<grid, THREADS, shared_bytes, stream>>>(
        x, few, few_size, static_cast<T*>(out), out_r, out_s, log_warps, blocks);
    return cudaGetLastError();
#endif
}

// Element (s, k) of the stream is at x + s * x_stride + k if along_k, else at x + s + k * x_stride; element (r, k) of
// `few` at few + r * few_r + k * few_k. 2^log_warps warps of a block (at most 8), and `blocks` of a cluster, divide k.
extern "C" int matmul_stream(const void* x, const void* few, void* out, int64_t size, int64_t few_size, int64_t K,
                             int64_t along_k, int64_t x_stride, int64_t few_r, int64_t few_k, int64_t out_r,
                             int64_t out_s, int64_t log_warps, int64_t blocks, int64_t dtype, cudaStream_t stream,
                             LaunchRecord* record) {
    const Stream streamed{static_cast<const uint16_t*>(x), int(size), int(K), x_stride};
    const bool pairs = few_k == 1 && few_r % 2 == 0 && K % 2 == 0 && is_aligned(few, 4);
    const Few others{static_cast<const uint16_t*>(few), int(few_size), few_r, few_k, pairs};
    const bool aligned = misalignment(x) == 0 && x_stride % CHUNK == 0;
    const auto run = [&](auto zero, auto is_along_k, auto is_aligned) {
        using T = decltype(zero);
        constexpr bool ALONG_K = decltype(is_along_k)::value, ALIGNED = decltype(is_aligned)::value;
        return few_size <= 8 ? launch<T, ALONG_K, ALIGNED, 8>(streamed, others, out, out_r, out_s, int(log_warps),
                                                              int(blocks), stream, record)
                             : launch<T, ALONG_K, ALIGNED, 16>(streamed, others, out, out_r, out_s, int(log_warps),
                                                               int(blocks), stream, record);
    };
    const auto with = [&](auto zero) {
        constexpr std::true_type yes;
        constexpr std::false_type no;
        return along_k ? aligned ? run(zero, yes, yes) : run(zero, yes, no)
                       : aligned ? run(zero, no, yes) : run(zero, no, no);
    };
    switch (dtype) {
        case FLOAT16: return with(__half());
        case BFLOAT16: return with(__nv_bfloat16());
        default: return cudaErrorInvalidValue;
    }
}
