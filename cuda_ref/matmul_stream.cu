// out[m, n] = sum over k of a[m, k] * b[k, n], 16 bits, for at most 16 rows or columns: as fast as an operand is read
//
// The larger operand is the stream, the other one has few rows (or columns). The stream goes from device memory to
// registers, in the form in which mma.sync takes it; nothing waits for shared memory or a barrier until all is read.
//   - mma.sync multiplies 16 elements of the stream by 8 of the few. Which 16 these are, and in which order k is taken,
//     is free as long as both operands agree. So a thread reads 16 bytes, along k or across it, and has whole
//     fragments: along k as they come, across it after exchanges of halves between two registers.
//   - The warps of a block, and the blocks of a cluster, divide k. Their sums meet in shared memory, in a fixed order.
// Rows may begin at any address (unaligned.cuh).
//
// Precision: products of 16 bits are exact, sums float32, rounded once.
//
// Source: PTX ISA, "Warp Level Matrix Instructions".
#include "mma.cuh"
#include "unaligned.cuh"

#ifdef __CUDACC__
#include "launch.cuh"
#endif

constexpr int WARPS = 8, THREADS = WARPS * 32;
constexpr int STRIP = 64, PITCH = STRIP + 1;  // elements of the stream that a warp multiplies; 65 avoids bank conflicts

struct Stream {
    const uint16_t* data;
    int size, K;     // rows (or columns), and terms
    int64_t stride;  // from row to row if it is contiguous along k, else from k to k
};

struct Few {
    const uint16_t* data;
    int size;
    int64_t stride, stride_k;
    bool pairs;  // two neighbours along k can be read at once; K is even
};

// Elements k and k + 1 of row r of the few, on their way from memory, as in Neighbours.
struct FewPair {
    uint32_t first, second;
    bool exists, has_second;

    FewPair() = default;
    __device__ __forceinline__ FewPair(const Few& few, int r, int k, int K)
        : second(0), exists(r < few.size && k < K), has_second(r < few.size && k + 1 < K) {
        const uint16_t* const from = exists ? few.data + r * few.stride + k * few.stride_k : few.data;
        if (few.pairs) {
            first = *reinterpret_cast<const uint32_t*>(from);
        } else {
            first = from[0];
            second = from[has_second ? few.stride_k : 0];
        }
    }
    __device__ __forceinline__ uint32_t value(const Few& few) const {
        const uint32_t pair = few.pairs ? first : first | (has_second ? second << 16 : 0);
        return exists ? pair : 0;
    }
};

// How a warp takes the stream: CHUNKS of 16 bytes a thread for STRIP elements at TERMS k; g = lane / 4, q = lane % 4.
// Contiguous along k: chunk 2 i + h has k 8 q ... 8 q + 7 of element 16 i + 8 h + g.
template <bool ALONG_K>
struct Order {
    static constexpr int TERMS = 32, CHUNKS = 8, PAIRS = 4;

