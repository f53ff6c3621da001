// The parts that the programs of this folder share: error checks, a clock, the device's name.
#pragma once

#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <initializer_list>

inline void check(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

// Prints the device's name. True if it is emulated on a CPU.
inline bool emulated() {
    cudaDeviceProp device;
    check(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
    const bool on_cpu = strcmp(device.name, "CPU") == 0;
    printf("%s%s\n", device.name, on_cpu ? ", emulated: results are right, times mean nothing" : "");
    return on_cpu;
}

// Time of one call in microseconds: the mean of `calls`, after one that is not counted.
template <typename F>
double microseconds(F call, int calls = 20) {
    cudaEvent_t begin, end;
    check(cudaEventCreate(&begin), "cudaEventCreate");
    check(cudaEventCreate(&end), "cudaEventCreate");
    call();
    check(cudaGetLastError(), "launch");
    check(cudaEventRecord(begin), "cudaEventRecord");
    for (int i = 0; i < calls; ++i) call();
    check(cudaEventRecord(end), "cudaEventRecord");
    check(cudaEventSynchronize(end), "kernel");
    float ms = 0.0f;
    check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return 1000.0 * ms / calls;
}

inline float* device_floats(int64_t count) {
    float* found;
    check(cudaMalloc(&found, count * sizeof(float)), "cudaMalloc");
    check(cudaMemset(found, 0, count * sizeof(float)), "cudaMemset");
    return found;
}
