// values[i], indices[i]: the k largest numbers of row i in descending order, reading the row once
//
// Adds a bound on the k-th largest key to top_k.cu, so that few keys are left to sort. Each thread holds some keys in
// registers. The k-th largest of the threads' own maxima is no larger than the k-th largest of all keys, and only the
// k threads with these maxima hold keys from it on: at most k times the keys of a thread, usually little more than k.
// They are collected in shared memory in any order, and sorted: keys differ, so equal inputs give equal results.
//
// Several blocks share a row if it is long or if there are few rows. Each selects the k largest keys of its part;
// further launches select from these.
//
// Source: K. E. Batcher, "Sorting networks and their applications", AFIPS 1968 (the bitonic sort).
#include "common/rows.cuh"
#include "top_k/keys.cuh"

constexpr int PACKS = 4;         // of 16 bytes of a row, per thread
constexpr int KEYS = 16;         // keys of parts, per thread
constexpr int MOST_THREADS = 512;
constexpr int64_t MERGED = int64_t(MOST_THREADS) * KEYS;  // keys of parts, per block

// Sorts `size` keys, a power of two, in descending order, by all threads of the block.
__device__ __forceinline__ void sort_descending(uint64_t* keys, int size) {
    for (int run = 2; run <= size; run *= 2) {
        for (int distance = run / 2; distance > 0; distance /= 2) {
            for (int pair = threadIdx.x; pair < size / 2; pair += blockDim.x) {
                const int i = 2 * pair - (pair & (distance - 1)), j = i + distance;
                const uint64_t a = keys[i], b = keys[j];
                if ((a < b) == ((i & run) == 0)) keys[i] = b, keys[j] = a;
            }
            // The next pairs at distances up to 32 lie among the 64 keys that this warp has sorted.
            if (distance > WARP) {
                __syncthreads();
            } else {
                __syncwarp();
            }
        }
        __syncthreads();
    }
}

// Leaves the k largest keys of the block in shared memory in descending order. each(f) calls f for each key of the
// thread, in every call for the same keys. blockDim.x is a power of two. A place beyond the last key holds 0.
template <typename Each>
__device__ __forceinline__ void select(Each each, int k, uint64_t* keys) {
    __shared__ unsigned count;
    uint64_t largest = 0;
    each([&](uint64_t key) { largest = key > largest ? key : largest; });
    keys[threadIdx.x] = largest;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    sort_descending(keys, blockDim.x);
    const uint64_t bound = k <= int(blockDim.x) ? keys[k - 1] : 0;
    const uint64_t least = bound > 0 ? bound : 1;
    __syncthreads();
    each([&](uint64_t key) {
        if (key >= least) keys[atomicAdd(&count, 1u)] = key;
    });
    __syncthreads();
    const int found = int(count);
    int size = 1;
    while (size < found || size < k) size *= 2;
    for (int i = found + int(threadIdx.x); i < size; i += blockDim.x) keys[i] = 0;
    __syncthreads();
    sort_descending(keys, size);
}

// Where the k largest keys of a block go: to the results, or as keys to the next launch. `keys`: (m, parts, k).
template <typename T>
struct Output {
    const T* x;
    T* values;
    int64_t* indices;
    uint64_t* keys;
    int64_t stride_m, stride_n;

    __device__ __forceinline__ void store(const uint64_t* sorted, int k) const {
        const int64_t row = blockIdx.x, parts = gridDim.y;
        for (int i = threadIdx.x; i < k; i += blockDim.x) {
            if (parts > 1) {
                keys[(row * parts + blockIdx.y) * k + i] = sorted[i];
            } else {
                const int64_t index = index_of(sorted[i]);
                values[row * k + i] = x[row * stride_m + index * stride_n];
                indices[row * k + i] = index;
            }
        }
    }
};

// One block selects from `length` numbers of a row.
template <typename T, bool PACKED>
__global__ void __launch_bounds__(MOST_THREADS) top_k_maxima(Output<T> out, int64_t n, int64_t length, int k) {
    extern __shared__ uint64_t shared_keys[];
    const int64_t begin = int64_t(blockIdx.y) * length;
    const int rest = int(min(n - begin, length));
    Registers<T, PACKS, PACKED> part;
    part.load({out.x + int64_t(blockIdx.x) * out.stride_m + begin * out.stride_n, rest, out.stride_n}, 0.0f);
    const auto each = [&](auto f) {
#pragma unroll
        for (int pack = 0; pack < PACKS; ++pack) {
#pragma unroll
            for (int lane = 0; lane < part.LANES; ++lane) {
                const int i = part.index(pack, lane);
                if (i < rest) f(key_of(element<T>(part.v[pack], lane), uint32_t(begin + i)));
            }
        }
    };
    select(each, k, shared_keys);
    out.store(shared_keys, k);
}

