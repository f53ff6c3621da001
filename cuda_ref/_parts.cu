// out[i] = sum over p of sums[p, i]: adds the parts of split sums, in the order of the parts
#include "common.cuh"

constexpr int THREADS = 256;

template <typename T, int WIDTH>
__global__ void __launch_bounds__(THREADS)
    add_parts_kernel(const float* __restrict__ sums, T* __restrict__ out, int64_t count, int parts) {
    const int64_t i = (int64_t(blockIdx.x) * THREADS + threadIdx.x) * WIDTH;
    if (i >= count) return;
    Pack<float, WIDTH> total = *reinterpret_cast<const Pack<float, WIDTH>*>(sums + i);
#pragma unroll 4
    for (int part = 1; part < parts; ++part) {
        const Pack<float, WIDTH> x = *reinterpret_cast<const Pack<float, WIDTH>*>(sums + part * count + i);
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) total[j] += x[j];
    }
    Pack<T, WIDTH> rounded;
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) rounded[j] = from_float<T>(total[j]);
    *reinterpret_cast<Pack<T, WIDTH>*>(out + i) = rounded;
}

// sums: float32 (parts, count)
extern "C" int add_parts(const float* sums, void* out, int64_t count, int64_t parts, int64_t dtype,
                         cudaStream_t stream, LaunchRecord* record) {
    const int width = count % 4 == 0 ? 4 : 1;
    const dim3 grid(unsigned(ceil_div<int64_t>(count, THREADS * width)));
    record->set(grid, THREADS);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        if (width == 4) {
            add_parts_kernel<T, 4><<<grid, THREADS, 0, stream>>>(sums, static_cast<T*>(out), count, int(parts));
        } else {
            add_parts_kernel<T, 1><<<grid, THREADS, 0, stream>>>(sums, static_cast<T*>(out), count, int(parts));
        }
    });
}
