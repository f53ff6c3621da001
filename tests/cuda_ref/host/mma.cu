// One tile of nvcuda::wmma: out = a b + c, with a and b stored by rows or by columns.
#include <mma.h>

#include "common/common.cuh"

using namespace nvcuda;

template <typename LayoutA, typename LayoutB>
__global__ void multiply_tile(const __half* a, const __half* b, const float* c, float* out, int64_t by_columns) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, LayoutA> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, LayoutB> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc;
    const wmma::layout_t layout = by_columns ? wmma::mem_col_major : wmma::mem_row_major;
    wmma::load_matrix_sync(left, a, 16);
    wmma::load_matrix_sync(right, b, 16);
    wmma::load_matrix_sync(acc, c, 16, layout);
    wmma::mma_sync(acc, left, right, acc);
    for (int i = 0; i < acc.num_elements; ++i) acc.x[i] = 2.0f * acc.x[i];  // all elements alike
    wmma::store_matrix_sync(out, acc, 16, layout);
}

extern "C" int multiply(const void* a, const void* b, const void* c, void* out, int64_t a_by_columns,
                        int64_t b_by_columns, int64_t c_by_columns, cudaStream_t stream, LaunchRecord* record) {
    record->set(1, 32);
    const __half *x = static_cast<const __half*>(a), *y = static_cast<const __half*>(b);
    const float* z = static_cast<const float*>(c);
    float* result = static_cast<float*>(out);
    if (a_by_columns && b_by_columns) {
        multiply_tile<wmma::col_major, wmma::col_major><<<1, 32, 0, stream>>>(x, y, z, result, c_by_columns);
    } else if (a_by_columns) {
        multiply_tile<wmma::col_major, wmma::row_major><<<1, 32, 0, stream>>>(x, y, z, result, c_by_columns);
    } else if (b_by_columns) {
        multiply_tile<wmma::row_major, wmma::col_major><<<1, 32, 0, stream>>>(x, y, z, result, c_by_columns);
    } else {
        multiply_tile<wmma::row_major, wmma::row_major><<<1, 32, 0, stream>>>(x, y, z, result, c_by_columns);
    }
    return cudaGetLastError();
}
