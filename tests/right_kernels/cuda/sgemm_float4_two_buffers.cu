// SGEMM, last rung: float4 loads, A transposed in shared memory, and two buffers: the next tile is read while this one
// is multiplied. Edges are masked a float4 at a time; rows must be multiples of 4 and pointers of 16 bytes.
#include "common.cuh"

constexpr int BM = 32, BN = 32, BK = 8, TM = 4, TN = 4, THREADS = (BM / TM) * (BN / TN);

__device__ __forceinline__ float4 load(const float* p, bool there) {
    return there ? __ldg(reinterpret_cast<const float4*>(p)) : make_float4(0.f, 0.f, 0.f, 0.f);
}

__global__ void __launch_bounds__(THREADS)
    sgemm(int64_t M, int64_t N, int64_t K, const float* __restrict__ A, int64_t lda, const float* __restrict__ B,
          int64_t ldb, float* __restrict__ C) {
    __shared__ __align__(16) float As[2][BK][BM];
    __shared__ __align__(16) float Bs[2][BK][BN];
    const int tid = threadIdx.x, tx = tid % (BN / TN), ty = tid / (BN / TN);
    const int a_row = tid / (BK / 4), a_col = tid % (BK / 4) * 4, b_row = tid / (BN / 4), b_col = tid % (BN / 4) * 4;
    const int64_t m = int64_t(blockIdx.y) * BM + a_row, n = int64_t(blockIdx.x) * BN + b_col;
    float acc[TM][TN] = {};
    float4 a = load(A + m * lda + a_col, m < M && a_col < K), b = load(B + b_row * ldb + n, b_row < K && n < N);
    int now = 0;
    for (int64_t k = 0; k < K; k += BK, now ^= 1) {
        As[now][a_col + 0][a_row] = a.x;
        As[now][a_col + 1][a_row] = a.y;
        As[now][a_col + 2][a_row] = a.z;
        As[now][a_col + 3][a_row] = a.w;
        *reinterpret_cast<float4*>(&Bs[now][b_row][b_col]) = b;
        __syncthreads();
        const int64_t next = k + BK;
        if (next < K) {
            a = load(A + m * lda + next + a_col, m < M && next + a_col < K);
            b = load(B + (next + b_row) * ldb + n, next + b_row < K && n < N);
        }
#pragma unroll
        for (int i = 0; i < BK; ++i) {
            const float4 x = *reinterpret_cast<const float4*>(&As[now][i][ty * TM]);
            const float4 y = *reinterpret_cast<const float4*>(&Bs[now][i][tx * TN]);
            const float xs[TM] = {x.x, x.y, x.z, x.w}, ys[TN] = {y.x, y.y, y.z, y.w};
#pragma unroll
            for (int r = 0; r < TM; ++r)
#pragma unroll
                for (int c = 0; c < TN; ++c) acc[r][c] = fmaf(xs[r], ys[c], acc[r][c]);
        }
    }
    const int64_t col = int64_t(blockIdx.x) * BN + tx * TN;
    for (int r = 0; r < TM; ++r) {
        const int64_t row = int64_t(blockIdx.y) * BM + ty * TM + r;
        if (row < M && col < N)
            *reinterpret_cast<float4*>(C + row * N + col) = make_float4(acc[r][0], acc[r][1], acc[r][2], acc[r][3]);
    }
}

extern "C" int matmul(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K, int64_t stride_am,
                      int64_t stride_ak, int64_t stride_bk, int64_t stride_bn, int64_t tf32, int64_t dtype,
                      cudaStream_t stream, LaunchRecord* record) {
    if (dtype != FLOAT32 || stride_ak != 1 || stride_bn != 1) return cudaErrorNotSupported;
    if (stride_am % 4 || stride_bk % 4 || N % 4 || K % 4 || !is_aligned(a, 16) || !is_aligned(b, 16))
        return cudaErrorNotSupported;
    const dim3 grid(unsigned(ceil_div<int64_t>(N, BN)), unsigned(ceil_div<int64_t>(M, BM)));
    record->set(grid, THREADS);
    sgemm<<<grid, THREADS, 0, stream>>>(M, N, K, (const float*)a, stride_am, (const float*)b, stride_bk, (float*)out);
    return cudaGetLastError();
}
