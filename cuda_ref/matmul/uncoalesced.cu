// out[m, n] = sum over k of a[m, k] * b[k, n], for any strides of a and b; out is row-major
//
// The kernel of matmul.cu with x and y exchanged: the lanes of a warp have neighbouring m instead of neighbouring n.
//
// With row-major operands, all lanes read the same element of b, and each reads another row of a: one warp's load of
// `a` touches 32 pieces of memory of 32 bytes and uses one element of each, and so does its store. matmul.cu exchanges
// the two lines that compute m and n, and nothing else. Results are bitwise the same.
//
// Source: the first of the kernels of S. Boehm, "How to Optimize a CUDA Matmul Kernel for cuBLAS-like Performance", 2022.
#include <algorithm>

#include "matmul/operands.cuh"

constexpr int BLOCK_M = 64;  // along x: the lanes of a warp
constexpr int BLOCK_N = 16;
constexpr int64_t MAX_GRID_Y = 65535;

template <typename T, bool TF32>
__global__ void __launch_bounds__(BLOCK_M* BLOCK_N)
    matmul_uncoalesced(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ out, int64_t M, int64_t N,
                       int64_t K, int64_t stride_am, int64_t stride_ak, int64_t stride_bk, int64_t stride_bn) {
    const int64_t m = int64_t(blockIdx.x) * BLOCK_M + threadIdx.x;
    if (m >= M) return;
    // The y dimension of a grid is limited to 65535: wider outputs take several steps.
    for (int64_t n = int64_t(blockIdx.y) * BLOCK_N + threadIdx.y; n < N; n += int64_t(gridDim.y) * BLOCK_N) {
        const T* a_mk = a + m * stride_am;
        const T* b_kn = b + n * stride_bn;
        float acc = 0.0f;
        for (int64_t k = 0; k < K; ++k) {
            acc = fmaf(factor<T, TF32>(*a_mk), factor<T, TF32>(*b_kn), acc);
            a_mk += stride_ak;
            b_kn += stride_bk;
        }
        out[m * N + n] = from_float<T>(acc);
    }
}

extern "C" int matmul_uncoalesced(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K,
                                  int64_t stride_am, int64_t stride_ak, int64_t stride_bk, int64_t stride_bn,
                                  int64_t tf32, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const dim3 block(BLOCK_M, BLOCK_N);
    const int64_t blocks_n = ceil_div<int64_t>(N, BLOCK_N);
    const dim3 grid(unsigned(ceil_div<int64_t>(M, BLOCK_M)), unsigned(std::min(blocks_n, MAX_GRID_Y)));
    record->set(grid, block);
    return by_precision(dtype, tf32, [&](auto zero, auto rounded) {
        using T = decltype(zero);
        matmul_uncoalesced<T, decltype(rounded)::value>
            <<<grid, block, 0, stream>>>(static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(out), M, N,
                                         K, stride_am, stride_ak, stride_bk, stride_bn);
    });
}
