// Sums by a tree: adds blocks to sum.cu. Each block adds one output, or a part of it, in shared memory
//
// Each thread adds every 256th element, one load at a time. Then half of the threads add the sums of the other half,
// with a barrier after each of eight steps. Short rows have fewer threads. In columns, neighbouring threads read
// elements one row apart: a warp reads 32 bytes at each of 32 places in memory.
#include "common/common.cuh"

constexpr int MAX_THREADS = 256, MIN_THREADS = 32;
constexpr int64_t MOST_BLOCKS = 32768;  // limit of the second dimension of a grid

// Block (part, output) adds every parts-th run of blockDim.x elements. out: (outputs, parts).
template <typename T, typename Out>
__global__ void __launch_bounds__(MAX_THREADS)
    sum_tree(const T* __restrict__ x, Out* __restrict__ out, int64_t outputs, int64_t n, int64_t stride_m,
             int64_t stride_n) {
    __shared__ float sums[MAX_THREADS];
    const int64_t output = int64_t(blockIdx.z) * gridDim.y + blockIdx.y;
    if (output >= outputs) return;  // true for the whole block
    float sum = 0.0f;
    for (int64_t j = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; j < n; j += int64_t(gridDim.x) * blockDim.x) {
        sum += to_float(x[output * stride_m + j * stride_n]);
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[output * gridDim.x + blockIdx.x] = from_float<Out>(sums[0]);
}

template <typename T, typename Out>
void launch(const T* x, Out* out, int64_t outputs, int64_t n, int64_t stride_m, int64_t stride_n, int64_t parts,
            cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(parts), unsigned(min(outputs, MOST_BLOCKS)), unsigned(ceil_div(outputs, MOST_BLOCKS)));
    int threads = MIN_THREADS;
    while (threads < n && threads < MAX_THREADS) threads *= 2;
    record->set(grid, threads);
    sum_tree<T, Out><<<grid, threads, 0, stream>>>(x, out, outputs, n, stride_m, stride_n);
}

// out[i] = sum over j of x[i, j], or the sum of all if `all`. parts: blocks per output. partial: m * parts floats.
extern "C" int sum_tree(const void* x, void* partial, void* out, int64_t m, int64_t n, int64_t stride_m,
                        int64_t stride_n, int64_t parts, int64_t all, int64_t dtype, cudaStream_t stream,
                        LaunchRecord* record) {
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const T* from = static_cast<const T*>(x);
        T* to = static_cast<T*>(out);
        float* between = static_cast<float*>(partial);
        if (parts == 1 && !all) {
            launch(from, to, m, n, stride_m, stride_n, 1, stream, record);
            return;
        }
        launch(from, between, m, n, stride_m, stride_n, parts, stream, record);
        const int64_t terms = all ? m * parts : parts;
        launch(between, to, all ? 1 : m, terms, terms, int64_t(1), 1, stream, record);
    });
}
