// SGEMM, first rung: one thread an element, neighbours of a warp in one row of C. Any strides.
#include "common.cuh"

__global__ void sgemm(int64_t M, int64_t N, int64_t K, const float* A, int64_t a_m, int64_t a_k, const float* B,
                      int64_t b_k, int64_t b_n, float* C) {
    const int64_t x = int64_t(blockIdx.x) * 32 + threadIdx.x % 32, y = int64_t(blockIdx.y) * 8 + threadIdx.x / 32;
    if (x < N && y < M) {
        float tmp = 0.0f;
        for (int64_t i = 0; i < K; ++i) tmp += A[y * a_m + i * a_k] * B[i * b_k + x * b_n];
        C[y * N + x] = tmp;
    }
}

extern "C" int matmul(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K, int64_t stride_am,
                      int64_t stride_ak, int64_t stride_bk, int64_t stride_bn, int64_t tf32, int64_t dtype,
                      cudaStream_t stream, LaunchRecord* record) {
    if (dtype != FLOAT32) return cudaErrorNotSupported;
    const dim3 grid(unsigned(ceil_div<int64_t>(N, 32)), unsigned(ceil_div<int64_t>(M, 8)));
    record->set(grid, 256);
    sgemm<<<grid, 256, 0, stream>>>(M, N, K, (const float*)a, stride_am, stride_ak, (const float*)b, stride_bk,
                                    stride_bn, (float*)out);
    return cudaGetLastError();
}
