// Cooperative groups: tiles of 32 threads that reduce, and the atomic sum of blocks. float32 only.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include "common.cuh"

namespace cg = cooperative_groups;

__global__ void softmax_online(const float* x, float* out, int64_t m, int64_t n, int64_t stride_m, int64_t stride_n) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    const int64_t row = int64_t(blockIdx.x) * (blockDim.x / 32) + warp.meta_group_rank();
    if (row >= m) return;
    const float* from = x + row * stride_m;
    float largest = -INFINITY, sum = 0.0f;  // of the lane's columns so far
    for (int64_t j = warp.thread_rank(); j < n; j += warp.size()) {
        const float v = from[j * stride_n], before = largest;
        largest = fmaxf(largest, v);
        if (largest > before) sum *= expf(before - largest);
        sum += largest == -INFINITY && !isnan(v) ? 0.0f : expf(v - largest);
    }
    const float highest = cg::reduce(warp, largest, cg::greater<float>{});
    sum = largest == highest ? sum : sum * expf(largest - highest);
    const float total = cg::reduce(warp, sum, cg::plus<float>{});
    for (int64_t j = warp.thread_rank(); j < n; j += warp.size())
        out[row * n + j] = expf(from[j * stride_n] - highest) / total;
}

__global__ void layer_norm_tiles(const float* __restrict__ inp, const float* __restrict__ weight,
                                 const float* __restrict__ bias, float* __restrict__ out, int64_t N, int64_t C,
                                 int64_t stride_m, int64_t stride_n, float eps) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    const int64_t idx = int64_t(blockIdx.x) * warp.meta_group_size() + warp.meta_group_rank();
    if (idx >= N) return;
    const float* x = inp + idx * stride_m;
    float sum = 0.0f;
    for (int64_t i = warp.thread_rank(); i < C; i += warp.size()) sum += x[i * stride_n];
    const float mean = cg::reduce(warp, sum, cg::plus<float>{}) / C;
    sum = 0.0f;
    for (int64_t i = warp.thread_rank(); i < C; i += warp.size()) {
        const float diff = x[i * stride_n] - mean;
        sum += diff * diff;
    }
    const float s = rsqrtf(cg::reduce(warp, sum, cg::plus<float>{}) / C + eps);
    for (int64_t c = warp.thread_rank(); c < C; c += warp.size())
        out[idx * C + c] = s * (x[c * stride_n] - mean) * weight[c] + bias[c];
}

__global__ void sum_blocks(const float* x, float* out, int64_t count, int64_t n, int64_t stride_m, int64_t stride_n) {
    __shared__ float partial[8];
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> tile = cg::tiled_partition<32>(block);
    float value = 0.0f;
    for (int64_t i = int64_t(blockIdx.x) * block.size() + block.thread_rank(); i < count;
         i += int64_t(gridDim.x) * block.size())
        value += x[(i / n) * stride_m + (i % n) * stride_n];
    value = cg::reduce(tile, value, cg::plus<float>());
    if (tile.thread_rank() == 0) partial[tile.meta_group_rank()] = value;
    block.sync();
    if (tile.meta_group_rank() != 0) return;
    value = tile.thread_rank() < block.size() / 32 ? partial[tile.thread_rank()] : 0.0f;
    value = cg::reduce(tile, value, cg::plus<float>());
    if (tile.thread_rank() == 0) atomicAdd(out, value);
}

extern "C" int softmax(const void* x, void* out, int64_t m, int64_t n, int64_t stride_m, int64_t stride_n,
                       int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    if (dtype != FLOAT32) return cudaErrorNotSupported;
    const dim3 grid(unsigned(ceil_div<int64_t>(m, 4)));
    record->set(grid, 128);
    softmax_online<<<grid, 128, 0, stream>>>((const float*)x, (float*)out, m, n, stride_m, stride_n);
    return cudaGetLastError();
}

extern "C" int layer_norm(const void* x, const void* weight, const void* bias, void* out, int64_t m, int64_t n,
                          int64_t stride_m, int64_t stride_n, double eps, int64_t dtype, cudaStream_t stream,
                          LaunchRecord* record) {
    if (dtype != FLOAT32) return cudaErrorNotSupported;
    const dim3 grid(unsigned(ceil_div<int64_t>(m, 4)));
    record->set(grid, 128);
    layer_norm_tiles<<<grid, 128, 0, stream>>>((const float*)x, (const float*)weight, (const float*)bias, (float*)out,
                                               m, n, stride_m, stride_n, float(eps));
    return cudaGetLastError();
}

extern "C" int sum(const void* x, void* partial, void* out, int64_t m, int64_t n, int64_t stride_m, int64_t stride_n,
                   int64_t axis, int64_t parts, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    if (dtype != FLOAT32 || !(axis == 2 || (axis == 1 && m == 1))) return cudaErrorNotSupported;
    cudaMemsetAsync(out, 0, sizeof(float), stream);
    const int64_t most = 8 * multiprocessor_count(), wanted = ceil_div<int64_t>(m * n, 256);
    const dim3 grid(unsigned(wanted < most ? wanted : most));
    record->set(grid, 256);
    sum_blocks<<<grid, 256, 0, stream>>>((const float*)x, (float*)out, m * n, n, stride_m, stride_n);
    return cudaGetLastError();
}
