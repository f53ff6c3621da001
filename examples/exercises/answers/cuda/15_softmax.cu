// Exercise cuda/15_softmax: three passes over a row.
//
// out[m, n] = exp(x[m, n] - max) / sum, where max is the largest element of row m and sum that of exp(x[m, j] - max).
// One warp for a row. expf of a number above 88.7 is infinite, hence the maximum.
#include "common.cuh"

__device__ float largest_of_warp(float value) {
    for (int distance = 16; distance > 0; distance /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, distance));
    }
    return value;
}

__device__ float sum_of_warp(float value) {
    for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
    return value;
}

__global__ void softmax_kernel(const float* x, float* out, int64_t N) {
    const float* row = x + int64_t(blockIdx.x) * N;
    // TODO: declare `float largest` and `float sum` of the whole row. Each lane goes over every 32nd element, from
    // threadIdx.x on; then largest_of_warp and sum_of_warp combine the lanes. -INFINITY is less than any number.
    float largest = -INFINITY, sum = 0.0f;
    for (int64_t n = threadIdx.x; n < N; n += 32) largest = fmaxf(largest, row[n]);
    largest = largest_of_warp(largest);
    for (int64_t n = threadIdx.x; n < N; n += 32) sum += expf(row[n] - largest);
    sum = sum_of_warp(sum);
    // END
    for (int64_t n = threadIdx.x; n < N; n += 32) out[int64_t(blockIdx.x) * N + n] = expf(row[n] - largest) / sum;
}

extern "C" int softmax(const float* x, float* out, int64_t M, int64_t N, int64_t dtype, cudaStream_t stream,
                       LaunchRecord* record) {
    const dim3 grid{unsigned(M)}, block(32);
    record->set(grid, block);
    softmax_kernel<<<grid, block, 0, stream>>>(x, out, N);
    return cudaGetLastError();
}
