// values[i], indices[i]: the k largest numbers of row i in descending order, for any strides of x
//
// One block selects from one row. It finds the k-th largest key digit by digit, 8 bits at a time: all threads count
// the digits of the keys whose leading digits are those found so far, and the bin that holds the k-th largest gives
// the next digit. The row is read once for each digit, from the L2 cache after the first time. At the end the keys
// from the k-th on are collected in any order, and the place of each is the number of larger keys.
//
// Source: T. Alabi et al., "Fast k-selection algorithms for graphics processing units", 2012 (radix selection).
#include "top_k/keys.cuh"

constexpr int THREADS = 256, BINS = 256, DIGIT = 8;
constexpr int MOST_K = 256;

template <typename T>
__global__ void __launch_bounds__(THREADS) top_k_radix(const T* x, T* values, int64_t* indices, int64_t n, int k,
                                                       int64_t stride_m, int64_t stride_n) {
    __shared__ unsigned bins[BINS];
    __shared__ uint64_t chosen[MOST_K];
    __shared__ unsigned count;
    const T* row = x + int64_t(blockIdx.x) * stride_m;
    const auto key_at = [&](int64_t i) { return key_of(to_float(row[i * stride_n]), uint32_t(i)); };

    uint64_t least = 0;  // the digits of the k-th largest key that are known, followed by zeros
    uint64_t known = 0;  // a mask of these digits
    unsigned left = k;   // how many keys with these digits belong to the k largest
    for (int shift = 64 - DIGIT; shift >= 0; shift -= DIGIT) {
        for (int bin = threadIdx.x; bin < BINS; bin += THREADS) bins[bin] = 0;
        __syncthreads();
        for (int64_t i = threadIdx.x; i < n; i += THREADS) {
            const uint64_t key = key_at(i);
            if ((key & known) == least) atomicAdd(&bins[key >> shift & (BINS - 1)], 1u);
        }
        __syncthreads();
        int bin = BINS - 1;
        for (; bins[bin] < left; --bin) left -= bins[bin];
        const bool all = bins[bin] == left;  // no further digit is needed
        least |= uint64_t(bin) << shift;
        known |= uint64_t(BINS - 1) << shift;
        __syncthreads();
        if (all) break;
    }

    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < n; i += THREADS) {
        const uint64_t key = key_at(i);
        if (key >= least) chosen[atomicAdd(&count, 1u)] = key;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < k; i += THREADS) {
        int place = 0;
        for (int other = 0; other < k; ++other) place += chosen[other] > chosen[i];
        const int64_t to = int64_t(blockIdx.x) * k + place, index = index_of(chosen[i]);
        values[to] = row[index * stride_n];
        indices[to] = index;
    }
}

extern "C" int top_k(const void* x, void* values, void* indices, int64_t m, int64_t n, int64_t k, int64_t stride_m,
                     int64_t stride_n, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid{unsigned(m)}, block(THREADS);
    record->set(grid, block);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        top_k_radix<T><<<grid, block, 0, stream>>>(static_cast<const T*>(x), static_cast<T*>(values),
                                                   static_cast<int64_t*>(indices), n, int(k), stride_m, stride_n);
    });
}