// One block selects from up to MERGED of the `n` keys of a row that earlier launches have selected.
template <typename T>
__global__ void __launch_bounds__(MOST_THREADS) top_k_maxima_merge(Output<T> out, const uint64_t* from, int64_t n, int k) {
    extern __shared__ uint64_t shared_keys[];
    const int64_t begin = int64_t(blockIdx.y) * MERGED;
    const int rest = int(min(n - begin, MERGED));
    uint64_t mine[KEYS];
#pragma unroll
    for (int number = 0; number < KEYS; ++number) {
        const int i = number * int(blockDim.x) + int(threadIdx.x);
        mine[number] = i < rest ? from[int64_t(blockIdx.x) * n + begin + i] : 0;
    }
    const auto each = [&](auto f) {
#pragma unroll
        for (int number = 0; number < KEYS; ++number) f(mine[number]);
    };
    select(each, k, shared_keys);
    out.store(shared_keys, k);
}

// The shared memory of `select`: the threads' maxima, or k, or the keys from the bound on, up to a power of two.
inline size_t shared_bytes(int threads, int64_t held, int64_t k, int64_t per_thread) {
    const int64_t most = k * per_thread < held ? k * per_thread : held;
    int64_t size = threads;
    while (size < most || size < k) size *= 2;
    return size_t(size) * sizeof(uint64_t);
}

inline int threads_for(int64_t loads) {
    int threads = WARP;
    while (threads < loads && threads < MOST_THREADS) threads *= 2;
    return threads;
}

template <typename... Parameters, typename... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, int threads, size_t bytes, cudaStream_t stream,
                   LaunchRecord* record, Arguments... arguments) {
    record->set(grid, dim3(unsigned(threads)), bytes);
    // The largest size of any launch: the limit belongs to the kernel, and other threads may launch it too.
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 8192 * int(sizeof(uint64_t)));
    kernel<<<grid, threads, bytes, stream>>>(arguments...);
    return cudaGetLastError();
}

// length: numbers of a part. keys, merged: room for m * parts * k keys each; unused if there is one part.
extern "C" int top_k_maxima(const void* x, void* values, void* indices, void* keys, void* merged, int64_t m, int64_t n,
                            int64_t k, int64_t length, int64_t stride_m, int64_t stride_n, int64_t packed,
                            int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    cudaError_t error = cudaSuccess;
    const cudaError_t known = by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int LANES = 16 / sizeof(T);
        Output<T> out{static_cast<const T*>(x), static_cast<T*>(values), static_cast<int64_t*>(indices),
                      static_cast<uint64_t*>(keys), stride_m, stride_n};
        int64_t parts = ceil_div(n, length);
        const int threads = threads_for(ceil_div<int64_t>(length, LANES));
        const size_t bytes = shared_bytes(threads, length, k, PACKS * LANES);
        const auto kernel = packed ? top_k_maxima<T, true> : top_k_maxima<T, false>;
        error = launch(kernel, dim3(unsigned(m), unsigned(parts)), threads, bytes, stream, record, out, n, length,
                       int(k));
        uint64_t* other = static_cast<uint64_t*>(merged);
        while (parts > 1 && error == cudaSuccess) {
            const int64_t held = parts * k;
            const uint64_t* from = out.keys;
            out.keys = other, other = const_cast<uint64_t*>(from);
            parts = ceil_div(held, MERGED);
            const int64_t each = held < MERGED ? held : MERGED;
            const int some = threads_for(ceil_div<int64_t>(each, KEYS) < k ? k : ceil_div<int64_t>(each, KEYS));
            error = launch(top_k_maxima_merge<T>, dim3(unsigned(m), unsigned(parts)), some,
                           shared_bytes(some, each, k, KEYS), stream, record, out, from, held, int(k));
        }
    });
    return error != cudaSuccess ? error : known;
}
