// out[m, n] = sum over k of a[m, k] * b[k, n] in tf32, for at most 8 rows or columns, or 32 at any address
//
// requires: sm_90
//
// This is stream.cu for tf32: the time is that of reading the larger operand, the "stream". The other operand,
// `few`, has few rows (or columns). A warp multiplies STRIP elements of the stream by all rows of `few`, TERMS of k
// at a time. Each thread loads 16 bytes of the stream at once, along k or across it (4 bytes if rows are not aligned to
// 16), and holds whole fragments of mma.sync. The assignment of elements and terms to positions of a
// fragment is free as long as both operands use the same one. The warps of a block, and the blocks of a cluster,
// divide k. Their sums are added in shared memory, in a fixed order.
//
// Precision: factors are rounded to tf32, products are exact, sums float32.
//
// Source: PTX ISA, "Warp Level Matrix Instructions".
#include "common/launch.cuh"

constexpr int WARPS = 8, THREADS = WARPS * 32, STRIP = 32, TERMS = 32, PITCH = STRIP + 1;
constexpr int FEW = 8;  // rows of `few` in a tile

struct Stream {
    const float* data;
    int size, K;     // rows (or columns), and terms
    int64_t stride;  // from row to row if it is contiguous along k, else from k to k
};

struct Few {
    const float* data;
    int size;
    int64_t stride, stride_k;
    bool quads;  // four neighbours along k can be read at once, and K is a multiple of 4
};

// Loads 16 bytes, or gives zeros if they do not exist. The compiler does not move the load.
__device__ __forceinline__ void load_quad(uint32_t* x, const float* from, bool exists) {
    asm volatile(
        "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %5, 0;\n\tmov.b32 %0, 0;\n\tmov.b32 %1, 0;\n\tmov.b32 %2, 0;\n\t"
        "mov.b32 %3, 0;\n\t@p ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];\n\t}"
        : "=&r"(x[0]), "=&r"(x[1]), "=&r"(x[2]), "=&r"(x[3])
        : "l"(from), "r"(int(exists)));
}
__device__ __forceinline__ uint32_t load_one(const float* from, bool exists) {
    uint32_t x;
    asm volatile(
        "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %2, 0;\n\tmov.b32 %0, 0;\n\t@p ld.global.nc.b32 %0, [%1];\n\t}"
        : "=&r"(x)
        : "l"(from), "r"(int(exists)));
    return x;
}

__device__ __forceinline__ uint32_t tf32(uint32_t x) {
    uint32_t rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(x)));
    return rounded;
}

__device__ __forceinline__ void mma(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// How a thread, with q = lane % 4 and g = lane / 4, reads the stream in steps: `x` holds its 32 words, and word() finds
// one of them. Its term j is k + term(j, q).
struct TermsByQuads {
    static __device__ __forceinline__ int term(int j, int q) { return 4 * q + j % 4 + j / 4 * 16; }
};

template <bool ALONG_K, bool QUADS>
struct Order;

// Contiguous along k: four elements, 8 terms of each, by 16 bytes.
template <>
struct Order<true, true> : TermsByQuads {
    static __device__ __forceinline__ void load(uint32_t (&x)[32], const Stream& from, int s, int k, int g, int q) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int row = s + element(i / 4, i / 2 % 2, g), at = k + term(i % 2 * 4, q);
            load_quad(x + 4 * i, from.data + row * from.stride + at, row < from.size && at < from.K);
        }
    }
    static __device__ __forceinline__ int element(int tile, int half, int g) { return 16 * tile + 8 * half + g; }
    static __device__ __forceinline__ int word(int tile, int half, int j) { return (tile * 2 + half) * 8 + j; }
};

// Contiguous across k: four neighbours at each of 8 terms, by 16 bytes.
template <>
struct Order<false, true> : TermsByQuads {
    static __device__ __forceinline__ void load(uint32_t (&x)[32], const Stream& from, int s, int k, int g, int q) {
        const int column = s + 4 * g;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            const int at = k + term(j, q);
            load_quad(x + 4 * j, from.data + at * from.stride + column, column < from.size && at < from.K);
        }
    }
    static __device__ __forceinline__ int element(int tile, int half, int g) { return 4 * g + 2 * tile + half; }
    static __device__ __forceinline__ int word(int tile, int half, int j) { return 4 * j + 2 * tile + half; }
};

