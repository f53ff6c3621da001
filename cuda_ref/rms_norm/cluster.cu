// Root mean square normalization of long rows: adds clusters to registers.cu. The blocks of a cluster share a row, keep
// it in their registers, and exchange their sums through distributed shared memory.
// requires: sm_90a
#include "hopper/cluster_rows.cuh"

template <typename T>
__global__ void __launch_bounds__(CLUSTER_MAX, 2)
    rms_norm_cluster_rows(const T* __restrict__ x, const T* __restrict__ weight, T* __restrict__ out, int64_t n,
                          int64_t stride_m, int64_t part, float eps) {
    __shared__ float scratch[WARP];
    const int64_t row = blockIdx.x / ctas_in_cluster(), start = cta_rank_in_cluster() * part;
    const int rest = int(n - start);  // at most the elements that the registers of 8 blocks hold
    Registers<T, MOST_PACKS, true> r;
    r.load(Part<const T>{x + row * stride_m + start, rest, 1}, 0.0f);

    float squares = 0.0f;
    r.each([&](float v) { squares += v * v; });
    squares = over_block(squares, Addition(), scratch);
    const float2 zero = make_float2(0.0f, 0.0f);
    const float total = over_warp(exchange(make_float2(squares, 0.0f), zero).x, Addition());
    const float scale = rsqrtf(total / n + eps);
    r.stay_packed();
    r.store(Part<T>{out + row * n + start, rest, 1}, [&](float v, float w) { return v * scale * w; },
            Part<const T>{weight + start, rest, 1});
    cluster_wait();
}

// cluster: blocks per row. threads: per block.
extern "C" int rms_norm_cluster(const void* x, const void* weight, void* out, int64_t m, int64_t n, int64_t stride_m,
                                float eps, int64_t cluster, int64_t threads, int64_t dtype, cudaStream_t stream,
                                LaunchRecord* record) {
    cudaError_t launched = cudaSuccess;
    const cudaError_t known = by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const auto kernel = rms_norm_cluster_rows<T>;
        launched = launch_shared_rows(kernel, m, cluster, threads, stream, record, static_cast<const T*>(x),
                                      static_cast<const T*>(weight), static_cast<T*>(out), n, stride_m,
                                      threads * MOST_PACKS * 16 / int64_t(sizeof(T)), eps);
    });
    return known == cudaSuccess ? launched : known;
}
