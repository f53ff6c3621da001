// The function of cuda_ref/matmul/fitted_stage.cuh on a CPU.
#pragma once

#include "hopper/wgmma.cuh"

template <typename T, bool A_MN, bool B_MN, int COUNT>
void multiply_stage(float (&acc)[COUNT], uint64_t a, uint64_t b, int size) {
    for (int k = 0; k < 4; ++k) {
        const uint64_t from_a = a + k * (A_MN ? MN_MAJOR_STEP : K_MAJOR_STEP);
        const uint64_t from_b = b + k * (B_MN ? MN_MAJOR_STEP : K_MAJOR_STEP);
        products().open.push_back([to = static_cast<float*>(acc), from_a, from_b, size] {
            const int row = threadIdx.x % WARPGROUP / 32 * 16 + threadIdx.x % 32 / 4;
            float x[2][16];
            for (int i = 0; i < 32; ++i) x[i / 16][i % 16] = element<T, A_MN>(from_a, row + i / 16 * 8, i % 16);
            add_products<T, B_MN>(to, 8 * (size + 1), x, from_b, 1);
        });
    }
    wgmma_commit_group();
}
