// A layer of LSTM cells, the plain kernel: a launch for each time step.
//
//   i, f, g, o = x_t w_ih^T + h w_hh^T + bias;  c = sigmoid(f) c + sigmoid(i) tanh(g);  h = sigmoid(o) tanh(c)
#include "lstm/lstm.cuh"

constexpr int WARPS = 8, ROWS = 8;

// sums[r][g] += the products of row r of `rows` and row (g, unit) of `weights`, over the columns of this lane.
template <typename T>
__device__ __forceinline__ void add_products(float (&sums)[ROWS][GATES], const T* rows, int count, const T* weights,
                                             int columns, int unit, int units) {
    for (int k = threadIdx.x; k < columns; k += 32) {
        float w[GATES];
#pragma unroll
        for (int g = 0; g < GATES; ++g) w[g] = to_float(weights[(int64_t(g) * units + unit) * columns + k]);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            if (r >= count) break;
            const float x = to_float(rows[int64_t(r) * columns + k]);
#pragma unroll
            for (int g = 0; g < GATES; ++g) sums[r][g] += w[g] * x;
        }
    }
}

// One step. A warp computes one unit for ROWS rows of the batch: it reads the unit's weights once for all of them.
template <typename T>
__global__ void __launch_bounds__(32 * WARPS)
    lstm_step(const T* __restrict__ x, const T* __restrict__ w_ih, const T* __restrict__ w_hh,
              const T* __restrict__ bias, const T* __restrict__ h, const T* __restrict__ c0, float* __restrict__ cells,
              T* __restrict__ y, T* __restrict__ last_h, T* __restrict__ last_c, int batch, int inner, int units) {
    const int unit = blockIdx.x * WARPS + threadIdx.y, row = blockIdx.y * ROWS, count = min(ROWS, batch - row);
    if (unit >= units) return;  // true for all lanes of a warp
    float sums[ROWS][GATES] = {};
    add_products(sums, x + int64_t(row) * inner, count, w_ih, inner, unit, units);
    add_products(sums, h + int64_t(row) * units, count, w_hh, units, unit, units);
    for (int r = 0; r < count; ++r) {
        float z[GATES];
#pragma unroll
        for (int g = 0; g < GATES; ++g) {
            z[g] = 0.0f;
#pragma unroll
            for (int i = 0; i < ROWS; ++i) z[g] = i == r ? sums[i][g] : z[g];
            for (int apart = 16; apart > 0; apart /= 2) z[g] += __shfl_xor_sync(0xffffffffu, z[g], apart);
            z[g] += to_float(bias[g * units + unit]);
        }
        if (threadIdx.x != 0) continue;
        const int64_t at = int64_t(row + r) * units + unit;
        float c = c0 != nullptr ? to_float(c0[at]) : cells[at];
        const T out = from_float<T>(cell(z, c));
        cells[at] = c;
        y[at] = out;
        if (last_h != nullptr) {
            last_h[at] = out;
            last_c[at] = from_float<T>(c);
        }
    }
}

extern "C" int lstm(const void* x, const void* w_ih, const void* w_hh, const void* bias, const void* h0,
                    const void* c0, void* y, void* h, void* c, void* cells, int64_t steps, int64_t batch,
                    int64_t inner, int64_t units, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const auto of = [](const void* data) { return static_cast<const T*>(data); };
        const dim3 grid(unsigned(ceil_div<int64_t>(units, WARPS)), unsigned(ceil_div<int64_t>(batch, ROWS)));
        const dim3 block(32, WARPS);
        T* const to = static_cast<T*>(y);
        for (int64_t t = 0; t < steps; ++t) {
            const bool last = t == steps - 1;
            const T* const before = t == 0 ? of(h0) : to + (t - 1) * batch * units;
            record->set(grid, block);
            lstm_step<T><<<grid, block, 0, stream>>>(of(x) + t * batch * inner, of(w_ih), of(w_hh), of(bias), before,
                                                     t == 0 ? of(c0) : nullptr, static_cast<float*>(cells),
                                                     to + t * batch * units, last ? static_cast<T*>(h) : nullptr,
                                                     last ? static_cast<T*>(c) : nullptr, int(batch), int(inner),
                                                     int(units));
            if (cudaPeekAtLastError() != cudaSuccess) return;
        }
    });
}
