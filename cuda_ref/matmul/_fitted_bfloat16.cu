// out[m, n] = sum over k of a[m, k] * b[k, n] in bfloat16, in tiles whose rows are fitted to the output
//
// requires: sm_90a
#include "matmul/fitted.cuh"

// Arguments: see `run` in fitted.cuh.
extern "C" int matmul_fitted_bfloat16(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K,
                                      int64_t a_mn, int64_t a_stride, int64_t b_mn, int64_t b_stride, int64_t columns,
                                      int64_t rows, int64_t sharing, int64_t parts, float* sums, cudaStream_t stream,
                                      LaunchRecord* record) {
    return run<__nv_bfloat16>(a, b, out, M, N, K, a_mn, a_stride, b_mn, b_stride, columns, rows, sharing, parts, sums,
                   stream, record);
}
