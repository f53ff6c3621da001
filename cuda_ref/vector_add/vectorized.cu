// out[i] = a[i] + b[i]
//
// One thread adds one pack of 16 bytes of each operand: 4 float32 or 8 16-bit elements.
//
// An addition moves three elements per flop, so only the memory traffic counts:
//   - 16 bytes is the widest access of a thread: one instruction of a warp covers 512 consecutive bytes.
//   - By Little's law, bandwidth times latency must be in flight: 25 KB on each multiprocessor of an H200. Its 2048
//     threads have 64 KB in flight with two loads each, so one pack per thread suffices.
//   - Loads have no cache hints, which cost time on this stream.
//   - Large vectors use blocks of 768 threads, small ones 256.
// Measurements: docs/lab/streaming.md, docs/streaming.md
//
// The last n % LANES elements are added by additional threads, one each. Vectors with strides, and those that do not
// start at a multiple of 16 bytes, use `add_strided`, with one element per access.
//
// Wide accesses: J. Luitjens, "Increase Performance with Vectorized Memory Access", NVIDIA developer blog, 2013.
// Many loads in flight rather than many threads: V. Volkov, "Better Performance at Lower Occupancy", GTC 2010.
#include "common/common.cuh"

constexpr int BLOCK = 768, BLOCK_SMALL = 256;  // threads
constexpr int64_t LARGE = 1 << 20;              // packs
constexpr int UNROLL_STRIDED = 8;               // elements of each operand that a thread of add_strided loads ahead

template <typename T>
__device__ __forceinline__ T add(T x, T y) {
    return from_float<T>(to_float(x) + to_float(y));
}

// Contiguous and aligned. Thread i adds pack i; the threads after the last pack add the remaining elements.
template <typename T>
__global__ void __launch_bounds__(BLOCK)
    add_packed(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ out, int64_t packs, int64_t n) {
    constexpr int LANES = 16 / sizeof(T);
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < packs) {
        const uint4 x = reinterpret_cast<const uint4*>(a)[i], y = reinterpret_cast<const uint4*>(b)[i];
        reinterpret_cast<uint4*>(out)[i] = elementwise<T>(add<T>, x, y);
    } else if (const int64_t at = packs * LANES + (i - packs); at < n) {
        out[at] = add(a[at], b[at]);
    }
}

// Any stride, also 0, and any alignment. The elements of a thread are BLOCK_SMALL apart, so that in each access the
// lanes of a warp read neighbours.
template <typename T>
__global__ void __launch_bounds__(BLOCK_SMALL)
    add_strided(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ out, int64_t n, int64_t stride_a,
                int64_t stride_b) {
    const int64_t first = int64_t(blockIdx.x) * (BLOCK_SMALL * UNROLL_STRIDED) + threadIdx.x;
    T x[UNROLL_STRIDED], y[UNROLL_STRIDED];
#pragma unroll
    for (int i = 0; i < UNROLL_STRIDED; ++i) {
        const int64_t at = first + i * BLOCK_SMALL;
        if (at < n) {
            x[i] = a[at * stride_a];
            y[i] = b[at * stride_b];
        }
    }
#pragma unroll
    for (int i = 0; i < UNROLL_STRIDED; ++i) {
        const int64_t at = first + i * BLOCK_SMALL;
        if (at < n) out[at] = add(x[i], y[i]);
    }
}

template <typename T>
void launch(const T* a, const T* b, T* out, int64_t n, int64_t stride_a, int64_t stride_b, cudaStream_t stream,
            LaunchRecord* record) {
    constexpr int LANES = 16 / sizeof(T);
    const bool contiguous = stride_a == 1 && stride_b == 1;
    const bool aligned = is_aligned(a, 16) && is_aligned(b, 16) && is_aligned(out, 16);
    // The grid is limited to 2^31 - 1 blocks: 2 * 10^12 elements.
    if (contiguous && aligned && n >= LANES) {
        const int64_t packs = n / LANES;
        const int block = packs >= LARGE ? BLOCK : BLOCK_SMALL;
        const dim3 grid(unsigned(ceil_div<int64_t>(packs + n % LANES, block)));
        record->set(grid, block);
        add_packed<T><<<grid, block, 0, stream>>>(a, b, out, packs, n);
    } else {
        const dim3 grid(unsigned(ceil_div<int64_t>(n, BLOCK_SMALL * UNROLL_STRIDED)));
        record->set(grid, BLOCK_SMALL);
        add_strided<T><<<grid, BLOCK_SMALL, 0, stream>>>(a, b, out, n, stride_a, stride_b);
    }
}

extern "C" int vector_add_vectorized(const void* a, const void* b, void* out, int64_t n, int64_t stride_a,
                                     int64_t stride_b, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        launch(static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(out), n, stride_a, stride_b, stream,
               record);
    });
}
