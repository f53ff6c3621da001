// out[i] = a[i] + b[i], float32. A thread adds four neighbours.
#include "common.cuh"

enum Mistake { NONE, REST_OF_PACKS_DROPPED, ADDED_TO_OLD_OUTPUT, STRIDE_OF_A_FOR_B, GRID_CAPPED, DEFAULT_STREAM };

constexpr int BLOCK = 256;
constexpr int PACK = 4;
constexpr int64_t MAX_BLOCKS = 8;

__global__ void add(const float* a, const float* b, float* out, int64_t n, int64_t stride_a, int64_t stride_b,
                    int64_t mistake) {
    if (mistake == REST_OF_PACKS_DROPPED) n = n / PACK * PACK;
    if (mistake == STRIDE_OF_A_FOR_B) stride_b = stride_a;
    const int64_t first = (int64_t(blockIdx.x) * BLOCK + threadIdx.x) * PACK;
    for (int64_t i = first; i < first + PACK && i < n; ++i) {
        const float sum = a[i * stride_a] + b[i * stride_b];
        out[i] = mistake == ADDED_TO_OLD_OUTPUT ? out[i] + sum : sum;
    }
}

extern "C" int vector_add(const void* a, const void* b, void* out, int64_t n, int64_t stride_a, int64_t stride_b,
                          int64_t mistake, cudaStream_t stream, LaunchRecord* record) {
    int64_t blocks = ceil_div<int64_t>(n, BLOCK * PACK);
    if (mistake == GRID_CAPPED && blocks > MAX_BLOCKS) blocks = MAX_BLOCKS;
    if (mistake == DEFAULT_STREAM) stream = 0;
    record->set(dim3(unsigned(blocks)), BLOCK);
    add<<<unsigned(blocks), BLOCK, 0, stream>>>(static_cast<const float*>(a), static_cast<const float*>(b),
                                                static_cast<float*>(out), n, stride_a, stride_b, mistake);
    return cudaGetLastError();
}
