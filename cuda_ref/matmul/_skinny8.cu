// out[m, n] = scale_a * scale_b * (sum over k of a[m, k] * b[k, n]), float8 to bfloat16, for at most 32 rows or
// columns: the kernel of skinny.cuh
//
// requires: sm_90a
//
// Precision: see _wgmma8.cu. `promoted` adds sums of 128 products in float32.
//
// Layouts. wgmma takes only float8 operands that are contiguous along k, so their roles can be exchanged: for few
// columns the kernel computes the transpose of out.
#include "matmul/skinny.cuh"

struct Scaled {
    const float *a, *b;

    __device__ __forceinline__ float operator()(float sum, int) const { return sum * (__ldg(a) * __ldg(b)); }
};

// a[m, k] is at a + m * a_stride + k, b[k, n] at b + n * b_stride + k. Tiles have 64 or 128 `columns`; `parts` divide
// k.
extern "C" int matmul_skinny8(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K,
                              int64_t a_stride, int64_t b_stride, const float* scale_a, const float* scale_b,
                              int64_t promoted, int64_t columns, int64_t parts, cudaStream_t stream,
                              LaunchRecord* record) {
    const MatrixOperand left{a, false, M, a_stride}, right{b, false, N, b_stride};
    const Scaled scaled{scale_a, scale_b};
    const auto run = [&](auto is_promoted) {
        constexpr bool PROMOTED = decltype(is_promoted)::value;
        return M <= N ? launch_skinny<Float8, false, SkinnyForm<PROMOTED, false>>(left, right, out, K, columns, parts,
                                                                                 scaled, stream, record)
                      : launch_skinny<Float8, false, SkinnyForm<PROMOTED, true>>(right, left, out, K, columns, parts,
                                                                                scaled, stream, record);
    };
    return promoted ? run(std::true_type()) : run(std::false_type());
}
