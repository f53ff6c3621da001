// The functions of cuda_ref/attention/wgmma_steps.cuh on a CPU.
#pragma once

#include "hopper/wgmma.cuh"

template <typename T, bool B_MN, int COUNT>
void wgmma(float (&acc)[COUNT], uint64_t a, uint64_t b, int add) {
    products().open.push_back([to = static_cast<float*>(acc), a, b, add] {
        const int row = threadIdx.x % WARPGROUP / 32 * 16 + threadIdx.x % 32 / 4;
        float x[2][16];
        for (int i = 0; i < 32; ++i) x[i / 16][i % 16] = element<T, false>(a, row + i / 16 * 8, i % 16);
        add_products<T, B_MN>(to, COUNT, x, b, add);
    });
}
template <typename T, bool B_MN, int COUNT>
void wgmma(float (&acc)[COUNT], const uint32_t* a, uint64_t b, int add) {
    products().open.push_back([to = static_cast<float*>(acc), a, b, add] {
        float x[2][16];
        for (int i = 0; i < 16; ++i) {  // pair i % 4 of the i / 4th thread of the quad
            const uint32_t bits = __shfl_sync(0xffffffffu, a[i % 4], (threadIdx.x % 32 & ~3) + i / 4);
            T pair[2];
            memcpy(pair, &bits, sizeof pair);
            for (int half = 0; half < 2; ++half) x[i % 2][i % 4 / 2 * 8 + i / 4 * 2 + half] = to_float(pair[half]);
        }
        add_products<T, B_MN>(to, COUNT, x, b, add);
    });
}
