// Prints the limits of each GPU, and the launches that follow from them.
//
//     nvcc -arch=native -o device_query device_query.cu && ./device_query     on a GPU
//     python -m suite emulate examples/device_query.cu                         without one: the emulation's limits
//
// A program asks for limits instead of assuming those of one card. `python -m suite doctor` adds measured rates.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

void check(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return;
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    std::exit(1);
}

// Values that cudaDeviceProp has under other names, or in no version of CUDA alike, are attributes.
int attribute(cudaDeviceAttr which, int device) {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
    return value;
}

void print(int device) {
    cudaDeviceProp gpu;
    check(cudaGetDeviceProperties(&gpu, device), "cudaGetDeviceProperties");
    const int blocks = attribute(cudaDevAttrMaxBlocksPerMultiprocessor, device);
    std::printf("%d: %s, compute capability %d.%d\n", device, gpu.name, gpu.major, gpu.minor);
    std::printf("  memory                            %8.1f GiB\n", gpu.totalGlobalMem / double(1 << 30));
    std::printf("  L2 cache                          %8.1f MiB\n", gpu.l2CacheSize / double(1 << 20));
    std::printf("  multiprocessors                   %8d\n", gpu.multiProcessorCount);
    std::printf("of a multiprocessor\n");
    std::printf("  threads                           %8d\n", gpu.maxThreadsPerMultiProcessor);
    std::printf("  blocks                            %8d\n", blocks);
    std::printf("  registers of 32 bits              %8d\n", gpu.regsPerMultiprocessor);
    std::printf("  shared memory                     %8.0f KiB\n", gpu.sharedMemPerMultiprocessor / 1024.0);
    std::printf("of a block\n");
    std::printf("  threads                           %8d\n", gpu.maxThreadsPerBlock);
    std::printf("  threads along x, y, z             %8d %d %d\n", gpu.maxThreadsDim[0], gpu.maxThreadsDim[1],
                gpu.maxThreadsDim[2]);
    std::printf("  shared memory, unless asked for   %8.0f KiB\n", gpu.sharedMemPerBlock / 1024.0);
    std::printf("  shared memory, if asked for       %8.0f KiB\n", gpu.sharedMemPerBlockOptin / 1024.0);
    std::printf("of a grid\n");
    std::printf("  blocks along x, y, z              %8d %d %d\n", gpu.maxGridSize[0], gpu.maxGridSize[1],
                gpu.maxGridSize[2]);
    std::printf("that follow\n");
    std::printf("  threads that run at a time        %8d\n", gpu.multiProcessorCount * gpu.maxThreadsPerMultiProcessor);
    std::printf("  registers of a thread, if all run %8d\n",
                gpu.regsPerMultiprocessor / gpu.maxThreadsPerMultiProcessor);
    std::printf("  blocks of 256 threads at a time   %8d\n",
                gpu.multiProcessorCount * (gpu.maxThreadsPerMultiProcessor / 256));
}

int main() {
    int count = 0;
    check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
#ifndef __CUDACC__
    std::printf("emulated: limits of Hopper, but for its few multiprocessors and its memory\n");
#endif
    for (int device = 0; device < count; ++device) print(device);
}
