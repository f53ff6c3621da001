// SGEMM, second rung: a block copies a tile of A and of B to shared memory; zeros beyond the edges.
#include "common.cuh"

#define BLOCKSIZE 16

__global__ void sgemm_shared_mem_block(int M, int N, int K, const float* A, int64_t lda, const float* B, int64_t ldb,
                                       float* C) {
    __shared__ float As[BLOCKSIZE * BLOCKSIZE];
    __shared__ float Bs[BLOCKSIZE * BLOCKSIZE];
    const int threadCol = threadIdx.x % BLOCKSIZE, threadRow = threadIdx.x / BLOCKSIZE;
    const int row = blockIdx.y * BLOCKSIZE + threadRow, col = blockIdx.x * BLOCKSIZE + threadCol;
    float tmp = 0.0f;
    for (int bkIdx = 0; bkIdx < K; bkIdx += BLOCKSIZE) {
        As[threadIdx.x] = row < M && bkIdx + threadCol < K ? A[row * lda + bkIdx + threadCol] : 0.0f;
        Bs[threadIdx.x] = col < N && bkIdx + threadRow < K ? B[(bkIdx + threadRow) * ldb + col] : 0.0f;
        __syncthreads();
        for (int dotIdx = 0; dotIdx < BLOCKSIZE; ++dotIdx)
            tmp += As[threadRow * BLOCKSIZE + dotIdx] * Bs[dotIdx * BLOCKSIZE + threadCol];
        __syncthreads();
    }
    if (row < M && col < N) C[int64_t(row) * N + col] = tmp;
}

extern "C" int matmul(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K, int64_t stride_am,
                      int64_t stride_ak, int64_t stride_bk, int64_t stride_bn, int64_t tf32, int64_t dtype,
                      cudaStream_t stream, LaunchRecord* record) {
    if (dtype != FLOAT32 || stride_ak != 1 || stride_bn != 1) return cudaErrorNotSupported;
    const dim3 grid(unsigned(ceil_div<int64_t>(N, BLOCKSIZE)), unsigned(ceil_div<int64_t>(M, BLOCKSIZE)));
    record->set(grid, BLOCKSIZE * BLOCKSIZE);
    sgemm_shared_mem_block<<<grid, BLOCKSIZE * BLOCKSIZE, 0, stream>>>(int(M), int(N), int(K), (const float*)a,
                                                                       stride_am, (const float*)b, stride_bk,
                                                                       (float*)out);
    return cudaGetLastError();
}