    template <bool ALIGNED>
    static __device__ __forceinline__ Neighbours<ALIGNED> chunk(const Stream& x, int i, int s, int k, int g, int q) {
        const int row = s + i * 8 + g;
        return {x.data + row * x.stride + k + 8 * q, row < x.size ? x.K - k - 8 * q : 0, x.data};
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

// Contiguous across k: chunk i has elements 8 g ... 8 g + 7 at k 2 q + {0, 1, 8, 9}[i].
template <>
struct Order<false> {
    static constexpr int TERMS = 16, CHUNKS = 4, PAIRS = 2;

    template <bool ALIGNED>
    static __device__ __forceinline__ Neighbours<ALIGNED> chunk(const Stream& x, int i, int s, int k, int g, int q) {
        const int row = k + 2 * q + i % 2 + i / 2 * 8;
        return {x.data + row * x.stride + s + 8 * g, row < x.K ? x.size - s - 8 * g : 0, x.data};
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

// The sum of element (r, s) of a strip over its warps, in shared memory.
template <int FEW>
__device__ __forceinline__ float add_warps(const float* strip, int warps, int r, int s) {
    float sum = strip[r * PITCH + s];
    for (int warp = 1; warp < warps; ++warp) sum += strip[(warp * FEW + r) * PITCH + s];
    return sum;
}

// The same over the blocks of the cluster, each of which has added up its warps.
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
__global__ void __launch_bounds__(THREADS, ALIGNED || FEW == 8 ? 2 : 1)
    matmul_stream(const Stream x, const Few few, T* __restrict__ out, int64_t out_r, int64_t out_s, int warps,
                  int blocks) {
    using O = Order<ALONG_K>;
    constexpr int AHEAD = ALIGNED || FEW == 8 ? 8 / O::CHUNKS : 1;  // steps whose loads are in flight
    __shared__ float shared[WARPS * FEW * PITCH];
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, q = threadIdx.x % 4, strips = WARPS / warps;
    const int index = blockIdx.x / blocks, rank = blockIdx.x - index * blocks;
    const int first = index * strips * STRIP, s = first + warp / warps * STRIP;
    const int steps = ceil_div(x.K, O::TERMS), end = int(int64_t(steps) * (rank + 1) / blocks);

    float sums[4][FEW / 8][4] = {};
#pragma unroll 1
    for (int step = int(int64_t(steps) * rank / blocks) + warp % warps; step < end; step += warps * AHEAD) {
        Neighbours<ALIGNED> loads[AHEAD][O::CHUNKS];
        FewPair few_loads[AHEAD][FEW / 8][O::PAIRS];
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) {
            const int k = step + u * warps < end ? (step + u * warps) * O::TERMS : x.K;  // beyond K all are zeros
#pragma unroll
            for (int i = 0; i < O::CHUNKS; ++i) loads[u][i] = O::template chunk<ALIGNED>(x, i, s, k, g, q);
#pragma unroll
            for (int j = 0; j < FEW / 8; ++j) {
#pragma unroll
                for (int i = 0; i < O::PAIRS; ++i) few_loads[u][j][i] = {few, 8 * j + g, k + O::pair(i, q), x.K};
            }
        }
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) {
            uint4 chunks[O::CHUNKS];
            uint32_t pairs[FEW / 8][O::PAIRS];
#pragma unroll
            for (int i = 0; i < O::CHUNKS; ++i) chunks[i] = loads[u][i].value();
#pragma unroll
            for (int j = 0; j < FEW / 8; ++j) {
#pragma unroll
                for (int i = 0; i < O::PAIRS; ++i) pairs[j][i] = few_loads[u][j][i].value(few);
            }
            O::template multiply<T, FEW>(sums, chunks, pairs);
        }
    }
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

    const int width = min(strips * STRIP, x.size - first), count = width * few.size;
    const auto place = [&](int i, int& r, int& column) {  // neighbours in memory for neighbouring threads
        const int outer = i / (out_s == 1 ? width : few.size), inner = i - outer * (out_s == 1 ? width : few.size);
        r = out_s == 1 ? outer : inner;
        column = out_s == 1 ? inner : outer;
        return shared + column / STRIP * warps * (FEW * PITCH);
    };
    int r, column;
    if (blocks > 1) {
        for (int i = threadIdx.x; i < count; i += THREADS) {
            float* const strip = place(i, r, column);
            strip[r * PITCH + column % STRIP] = add_warps<FEW>(strip, warps, r, column % STRIP);
        }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        cluster_sync();
#endif
    }
    for (int i = rank * THREADS + threadIdx.x; i < count; i += blocks * THREADS) {
        const float* const strip = place(i, r, column);
        const float sum = blocks > 1 ? add_blocks(strip + r * PITCH + column % STRIP, blocks)
                                     : add_warps<FEW>(strip, warps, r, column % STRIP);
        out[r * out_r + (first + column) * out_s] = from_float<T>(sum);
    }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (blocks > 1) cluster_sync();  // a block must not exit while others read its sums
#endif
}

template <typename T, bool ALONG_K, bool ALIGNED, int FEW>
cudaError_t launch(const Stream& x, const Few& few, void* out, int64_t out_r, int64_t out_s, int warps, int blocks,
                   cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div(x.size, WARPS / warps * STRIP)) * blocks);
#ifdef __CUDACC__
    const auto kernel = matmul_stream<T, ALONG_K, ALIGNED, FEW>;
    if (blocks > 8) cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    return launch_clusters(blocks, kernel, grid, THREADS, 0, stream, record, x, few, static_cast<T*>(out), out_r, out_s,
                           warps, blocks);
#else
    if (blocks > 1) return cudaErrorNotSupported;
    record->set(grid, THREADS);
    matmul_stream<T, ALONG_K, ALIGNED, FEW><<<grid, THREADS, 0, stream>>>(x, few, static_cast<T*>(out), out_r, out_s,
                                                                        warps, blocks);
    return cudaGetLastError();
#endif
}

// The stream's element (s, k) is at x + s * x_stride + k if along_k, else at x + s + k * x_stride; few's element (r, k)
// at few + r * few_r + k * few_k. `warps` of a block (1, 2, 4 or 8), and `blocks` of a cluster, divide k.
extern "C" int matmul_stream(const void* x, const void* few, void* out, int64_t size, int64_t few_size, int64_t K,
                             int64_t along_k, int64_t x_stride, int64_t few_r, int64_t few_k, int64_t out_r,
                             int64_t out_s, int64_t warps, int64_t blocks, int64_t dtype, cudaStream_t stream,
                             LaunchRecord* record) {
    const Stream streamed{static_cast<const uint16_t*>(x), int(size), int(K), x_stride};
    const bool pairs = few_k == 1 && few_r % 2 == 0 && K % 2 == 0 && is_aligned(few, 4);
    const Few others{static_cast<const uint16_t*>(few), int(few_size), few_r, few_k, pairs};
    const bool aligned = misalignment(x) == 0 && x_stride % CHUNK == 0;
    const auto run = [&](auto zero, auto is_along_k, auto is_aligned) {
        using T = decltype(zero);
        constexpr bool ALONG_K = decltype(is_along_k)::value, ALIGNED = decltype(is_aligned)::value;
        return few_size <= 8 ? launch<T, ALONG_K, ALIGNED, 8>(streamed, others, out, out_r, out_s, int(warps),
                                                              int(blocks), stream, record)
                             : launch<T, ALONG_K, ALIGNED, 16>(streamed, others, out, out_r, out_s, int(warps),
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
