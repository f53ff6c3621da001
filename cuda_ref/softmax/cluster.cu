// Softmax of long rows: adds clusters to registers.cu. The blocks of a cluster share a row and keep it in registers.
//
// A block computes the maximum of its part, and the sum of exponentials relative to it. The blocks exchange these two
// numbers through distributed shared memory, with one barrier of the cluster. A row is thus held by the registers of up
// to 8 multiprocessors, and is still read once.
// requires: sm_90a
#include "hopper/cluster_rows.cuh"
#include "softmax/exponential.cuh"

template <typename T>
__global__ void __launch_bounds__(CLUSTER_MAX, 2)
    softmax_cluster_rows(const T* __restrict__ x, T* __restrict__ out, int64_t n, int64_t stride_m, int64_t part) {
    __shared__ float scratch[2][WARP];
    const int64_t row = blockIdx.x / ctas_in_cluster(), start = cta_rank_in_cluster() * part;
    const int rest = int(n - start);  // at most the elements that the registers of 8 blocks hold
    Registers<T, MOST_PACKS, true> r;
    r.load(Part<const T>{x + row * stride_m + start, rest, 1}, -INFINITY);

    float largest = -INFINITY;
    r.each([&](float v) { largest = fmaxf(largest, v); });
    largest = over_block(largest, Maximum(), scratch[0]);
    const float base = finite_maximum(largest);
    r.stay_packed();
    float sum = 0.0f;
    r.each([&](float v) { sum += exponential<T>(v - base); });
    sum = over_block(sum, Addition(), scratch[1]);

    const float2 other = exchange(make_float2(largest, sum), make_float2(-INFINITY, 0.0f));
    const float all = finite_maximum(over_warp(other.x, Maximum()));
    const float weight = exponential<T>(finite_maximum(other.x) - all) / exponential<T>(0.0f);
    const float scale = 1.0f / over_warp(other.y * weight, Addition());
    r.stay_packed();
    r.store(Part<T>{out + row * n + start, rest, 1}, [&](float v) { return exponential<T>(v - all) * scale; });
    cluster_wait();
}

// cluster: blocks per row. threads: per block.
extern "C" int softmax_cluster(const void* x, void* out, int64_t m, int64_t n, int64_t stride_m, int64_t cluster,
                               int64_t threads, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    cudaError_t launched = cudaSuccess;
    const cudaError_t known = by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const auto kernel = softmax_cluster_rows<T>;
        const int64_t part = threads * MOST_PACKS * 16 / int64_t(sizeof(T));
        launched = launch_shared_rows(kernel, m, cluster, threads, stream, record, static_cast<const T*>(x),
                                      static_cast<T*>(out), n, stride_m, part);
    });
    return known == cudaSuccess ? launched : known;
}
