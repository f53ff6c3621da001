// Cross entropy of long rows: adds clusters to registers.cu. The blocks of a cluster share a row and keep it in registers.
//
// A block computes the maximum of its part, and the sum of exponentials relative to it. The blocks exchange these two
// numbers through distributed shared memory, and with smoothing the sum of the logits. A row is thus held by up to 8
// multiprocessors and read once. The block with the target's column overwrites it at the end.
// requires: sm_90a
#include "cross_entropy/registers.cuh"
#include "hopper/cluster_rows.cuh"

template <typename T>
__global__ void __launch_bounds__(CLUSTER_MAX, 2) cross_entropy_cluster_rows(Losses<T> losses, int64_t part) {
    __shared__ float scratch[3][WARP];
    const int64_t row = blockIdx.x / ctas_in_cluster(), start = cta_rank_in_cluster() * part;
    const int rest = int(losses.n - start);  // at most the elements that the registers of 8 blocks hold
    const Part<T> out{losses.out + row * losses.n + start, rest, 1};
    const int64_t at = losses.target[row * losses.stride_t];
    Registers<T, MOST_PACKS, true> r;
    if (at == losses.ignored) {  // true for all blocks of the cluster
        store_zeros(r, out);
        if (start == 0 && threadIdx.x == 0) losses.loss[row] = 0.0f;
        return;
    }
    const Part<const T> x{losses.logits + row * losses.stride_m + start, rest, 1};
    r.load(x, -INFINITY);

    float largest = -INFINITY;
    r.each([&](float v) { largest = fmaxf(largest, v); });
    largest = over_block(largest, Maximum(), scratch[0]);
    const float own = finite_maximum(largest);
    r.stay_packed();
    float sum = 0.0f;
    r.each([&](float v) { sum += power(v - own); });
    sum = over_block(sum, Addition(), scratch[1]);

    const float2 other = exchange(make_float2(largest, sum), make_float2(-INFINITY, 0.0f));
    const float base = finite_maximum(over_warp(other.x, Maximum()));
    sum = over_warp(other.y * power(finite_maximum(other.x) - base), Addition());
    float below = sum_below<true>(x, base, losses.smoothing, scratch[2]);
    if (losses.smoothing > 0.0f) {
        cluster_wait();  // for the end of the first exchange
        below = over_warp(exchange(make_float2(below, 0.0f), make_float2(0.0f, 0.0f)).x, Addition());
    }
    const RowResult result(losses, row, at, base, sum, below);
    r.stay_packed();
    r.store(out, result);
    order_stores();
    if (threadIdx.x == 0) {
        if (start == 0) losses.loss[row] = result.loss;
        if (at >= start && at < min(start + part, losses.n)) out.data[at - start] = from_float<T>(result.of_target());
    }
    cluster_wait();
}

// share: memory for one float. cluster: blocks per row. threads: per block.
extern "C" int cross_entropy_cluster(const void* logits, const void* target, void* share, void* loss, void* out,
                                     int64_t m, int64_t n, int64_t stride_m, int64_t stride_n, int64_t stride_t,
                                     int64_t ignored, double smoothing, int64_t cluster, int64_t threads, int64_t dtype,
                                     cudaStream_t stream, LaunchRecord* record) {
    cudaError_t launched = cudaSuccess;
    const cudaError_t known = by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const Losses<T> losses{static_cast<const T*>(logits), static_cast<const int64_t*>(target),
                               static_cast<const float*>(share), static_cast<float*>(loss), static_cast<T*>(out), m, n,
                               stride_m, stride_n, stride_t, ignored, float(smoothing)};
        launch_count(losses.target, static_cast<float*>(share), m, stride_t, ignored, stream, record);
        const int64_t part = threads * MOST_PACKS * 16 / int64_t(sizeof(T));
        const auto kernel = cross_entropy_cluster_rows<T>;
        launched = launch_shared_rows(kernel, m, cluster, threads, stream, record, losses, part);
    });
    return known == cudaSuccess ? launched : known;
}
