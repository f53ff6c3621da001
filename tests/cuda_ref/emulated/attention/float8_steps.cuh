// The functions of cuda_ref/attention/float8_steps.cuh on a CPU.
#pragma once

#include "common/codes.cuh"
#include "hopper/wgmma.cuh"

template <int COUNT>
void wgmma_float8(float (&acc)[COUNT], const uint32_t* a, uint64_t b, int add) {
    products().open.push_back([to = static_cast<float*>(acc), a, b, add] {
        float x[2][32];
        for (int i = 0; i < 16; ++i) {  // register i % 4 of the i / 4th thread of the quad
            const uint32_t bits = __shfl_sync(0xffffffffu, a[i % 4], (threadIdx.x % 32 & ~3) + i / 4);
            for (int byte = 0; byte < 4; ++byte) {
                x[i % 2][i % 4 / 2 * 16 + i / 4 * 4 + byte] = to_float(Float8{uint8_t(bits >> 8 * byte)});
            }
        }
        add_products<Float8, false>(to, COUNT, x, b, add);
    });
}

inline void wgmma_wait_in_warp() {
    for (Deferred& each : products().groups) run_all(each);
    products().groups.clear();
}

inline uint16_t rounded_float8_pair(float low, float high) { return float8_of(low) | float8_of(high) << 8; }
inline uint32_t joined(uint16_t low, uint16_t high) { return low | uint32_t(high) << 16; }
