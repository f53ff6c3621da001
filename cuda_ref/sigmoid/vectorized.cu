// out[i] = 1 / (1 + exp(-x[i]))
//
// One thread computes one pack of 16 bytes: 4 float32 or 8 16-bit elements. The loads and stores are those of
// vector_add/vectorized.cu. Large inputs use blocks of 128 threads: a block frees its place when its last thread ends,
// and threads that compute between load and store end at different times. Small inputs, which fit on the device at
// once, use 512.
//
// An H200 at full bandwidth has issue slots for about 55 instructions per float32 element, but only 27 per 16-bit
// element, and hides about half of them (docs/lab/streaming.md). So there are two functions, in
// common/sigmoid.cuh.
#include "common/sigmoid.cuh"

constexpr int BLOCK = 128, BLOCK_SMALL = 512;  // threads
constexpr int64_t LARGE = 1 << 20;             // packs
constexpr int UNROLL_SINGLE = 8;               // elements that a thread of sigmoid_single loads ahead

template <typename T>
__device__ __forceinline__ T sigmoid(T x) {
    return from_float<T>(sigmoid_for<T>(to_float(x)));
}

// Aligned. Thread i computes pack i; the threads after the last pack compute the remaining elements.
template <typename T>
__global__ void __launch_bounds__(BLOCK_SMALL)
    sigmoid_packed(const T* __restrict__ x, T* __restrict__ out, int64_t packs, int64_t n) {
    constexpr int LANES = 16 / sizeof(T);
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < packs) {
        const uint4 v = reinterpret_cast<const uint4*>(x)[i];
        reinterpret_cast<uint4*>(out)[i] = elementwise<T>([](T x) { return sigmoid(x); }, v);
    } else if (const int64_t at = packs * LANES + (i - packs); at < n) {
        out[at] = sigmoid(x[at]);
    }
}

// Any alignment. The elements of a thread are BLOCK apart, so that the lanes of a warp access neighbours.
template <typename T>
__global__ void __launch_bounds__(BLOCK) sigmoid_single(const T* __restrict__ x, T* __restrict__ out, int64_t n) {
    const int64_t first = int64_t(blockIdx.x) * (BLOCK * UNROLL_SINGLE) + threadIdx.x;
    T v[UNROLL_SINGLE];
#pragma unroll
    for (int i = 0; i < UNROLL_SINGLE; ++i) {
        if (first + i * BLOCK < n) v[i] = x[first + i * BLOCK];
    }
#pragma unroll
    for (int i = 0; i < UNROLL_SINGLE; ++i) {
        if (first + i * BLOCK < n) out[first + i * BLOCK] = sigmoid(v[i]);
    }
}

template <typename T>
void launch(const T* x, T* out, int64_t n, cudaStream_t stream, LaunchRecord* record) {
    constexpr int LANES = 16 / sizeof(T);
    // The grid is limited to 2^31 - 1 blocks: 10^12 elements.
    if (is_aligned(x, 16) && is_aligned(out, 16) && n >= LANES) {
        const int64_t packs = n / LANES;
        const int block = packs >= LARGE ? BLOCK : BLOCK_SMALL;
        const dim3 grid(unsigned(ceil_div<int64_t>(packs + n % LANES, block)));
        record->set(grid, block);
        sigmoid_packed<T><<<grid, block, 0, stream>>>(x, out, packs, n);
    } else {
        const dim3 grid(unsigned(ceil_div<int64_t>(n, BLOCK * UNROLL_SINGLE)));
        record->set(grid, BLOCK);
        sigmoid_single<T><<<grid, BLOCK, 0, stream>>>(x, out, n);
    }
}

extern "C" int sigmoid_vectorized(const void* x, void* out, int64_t n, int64_t dtype, cudaStream_t stream,
                                  LaunchRecord* record) {
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        launch(static_cast<const T*>(x), static_cast<T*>(out), n, stream, record);
    });
}
