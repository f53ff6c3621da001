// Exercise cuda/17_matmul: a product, one thread for each element.
//
// out[m, n] = sum over k of a[m, k] b[k, n]. All matrices are row-major. Neighbouring threads have neighbouring n.
#include "common.cuh"

__global__ void matmul_kernel(const float* a, const float* b, float* out, int64_t M, int64_t K, int64_t N) {
    const int64_t m = int64_t(blockIdx.y) * blockDim.y + threadIdx.y;
    const int64_t n = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (m >= M || n >= N) return;
    float acc = 0.0f;
    // TODO: the sum over k, in acc. fmaf(x, y, z) is x * y + z with one rounding.
    for (int64_t k = 0; k < K; ++k) acc = fmaf(a[m * K + k], b[k * N + n], acc);
    // END
    out[m * N + n] = acc;
}

extern "C" int matmul(const float* a, const float* b, float* out, int64_t M, int64_t K, int64_t N, int64_t dtype,
                      cudaStream_t stream, LaunchRecord* record) {
    const dim3 block(32, 8), grid(unsigned(ceil_div<int64_t>(N, 32)), unsigned(ceil_div<int64_t>(M, 8)));
    record->set(grid, block);
    matmul_kernel<<<grid, block, 0, stream>>>(a, b, out, M, K, N);
    return cudaGetLastError();
}