// Contiguous along k, at any address: word by word. The four lanes of an element read neighbours.
template <>
struct Order<true, false> {
    static __device__ __forceinline__ void load(uint32_t (&x)[32], const Stream& from, int s, int k, int g, int q) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = s + element(i / 2, i % 2, g);
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                const int at = k + term(j, q);
                x[8 * i + j] = load_one(from.data + row * from.stride + at, row < from.size && at < from.K);
            }
        }
    }
    static __device__ __forceinline__ int term(int j, int q) { return 4 * j + q; }
    static __device__ __forceinline__ int element(int tile, int half, int g) { return 16 * tile + 8 * half + g; }
    static __device__ __forceinline__ int word(int tile, int half, int j) { return (tile * 2 + half) * 8 + j; }
};

// Contiguous across k, at any address: word by word. The eight lanes of a term read neighbours.
template <>
struct Order<false, false> : TermsByQuads {
    static __device__ __forceinline__ void load(uint32_t (&x)[32], const Stream& from, int s, int k, int g, int q) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            const int at = k + term(j, q);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int column = s + element(i / 2, i % 2, g);
                x[4 * j + i] = load_one(from.data + at * from.stride + column, column < from.size && at < from.K);
            }
        }
    }
    static __device__ __forceinline__ int element(int tile, int half, int g) { return 16 * tile + 8 * half + g; }
    static __device__ __forceinline__ int word(int tile, int half, int j) { return 4 * j + 2 * tile + half; }
};

template <typename O>
__device__ __forceinline__ void load_few(uint32_t (&y)[8], const Few& few, int r, int k, int q, int K) {
    const float* const row = few.data + r * few.stride;
    if (few.quads) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int at = k + O::term(i * 4, q);
            load_quad(y + 4 * i, row + at, r < few.size && at < K);
        }
    } else {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            const int at = k + O::term(j, q);
            y[j] = load_one(row + at * few.stride_k, r < few.size && at < K);
        }
    }
}

// A block multiplies a strip by TILES tiles of `few`; its warps and `blocks` blocks of a cluster divide k. Element
// (r, s) of the product is out[r * out_r + s * out_s]; one of these is 1.
template <bool ALONG_K, bool QUADS, int TILES>
__global__ void __launch_bounds__(THREADS, TILES == 1 ? 3 : 2)
    matmul_few32(const Stream x, const Few few, float* __restrict__ out, int64_t out_r, int64_t out_s, int blocks) {
    using O = Order<ALONG_K, QUADS>;
    constexpr int ROWS = FEW * TILES;
    __shared__ float shared[WARPS * ROWS * PITCH];
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    const int index = blockIdx.x / blocks, rank = blockIdx.x - index * blocks, s = index * STRIP;
    const int steps = ceil_div(x.K, TERMS);
    const int begin = int(int64_t(steps) * rank / blocks), end = int(int64_t(steps) * (rank + 1) / blocks);
    float sums[TILES][2][4] = {};
#pragma unroll 1
    for (int step = begin + warp; step < end; step += WARPS) {
        uint32_t words[32], y[TILES][8];
        O::load(words, x, s, step * TERMS, g, q);
#pragma unroll
        for (int t = 0; t < TILES; ++t) load_few<O>(y[t], few, FEW * t + g, step * TERMS, q, x.K);
#pragma unroll
        for (int i = 0; i < 32; ++i) words[i] = tf32(words[i]);
#pragma unroll
        for (int j = 0; j < 8; j += 2) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const uint32_t a[4] = {words[O::word(half, 0, j)], words[O::word(half, 1, j)],
                                       words[O::word(half, 0, j + 1)], words[O::word(half, 1, j + 1)]};
#pragma unroll
                for (int t = 0; t < TILES; ++t) mma(sums[t][half], a, tf32(y[t][j]), tf32(y[t][j + 1]));
            }
        }
    }
