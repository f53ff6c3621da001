// y[i] = 1 / (1 + exp(-x[i])), float16. A thread computes two neighbours.
#include "common.cuh"

enum Mistake { NONE, ODD_ELEMENT_DROPPED, EXPONENTIAL_IN_FLOAT16, NAN_CLAMPED, MINUS_FORGOTTEN, OFFSET_IN_32_BITS };

constexpr int BLOCK = 128;

__global__ void sigmoid_pairs(const __half* x, __half* y, int64_t n, int64_t mistake) {
    if (mistake == ODD_ELEMENT_DROPPED) n = n / 2 * 2;
    const int64_t first = (int64_t(blockIdx.x) * BLOCK + threadIdx.x) * 2;
    for (int64_t i = first; i < first + 2 && i < n; ++i) {
        const int64_t at = mistake == OFFSET_IN_32_BITS ? unsigned(i * sizeof(__half)) / sizeof(__half) : i;
        float value = to_float(x[at]);
        if (mistake == NAN_CLAMPED) value = fmaxf(value, -80.0f);
        float e = expf(mistake == MINUS_FORGOTTEN ? value : -value);
        if (mistake == EXPONENTIAL_IN_FLOAT16) e = to_float(from_float<__half>(e));
        y[at] = from_float<__half>(1.0f / (1.0f + e));
    }
}

extern "C" int sigmoid(const void* x, void* y, int64_t n, int64_t mistake, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(n, 2 * BLOCK)));
    record->set(grid, BLOCK);
    sigmoid_pairs<<<grid, BLOCK, 0, stream>>>(static_cast<const __half*>(x), static_cast<__half*>(y), n, mistake);
    return cudaGetLastError();
}
