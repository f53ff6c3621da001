// A branch in which the lanes of a warp part costs both sides; a branch between warps costs one.
#include "measure.h"

// Two long computations; `odd` chooses one of them.
__device__ float compute(bool odd, float x, int steps) {
    if (odd) {
        for (int i = 0; i < steps; ++i) x = fmaf(x, 1.0001f, 0.5f);
    } else {
        for (int i = 0; i < steps; ++i) x = fmaf(x, 0.9999f, 0.25f);
    }
    return x;
}

// width: neighbouring threads with the same side. 32 is a warp.
__global__ void branch(float* out, int width, int steps) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = compute(i / width % 2 == 1, out[i], steps);
}

int main() {
    const bool on_cpu = emulated();
    const int count = on_cpu ? 1 << 10 : 1 << 22, steps = on_cpu ? 4 : 1000;
    float* out = device_floats(count);
    printf("%-36s %12s\n", "threads in a row with the same side", "us");
    for (int width = 1; width <= 64; width *= 2) {
        const double us = microseconds([&] { branch<<<count / 256, 256>>>(out, width, steps); });
        printf("%-36d %12.1f\n", width, us);
    }
    return 0;
}
