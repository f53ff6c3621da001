// out[i] = sum over ranks r of parts[r stride + i], in float32 and in the order of the ranks
//
// A thread adds one pack of 16 bytes. The other ranks have copied their parts to this GPU's memory.
#include "all_reduce/ranks.cuh"

template <typename T>
__global__ void __launch_bounds__(THREADS)
    add_all(const T* __restrict__ parts, T* __restrict__ out, int64_t n, int64_t stride, int ranks) {
    const Packs<T> packs{n};
    const int64_t pack = int64_t(blockIdx.x) * THREADS + threadIdx.x;
    if (pack * Packs<T>::LANES >= n) return;
    Sum<T> sum;
    for (int rank = 0; rank < ranks; ++rank) sum.add(packs.load(parts + rank * stride, pack));
    packs.store(out, pack, sum.rounded());
}

extern "C" int add_parts(const void* parts, void* out, int64_t n, int64_t stride, int ranks, int64_t dtype,
                         cudaStream_t stream, LaunchRecord* record) {
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const dim3 grid(ceil_div<int64_t>(n, Packs<T>::LANES * THREADS)), block(THREADS);
        record->set(grid, block);
        add_all<T><<<grid, block, 0, stream>>>(static_cast<const T*>(parts), static_cast<T*>(out), n, stride, ranks);
    });
}
