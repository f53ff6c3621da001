// One thread for several outputs: it loads an element of a once, and uses it for all of them.
#include "measure.h"

template <int OUTPUTS>
__global__ void matmul(const float* a, const float* b, float* out, int n) {
    const int row = blockIdx.y, column = blockIdx.x * blockDim.x * OUTPUTS + threadIdx.x;
    float acc[OUTPUTS] = {};
    for (int k = 0; k < n; ++k) {
        const float a_k = a[int64_t(row) * n + k];
#pragma unroll
        for (int i = 0; i < OUTPUTS; ++i) acc[i] = fmaf(a_k, b[int64_t(k) * n + column + i * blockDim.x], acc[i]);
    }
#pragma unroll
    for (int i = 0; i < OUTPUTS; ++i) out[int64_t(row) * n + column + i * blockDim.x] = acc[i];
}

template <int OUTPUTS>
void measure(const float* a, const float* b, float* out, int n, int threads) {
    const dim3 grid(n / (threads * OUTPUTS), n);
    const double us = microseconds([&] { matmul<OUTPUTS><<<grid, threads>>>(a, b, out, n); }, 5);
    printf("%-20d %12.1f %12.0f\n", OUTPUTS, us, us > 0 ? 2e-3 * n * n * n / us : 0.0);
}

int main() {
    const bool on_cpu = emulated();
    const int n = on_cpu ? 64 : 2048, threads = on_cpu ? 8 : 128;
    float *a = device_floats(int64_t(n) * n), *b = device_floats(int64_t(n) * n), *out = device_floats(int64_t(n) * n);
    printf("%-20s %12s %12s\n", "outputs of a thread", "us", "GFLOP/s");
    measure<1>(a, b, out, n, threads);
    measure<2>(a, b, out, n, threads);
    measure<4>(a, b, out, n, threads);
    measure<8>(a, b, out, n, threads);
    return 0;
}
