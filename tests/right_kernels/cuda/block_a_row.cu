// A block for each row, float32: warps reduce by shuffles, then all threads read the results of the warps from shared
// memory. The row stays in dynamic shared memory where it fits.
#include <float.h>

#include "common.cuh"

constexpr int THREADS = 256;

__device__ float warp_sum(float v) {
    for (int offset = 16; offset > 0; offset /= 2) v += __shfl_down_sync(0xFFFFFFFF, v, offset);
    return v;  // complete in lane 0
}
__device__ float warp_max(float v) {
    for (int offset = 16; offset > 0; offset /= 2) v = fmaxf(v, __shfl_down_sync(0xFFFFFFFF, v, offset));
    return v;
}

__device__ float block_sum(float v) {
    __shared__ float of_warps[THREADS / 32];
    v = warp_sum(v);
    __syncthreads();  // of_warps may still be read from the last call
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = v;
    __syncthreads();
    float total = 0.0f;
    for (int i = 0; i < THREADS / 32; ++i) total += of_warps[i];
    return total;
}
__device__ float block_max(float v) {
    __shared__ float of_warps[THREADS / 32];
    v = warp_max(v);
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = v;
    __syncthreads();
    v = of_warps[0];
    for (int i = 1; i < THREADS / 32; ++i) v = fmaxf(v, of_warps[i]);
    return v;
}

__global__ void softmax_block(float* out, const float* inp, int64_t C, int64_t stride_m, int64_t stride_n) {
    const int64_t row = blockIdx.x;
    const int tid = threadIdx.x;
    const float* x = inp + row * stride_m;
    float maxval = -INFINITY;
    for (int64_t i = tid; i < C; i += blockDim.x) maxval = fmaxf(maxval, x[i * stride_n]);
    const float offset = block_max(maxval);
    float sumval = 0.0f;
    for (int64_t i = tid; i < C; i += blockDim.x) {
        const float e = expf(x[i * stride_n] - offset);
        out[row * C + i] = e;
        sumval += e;
    }
    const float sum = block_sum(sumval);
    for (int64_t i = tid; i < C; i += blockDim.x) out[row * C + i] = out[row * C + i] / sum;
}

__global__ void layer_norm_shared(float* out, const float* inp, const float* weight, const float* bias, int64_t C,
                                  int64_t stride_m, int64_t stride_n, float eps) {
    extern __shared__ float row[];
    const float* x = inp + int64_t(blockIdx.x) * stride_m;
    float sum = 0.0f;
    for (int c = threadIdx.x; c < C; c += THREADS) {
        row[c] = x[c * stride_n];
        sum += row[c];
    }
    const float m = block_sum(sum) / C;
    float squares = 0.0f;
    for (int c = threadIdx.x; c < C; c += THREADS) squares += (row[c] - m) * (row[c] - m);
    const float s = 1.0f / sqrtf(block_sum(squares) / C + eps);
    for (int c = threadIdx.x; c < C; c += THREADS)
        __stcs(out + int64_t(blockIdx.x) * C + c, s * (row[c] - m) * __ldg(weight + c) + __ldg(bias + c));
}

// Loss and gradient of a row in one block: one pass with a running maximum and sum, one for the gradient.
__global__ void fused_classifier(const float* logits, const int64_t* targets, const float* share, float* losses,
                                 float* dlogits, int64_t V, int64_t stride_m, int64_t stride_n, int64_t stride_t,
                                 int64_t ignored) {
    const int64_t idx = blockIdx.x, ix = targets[idx * stride_t];
    const float* x = logits + idx * stride_m;
    if (ix == ignored) {
        for (int64_t i = threadIdx.x; i < V; i += THREADS) dlogits[idx * V + i] = 0.0f;
        if (threadIdx.x == 0) losses[idx] = 0.0f;
        return;
    }
    float thread_max = -FLT_MAX, thread_sum = 0.0f;
    for (int64_t i = threadIdx.x; i < V; i += THREADS) {
        const float v = x[i * stride_n], old = thread_max;
        thread_max = fmaxf(thread_max, v);
        thread_sum = thread_sum * expf(old - thread_max) + expf(v - thread_max);
    }
    const float highest = block_max(thread_max);
    const float sum = block_sum(thread_sum * expf(thread_max - highest));
    const float scale = 1.0f / sum, dloss = *share;
    if (threadIdx.x == 0) losses[idx] = logf(sum) + (highest - x[ix * stride_n]);
    for (int64_t i = threadIdx.x; i < V; i += THREADS) {
        const float prob = expf(x[i * stride_n] - highest) * scale;
        dlogits[idx * V + i] = (prob - (i == ix ? 1.0f : 0.0f)) * dloss;
    }
}

extern "C" int softmax(const void* x, void* out, int64_t m, int64_t n, int64_t stride_m, int64_t stride_n,
                       int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    if (dtype != FLOAT32) return cudaErrorNotSupported;
    record->set(unsigned(m), THREADS);
    softmax_block<<<unsigned(m), THREADS, 0, stream>>>((float*)out, (const float*)x, n, stride_m, stride_n);
    return cudaGetLastError();
}

extern "C" int layer_norm(const void* x, const void* weight, const void* bias, void* out, int64_t m, int64_t n,
                          int64_t stride_m, int64_t stride_n, double eps, int64_t dtype, cudaStream_t stream,
                          LaunchRecord* record) {
    const size_t bytes = n * sizeof(float);
    if (dtype != FLOAT32 || bytes > 40000) return cudaErrorNotSupported;
    record->set(unsigned(m), THREADS, bytes);
    layer_norm_shared<<<unsigned(m), THREADS, bytes, stream>>>((float*)out, (const float*)x, (const float*)weight,
                                                               (const float*)bias, n, stride_m, stride_n, float(eps));
    return cudaGetLastError();
}

__global__ void share_of_a_row(const int64_t* targets, float* share, int64_t m, int64_t stride_t, int64_t ignored) {
    float counted = 0.0f;
    for (int64_t i = threadIdx.x; i < m; i += THREADS) counted += targets[i * stride_t] != ignored;
    counted = block_sum(counted);
    if (threadIdx.x == 0) *share = 1.0f / fmaxf(counted, 1.0f);
}

extern "C" int cross_entropy(const void* logits, const void* target, void* share, void* loss, void* out, int64_t m,
                             int64_t n, int64_t stride_m, int64_t stride_n, int64_t stride_t, int64_t ignored,
                             double smoothing, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    if (dtype != FLOAT32 || smoothing != 0.0) return cudaErrorNotSupported;
    record->set(1, THREADS);
    share_of_a_row<<<1, THREADS, 0, stream>>>((const int64_t*)target, (float*)share, m, stride_t, ignored);
    record->set(unsigned(m), THREADS);
    fused_classifier<<<unsigned(m), THREADS, 0, stream>>>((const float*)logits, (const int64_t*)target,
                                                          (const float*)share, (float*)loss, (float*)out, n, stride_m,
                                                          stride_n, stride_t, ignored);
    return cudaGetLastError();
}
