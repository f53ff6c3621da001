// Layer normalization of long rows: adds clusters to registers.cu. The blocks of a cluster share a row and keep it in
// their registers.
//
// A block computes the mean of its part, and the sum of squared differences from it. The blocks exchange both through
// distributed shared memory, with one barrier of the cluster, and combine them without cancellation. Source: T. Chan,
// G. Golub, R. LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
// requires: sm_90a
#include "hopper/cluster_rows.cuh"

template <typename T>
__global__ void __launch_bounds__(CLUSTER_MAX, 2)
    layer_norm_cluster_rows(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias,
                            T* __restrict__ out, int64_t n, int64_t stride_m, int64_t part, float eps) {
    __shared__ float scratch[2][WARP];
    const int64_t row = blockIdx.x / ctas_in_cluster(), start = cta_rank_in_cluster() * part;
    const int rest = int(n - start);  // at most the elements that the registers of 8 blocks hold
    Registers<T, MOST_PACKS, true> r;
    r.load(Part<const T>{x + row * stride_m + start, rest, 1}, 0.0f);

    float sum = 0.0f, squares = 0.0f;
    r.each([&](float v) { sum += v; });
    sum = over_block(sum, Addition(), scratch[0]);
    const float own_mean = rest > 0 ? sum / min(int64_t(rest), part) : 0.0f;
    r.stay_packed();
    r.each_within(rest, [&](float v) { squares += (v - own_mean) * (v - own_mean); });
    squares = over_block(squares, Addition(), scratch[1]);

    const float2 other = exchange(make_float2(own_mean, squares), make_float2(0.0f, 0.0f));
    const int64_t before = int64_t(threadIdx.x % WARP) * part;  // elements of the blocks before this lane's block
    const float count = before < n ? float(min(n - before, part)) : 0.0f;
    const float mean = over_warp(other.x * count, Addition()) / n;
    const float apart = other.x - mean;
    const float scale = rsqrtf(over_warp(other.y + apart * apart * count, Addition()) / n + eps);
    r.stay_packed();
    const auto normalized = [&](float v, float w, float b) { return (v - mean) * scale * w + b; };
    r.store(Part<T>{out + row * n + start, rest, 1}, normalized, Part<const T>{weight + start, rest, 1},
            Part<const T>{bias + start, rest, 1});
    cluster_wait();
}

// cluster: blocks per row. threads: per block.
extern "C" int layer_norm_cluster(const void* x, const void* weight, const void* bias, void* out, int64_t m,
                                  int64_t n, int64_t stride_m, float eps, int64_t cluster, int64_t threads,
                                  int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    cudaError_t launched = cudaSuccess;
    const cudaError_t known = by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const auto kernel = layer_norm_cluster_rows<T>;
        launched = launch_shared_rows(kernel, m, cluster, threads, stream, record, static_cast<const T*>(x),
                                      static_cast<const T*>(weight), static_cast<const T*>(bias),
                                      static_cast<T*>(out), n, stride_m, threads * MOST_PACKS * 16 / int64_t(sizeof(T)),
                                      eps);
    });
    return known == cudaSuccess ? launched : known;
}
