// out[m, n] = scale_a * scale_b * (sum over k of a[m, k] * b[k, n]), float8 to bfloat16: the kernel of wgmma.cuh
//
// requires: sm_90a
//
// Precision: products are exact, but tensor cores keep only 14 bits of their sums. `fast` accepts that. `promoted` sums
// 128 products at a time in the tensor cores and adds these sums in float32 while the other warpgroup uses them.
//
// Layouts. In float8, wgmma takes only operands that are contiguous along k.
#include "matmul/wgmma.cuh"

// a[m, k] is at a + m * a_stride + k, b[k, n] at b + n * b_stride + k. `tile`: its number in _tiles.py; `promoted`
// has no tile of 192 columns. With several `parts` of k the sums go to `sums`: see Parts.
extern "C" int matmul_wgmma8(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K, int64_t a_stride,
                             int64_t b_stride, const float* scale_a, const float* scale_b, int64_t promoted,
                             int64_t tile, int64_t parts, float* sums, cudaStream_t stream, LaunchRecord* record) {
    const MatrixOperand left{a, false, M, a_stride}, right{b, false, N, b_stride};
    const Scales scales{scale_a, scale_b};
    const Plan plan{tile, parts, sums};
    constexpr StoreSums FINISH;
    return promoted
               ? launch<Float8, false, false, false, true>(left, right, out, K, scales, plan, FINISH, stream, record)
               : launch<Float8, false, false>(left, right, out, K, scales, plan, FINISH, stream, record);
}
