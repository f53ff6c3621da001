// out[m, n] = sum over k of a[m, k] * b[k, n] in tf32: the kernel of wgmma.cuh for float32
//
// requires: sm_90a
//
// Precision: TMA rounds the factors to tf32 as it copies them; products are exact, sums float32.
//
// Layouts. In tf32, wgmma needs K-major operands in shared memory, but the left one may come from registers. So one
// operand may be MN-major: a as it is; b by computing out^T = b^T a^T, transposed when it is stored.
#include "matmul/wgmma.cuh"

// Arguments as for matmul_wgmma. `tile`: its number in _tiles.py, for the product or, if b is MN-major, its transpose.
extern "C" int matmul_wgmma32(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K, int64_t a_mn,
                              int64_t a_stride, int64_t b_mn, int64_t b_stride, int64_t tile, int64_t parts,
                              float* sums, cudaStream_t stream, LaunchRecord* record) {
    const MatrixOperand left{a, a_mn != 0, M, a_stride}, right{b, b_mn != 0, N, b_stride};
    const Plan plan{tile, parts, sums};
    constexpr Scales NONE = {};
    constexpr StoreSums FINISH;
    if (a_mn && b_mn) return cudaErrorNotSupported;
    if (b_mn) return launch<float, true, false, true>(right, left, out, K, NONE, plan, FINISH, stream, record);
    if (a_mn) return launch<float, true, false>(left, right, out, K, NONE, plan, FINISH, stream, record);
    return launch<float, false, false>(left, right, out, K, NONE, plan, FINISH, stream, record);
}
