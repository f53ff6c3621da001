// Elementwise kernels with grid-stride loops: a fixed number of blocks, each thread takes every so many elements.
#include "common.cuh"

#define FOR_EACH(i, n)                                                                   \
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < (n);            \
         i += int64_t(gridDim.x) * blockDim.x)

static dim3 blocks_for(int64_t n) {
    const int64_t most = 32 * multiprocessor_count(), wanted = ceil_div<int64_t>(n, 256);
    return dim3(unsigned(wanted < most ? wanted : most));
}

template <typename T>
__global__ void add(int64_t n, const T* a, int64_t stride_a, const T* b, int64_t stride_b, T* out) {
    FOR_EACH(i, n) out[i] = from_float<T>(to_float(a[i * stride_a]) + to_float(b[i * stride_b]));
}

template <typename T>
__global__ void sigmoid_of(int64_t n, const T* __restrict__ x, T* __restrict__ out) {
    FOR_EACH(i, n) out[i] = from_float<T>(1.0f / (1.0f + expf(-to_float(x[i]))));
}

template <typename T>
__global__ void add_matrices(int64_t M, int64_t N, const T* a, int64_t a_m, int64_t a_n, const T* b, int64_t b_m,
                             int64_t b_n, T* out) {
    FOR_EACH(i, M * N) {
        const int64_t m = i / N, n = i % N;
        out[i] = from_float<T>(to_float(a[m * a_m + n * a_n]) + to_float(b[m * b_m + n * b_n]));
    }
}

extern "C" int vector_add(const void* a, const void* b, void* out, int64_t n, int64_t stride_a, int64_t stride_b,
                          int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid = blocks_for(n);
    record->set(grid, 256);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        add<T><<<grid, 256, 0, stream>>>(n, (const T*)a, stride_a, (const T*)b, stride_b, (T*)out);
    });
}

extern "C" int sigmoid(const void* x, void* out, int64_t n, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid = blocks_for(n);
    record->set(grid, 256);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        sigmoid_of<T><<<grid, 256, 0, stream>>>(n, (const T*)x, (T*)out);
    });
}

extern "C" int matrix_add(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t stride_am,
                          int64_t stride_an, int64_t stride_bm, int64_t stride_bn, int64_t dtype, cudaStream_t stream,
                          LaunchRecord* record) {
    const dim3 grid = blocks_for(M * N);
    record->set(grid, 256);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        add_matrices<T><<<grid, 256, 0, stream>>>(M, N, (const T*)a, stride_am, stride_an, (const T*)b, stride_bm,
                                                  stride_bn, (T*)out);
    });
}