#pragma unroll
    for (int t = 0; t < TILES; ++t) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                const int row = warp * ROWS + FEW * t + 2 * q + c % 2;
                shared[row * PITCH + O::element(half, c / 2, g)] = sums[t][half][c];
            }
        }
    }
    __syncthreads();

    // Neighbouring threads store neighbouring elements.
    const int width = min(STRIP, x.size - s), count = width * few.size;
    const auto place = [&](int i, int& r, int& column) {
        const int by = out_s == 1 ? width : few.size, outer = i / by, inner = i - outer * by;
        r = out_s == 1 ? outer : inner;
        column = out_s == 1 ? inner : outer;
        return shared + r * PITCH + column;
    };
    const auto add_warps = [](const float* at) {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < WARPS; ++i) sum += at[i * ROWS * PITCH];
        return sum;
    };
    int r, column;
    if (blocks == 1) {
        for (int i = threadIdx.x; i < count; i += THREADS) {
            const float sum = add_warps(place(i, r, column));
            out[r * out_r + (s + column) * out_s] = sum;
        }
        return;
    }
    for (int i = threadIdx.x; i < count; i += THREADS) {
        float* const at = place(i, r, column);
        *at = add_warps(at);
    }
    cluster_sync();
    for (int i = rank * THREADS + threadIdx.x; i < count; i += blocks * THREADS) {
        const uint32_t at = shared_address(place(i, r, column));
        float x[8], sum = 0;
#pragma unroll
        for (int block = 0; block < 8; ++block) {
            if (block < blocks) x[block] = load_shared_cluster_float(map_shared_rank(at, block));
        }
#pragma unroll
        for (int block = 0; block < 8; ++block) {
            if (block < blocks) sum += x[block];
        }
        out[r * out_r + (s + column) * out_s] = sum;
    }
    cluster_sync();  // a block must not exit while others read its sums
}

// Element (s, k) of the stream is at x + s * x_stride + k if along_k, else at x + s + k * x_stride. by_quads: its rows
// are multiples of 16 bytes, and few_size is at most 8, else at most 32. Element (r, k) of `few` is at
// few + r * few_r + k * few_k. `blocks` of a cluster, at most 8, divide k.
extern "C" int matmul_few32(const void* x, const void* few, void* out, int64_t size, int64_t few_size, int64_t K,
                            int64_t along_k, int64_t by_quads, int64_t x_stride, int64_t few_r, int64_t few_k,
                            int64_t out_r, int64_t out_s, int64_t blocks, cudaStream_t stream, LaunchRecord* record) {
    const Stream streamed{static_cast<const float*>(x), int(size), int(K), x_stride};
    // Words along k are taken in an order in which a thread has no four neighbours.
    const bool in_quads = by_quads || !along_k;
    const bool quads = in_quads && few_k == 1 && few_r % 4 == 0 && K % 4 == 0 && is_aligned(few, 16);
    const Few others{static_cast<const float*>(few), int(few_size), few_r, few_k, quads};
    const dim3 grid(unsigned(ceil_div<int64_t>(size, STRIP) * blocks));
    const auto run = [&](auto is_along_k, auto is_by_quads, auto tiles) {
        const auto kernel = matmul_few32<decltype(is_along_k)::value, decltype(is_by_quads)::value,
                                         decltype(tiles)::value>;
        return launch_clusters(int(blocks), kernel, grid, THREADS, 0, stream, record, streamed, others,
                               static_cast<float*>(out), out_r, out_s, int(blocks));
    };
    const std::true_type yes;
    const std::false_type no;
    const std::integral_constant<int, 1> one;
    const std::integral_constant<int, 2> two;
    const std::integral_constant<int, 4> four;
    if (by_quads) return along_k ? run(yes, yes, one) : run(no, yes, one);
    const auto by_words = [&](auto tiles) { return along_k ? run(yes, no, tiles) : run(no, no, tiles); };
    if (few_size <= FEW) return by_words(one);
    return few_size <= 2 * FEW ? by_words(two) : by_words(four);
}
