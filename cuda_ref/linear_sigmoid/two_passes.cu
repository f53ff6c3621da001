// out[m, n] = sigma(product[m, n] + bias[n]): a second pass over a product that is already in memory
//
// A thread computes one pack of 16 bytes of a row, or a single element if rows are not made of whole packs.
#include "common/sigmoid.cuh"

constexpr int BLOCK = 256;

template <typename T, int WIDTH>
__global__ void __launch_bounds__(BLOCK)
    bias_sigmoid(const T* __restrict__ product, const T* __restrict__ bias, T* __restrict__ out, int64_t packs, int N) {
    const int64_t i = int64_t(blockIdx.x) * BLOCK + threadIdx.x;
    if (i >= packs) return;
    const Pack<T, WIDTH> x = reinterpret_cast<const Pack<T, WIDTH>*>(product)[i];
    const T* const b = bias + i * WIDTH % N;
    Pack<T, WIDTH> y;
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) y[j] = from_float<T>(sigmoid_for<T>(to_float(x[j]) + to_float(b[j])));
    reinterpret_cast<Pack<T, WIDTH>*>(out)[i] = y;
}

extern "C" int bias_sigmoid(const void* product, const void* bias, void* out, int64_t M, int64_t N, int64_t dtype,
                            cudaStream_t stream, LaunchRecord* record) {
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int LANES = 16 / sizeof(T);
        const int64_t packs = N % LANES == 0 ? M * N / LANES : M * N;
        const dim3 grid(unsigned(ceil_div<int64_t>(packs, BLOCK)));
        record->set(grid, BLOCK);
        const auto run = [&](auto kernel) {
            kernel<<<grid, BLOCK, 0, stream>>>(static_cast<const T*>(product), static_cast<const T*>(bias),
                                               static_cast<T*>(out), packs, int(N));
        };
        if (N % LANES == 0) {
            run(bias_sigmoid<T, LANES>);
        } else {
            run(bias_sigmoid<T, 1>);
        }
    });
}
