// out[m, n] = scale_a * scale_b * (sum over k of a[m, k] * b[k, n]), float8 to bfloat16, for few rows or columns and
// short sums: products that take less time than to load a tile
//
// requires: sm_90
//
// A thread multiplies a row of the larger operand, 16 bytes at a time, by all rows of the other one, which lie in
// shared memory as float32.
//
// Precision: products are exact, sums float32, rounded once.
#include <cuda_fp8.h>

#include <type_traits>

#include "common/common.cuh"

constexpr int THREADS = 128, CHUNK = 16, CHUNKS = 4;  // at most 64 terms

struct Operand8 {
    const uint8_t* data;
    int rows;
    int64_t stride;
};

__device__ __forceinline__ float2 as_floats(uint16_t two) {
    const __half2_raw halves = __nv_cvt_fp8x2_to_halfraw2(two, __NV_E4M3);
    return __half22float2(*reinterpret_cast<const __half2*>(&halves));
}

// Element (r, s), row r of the smaller and s of the larger operand, is out[r * out_r + s * out_s].
template <int FEW>
__global__ void __launch_bounds__(THREADS)
    matmul_short8(const Operand8 few, const Operand8 many, __nv_bfloat16* __restrict__ out, int K, int64_t out_r,
                  int64_t out_s, const float* scale_a, const float* scale_b) {
    extern __shared__ __align__(16) float shared[];  // [k][FEW]
    const int row = int(blockIdx.x) * THREADS + threadIdx.x, chunks = K / CHUNK;
    const uint4* const from = reinterpret_cast<const uint4*>(many.data + min(row, many.rows - 1) * many.stride);
    uint4 loaded[CHUNKS];  // all loads in flight at once
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) loaded[i] = __ldg(from + min(i, chunks - 1));
    for (int i = threadIdx.x; i < K * FEW; i += THREADS) {
        const int k = i / FEW, r = i % FEW;
        shared[i] = r < few.rows ? as_floats(few.data[r * few.stride + k]).x : 0.0f;
    }
    __syncthreads();
    const float scale = __ldg(scale_a) * __ldg(scale_b);
    float sums[FEW] = {};
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
        if (i >= chunks) break;
        const uint32_t words[4] = {loaded[i].x, loaded[i].y, loaded[i].z, loaded[i].w};
#pragma unroll
        for (int j = 0; j < CHUNK; j += 2) {
            const float2 x = as_floats(uint16_t(words[j / 4] >> j % 4 * 8));
            const float* const at = shared + (i * CHUNK + j) * FEW;
#pragma unroll
            for (int r = 0; r < FEW; ++r) sums[r] = fmaf(x.y, at[FEW + r], fmaf(x.x, at[r], sums[r]));
        }
    }
    if (row >= many.rows) return;
#pragma unroll
    for (int r = 0; r < FEW; ++r) {
        if (r < few.rows) out[r * out_r + row * out_s] = from_float<__nv_bfloat16>(sums[r] * scale);
    }
}

// a[m, k] is at a + m * a_stride + k, b[k, n] at b + n * b_stride + k. Rows of the larger operand begin at multiples of
// 16 bytes, K is 16, 32, 48 or 64, and min(M, N) is at most 8.
extern "C" int matmul_short8(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K, int64_t a_stride,
                             int64_t b_stride, const float* scale_a, const float* scale_b, cudaStream_t stream,
                             LaunchRecord* record) {
    const Operand8 left{static_cast<const uint8_t*>(a), int(M), a_stride};
    const Operand8 right{static_cast<const uint8_t*>(b), int(N), b_stride};
    const Operand8 few = M <= N ? left : right, many = M <= N ? right : left;
    const dim3 grid(unsigned(ceil_div(many.rows, THREADS)));
    const auto run = [&](auto rows, auto kernel) {
        const size_t bytes = K * decltype(rows)::value * 4;
        record->set(grid, THREADS, bytes);
        kernel<<<grid, THREADS, bytes, stream>>>(few, many, static_cast<__nv_bfloat16*>(out), int(K), M <= N ? N : 1,
                                                 M <= N ? 1 : N, scale_a, scale_b);
        return cudaGetLastError();
    };
    if (few.rows == 1) return run(std::integral_constant<int, 1>(), matmul_short8<1>);
    if (few.rows == 2) return run(std::integral_constant<int, 2>(), matmul_short8<2>);
    return few.rows <= 4 ? run(std::integral_constant<int, 4>(), matmul_short8<4>)
                         : run(std::integral_constant<int, 8>(), matmul_short8<8>);
}
