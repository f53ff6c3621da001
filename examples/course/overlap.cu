// Copies to and from the device during arithmetic: several streams, and memory of the host that the system cannot move.
#include "measure.h"

__global__ void compute(float* x, int64_t count, int steps) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float value = x[i];
    for (int step = 0; step < steps; ++step) value = fmaf(value, 0.999f, 0.5f);
    x[i] = value;
}

// Copies to the device, computes and copies back, in `parts` that alternate between `streams`.
void run(float* host, float* device, int64_t count, int parts, cudaStream_t* streams, int used, int steps) {
    const int64_t size = count / parts;
    for (int part = 0; part < parts; ++part) {
        cudaStream_t stream = streams[part % used];
        float *there = device + part * size, *here = host + part * size;
        check(cudaMemcpyAsync(there, here, size * sizeof(float), cudaMemcpyHostToDevice, stream), "copy");
        compute<<<unsigned((size + 255) / 256), 256, 0, stream>>>(there, size, steps);
        check(cudaMemcpyAsync(here, there, size * sizeof(float), cudaMemcpyDeviceToHost, stream), "copy");
    }
    for (int i = 0; i < used; ++i) check(cudaStreamSynchronize(streams[i]), "stream");
}

int main() {
    const bool on_cpu = emulated();
    const int64_t count = on_cpu ? 1 << 12 : 1 << 25;
    const int steps = on_cpu ? 4 : 2000;
    constexpr int STREAMS = 4;
    cudaStream_t streams[STREAMS];
    for (cudaStream_t& each : streams) check(cudaStreamCreate(&each), "cudaStreamCreate");
    float *device = device_floats(count), *pinned, *pageable = static_cast<float*>(calloc(count, sizeof(float)));
    check(cudaMallocHost(&pinned, count * sizeof(float)), "cudaMallocHost");
    memset(pinned, 0, count * sizeof(float));
    printf("%-10s %8s %12s %24s\n", "memory", "streams", "us", "GB/s of both directions");
    for (float* host : {pageable, pinned}) {
        for (const int used : {1, STREAMS}) {
            const double us = microseconds([&] { run(host, device, count, 16, streams, used, steps); }, 3);
            printf("%-10s %8d %12.0f %24.1f\n", host == pinned ? "pinned" : "pageable", used, us,
                   us > 0 ? 8e-3 * count / us : 0.0);
        }
    }
    return 0;
}
