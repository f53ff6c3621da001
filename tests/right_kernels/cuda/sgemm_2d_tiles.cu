// SGEMM, third rung: a thread computes 4 x 4 elements from registers; whole tiles of 64 x 64 x 8 only.
#include <cassert>

#include "common.cuh"

template <const int BM, const int BN, const int BK, const int TM, const int TN>
__global__ void __launch_bounds__((BM * BN) / (TM * TN), 1)
    sgemm2DBlocktiling(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
    const uint cRow = blockIdx.y, cCol = blockIdx.x;
    const uint numThreadsBlocktile = BM * BN / (TM * TN);
    assert(numThreadsBlocktile == blockDim.x);
    const int threadCol = threadIdx.x % (BN / TN), threadRow = threadIdx.x / (BN / TN);
    __shared__ float As[BM * BK];
    __shared__ float Bs[BK * BN];
    A += cRow * BM * K;
    B += cCol * BN;
    C += cRow * BM * N + cCol * BN;
    const uint innerRowA = threadIdx.x / BK, innerColA = threadIdx.x % BK, strideA = numThreadsBlocktile / BK;
    const uint innerRowB = threadIdx.x / BN, innerColB = threadIdx.x % BN, strideB = numThreadsBlocktile / BN;
    float threadResults[TM * TN] = {0.0};
    float regM[TM] = {0.0};
    float regN[TN] = {0.0};
    for (uint bkIdx = 0; bkIdx < K; bkIdx += BK) {
        for (uint loadOffset = 0; loadOffset < BM; loadOffset += strideA)
            As[(innerRowA + loadOffset) * BK + innerColA] = A[(innerRowA + loadOffset) * K + innerColA];
        for (uint loadOffset = 0; loadOffset < BK; loadOffset += strideB)
            Bs[(innerRowB + loadOffset) * BN + innerColB] = B[(innerRowB + loadOffset) * N + innerColB];
        __syncthreads();
        A += BK;
        B += BK * N;
        for (uint dotIdx = 0; dotIdx < BK; ++dotIdx) {
            for (uint i = 0; i < TM; ++i) regM[i] = As[(threadRow * TM + i) * BK + dotIdx];
            for (uint i = 0; i < TN; ++i) regN[i] = Bs[dotIdx * BN + threadCol * TN + i];
            for (uint m = 0; m < TM; ++m)
                for (uint n = 0; n < TN; ++n) threadResults[m * TN + n] += regM[m] * regN[n];
        }
        __syncthreads();
    }
    for (uint m = 0; m < TM; ++m)
        for (uint n = 0; n < TN; ++n) {
            float* c = &C[(threadRow * TM + m) * N + threadCol * TN + n];
            *c = alpha * threadResults[m * TN + n] + (beta == 0.0f ? 0.0f : beta * *c);
        }
}

extern "C" int matmul(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K, int64_t stride_am,
                      int64_t stride_ak, int64_t stride_bk, int64_t stride_bn, int64_t tf32, int64_t dtype,
                      cudaStream_t stream, LaunchRecord* record) {
    if (dtype != FLOAT32 || stride_am != K || stride_ak != 1 || stride_bk != N || stride_bn != 1)
        return cudaErrorNotSupported;
    if (M % 64 || N % 64 || K % 8) return cudaErrorNotSupported;
    const dim3 grid(unsigned(N / 64), unsigned(M / 64));
    record->set(grid, 256);
    sgemm2DBlocktiling<64, 64, 8, 4, 4><<<grid, 256, 0, stream>>>(int(M), int(N), int(K), 1.0f, (const float*)a,
                                                                  (const float*)b, 0.0f, (float*)out);
    return cudaGetLastError();
}
