// A whole CUDA program: out[i] = a[i] + b[i], from arrays on the host to a checked result on the host.
//
//     nvcc -o vector_add vector_add.cu && ./vector_add     on a GPU
//     python -m suite emulate examples/vector_add.cu      without one
//
// The steps are those of every CUDA program: allocate, copy to the device, launch, copy back, check, free.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

// Every call of the runtime returns whether it succeeded. A launch returns nothing: cudaGetLastError() says it.
void check(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return;
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    std::exit(1);
}

// Runs on the device, once for each thread: one thread adds one element.
__global__ void add(const float* a, const float* b, float* out, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];  // the last block has more threads than elements
}

int main() {
    const int64_t n = 1000003;  // no multiple of the block size
    const size_t bytes = n * sizeof(float);

    float* a = static_cast<float*>(std::malloc(bytes));
    float* b = static_cast<float*>(std::malloc(bytes));
    float* out = static_cast<float*>(std::malloc(bytes));
    for (int64_t i = 0; i < n; ++i) {
        a[i] = float(i % 1000);
        b[i] = float(i % 7) * 0.5f;
    }

    // Allocate. The host cannot read these pointers.
    float *device_a, *device_b, *device_out;
    check(cudaMalloc(&device_a, bytes), "cudaMalloc");
    check(cudaMalloc(&device_b, bytes), "cudaMalloc");
    check(cudaMalloc(&device_out, bytes), "cudaMalloc");

    // Copy the inputs.
    check(cudaMemcpy(device_a, a, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    check(cudaMemcpy(device_b, b, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");

    // Launch a grid of blocks, with a thread for each element. The call returns before the kernel has run.
    const int block = 256;
    const unsigned grid = unsigned((n + block - 1) / block);
    add<<<grid, block>>>(device_a, device_b, device_out, n);
    check(cudaGetLastError(), "launch");
    check(cudaDeviceSynchronize(), "kernel");

    // Copy back.
    check(cudaMemcpy(out, device_out, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");

    // Check. One rounded sum: the host's float32 sum has the same bits.
    int64_t wrong = 0;
    for (int64_t i = 0; i < n; ++i) wrong += out[i] != a[i] + b[i];
    std::printf("%lld of %lld elements are wrong\n", static_cast<long long>(wrong), static_cast<long long>(n));

    check(cudaFree(device_a), "cudaFree");
    check(cudaFree(device_b), "cudaFree");
    check(cudaFree(device_out), "cudaFree");
    std::free(a);
    std::free(b);
    std::free(out);
    return wrong == 0 ? 0 : 1;
}
