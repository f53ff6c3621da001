// Indices, types, and difficult cases of the syntax of launches.
#include "common.cuh"

namespace inner {
template <typename T, int N>
__global__ void __launch_bounds__(1024) where(T* out) {  // a comment with kernel<<<1, 1>>>(x) in it
    const int64_t block = (int64_t(blockIdx.z) * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    T* mine = out + (block * (blockDim.x * blockDim.y * blockDim.z) + thread) * N;
    const unsigned values[] = {blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z};
    for (int i = 0; i < N; i++) mine[i] = T(values[i]);
}
}  // namespace inner

template <typename T>
__global__ void deduced(T* out, T value) {
    out[threadIdx.x] = value;
}

constexpr int larger(int a, int b) { return a > b ? a : b; }

template <typename T>
constexpr int size_and_alignment = sizeof(T) * 100 + alignof(T);

extern "C" int indices(void* out, int64_t gx, int64_t gy, int64_t gz, int64_t bx, int64_t by, int64_t bz,
                       cudaStream_t stream, LaunchRecord* record) {
    const char* text = "a string with <<< and >>> \" in it";
    if (text[0] != 'a' || '"' == text[1] || 1'000 != 1000) return cudaErrorUnknown;
    dim3 grid(gx, gy, gz), block(bx, by, bz);
    record->set(grid, block);
    inner::where
        <int, larger(6, (3 > 2) ? 1 : 2)>  // several lines, and a comma within the brackets
        <<<grid, /* blocks of */ block,
           0, stream>>>(static_cast<int*>(out));
    return cudaGetLastError();
}

extern "C" int fill(void* out, float value, int threads, cudaStream_t stream, LaunchRecord* record) {
    record->set(1, dim3(threads, 1));
    deduced<<<1, dim3(threads, 1), 0, stream>>>(static_cast<float*>(out), value);
    return cudaGetLastError();
}

extern "C" int types(void* out, cudaStream_t, LaunchRecord*) {
    const int known[] = {
        size_and_alignment<float2>,  size_and_alignment<float3>,  size_and_alignment<float4>,
        size_and_alignment<int4>,    size_and_alignment<uint4>,   size_and_alignment<uchar4>,
        size_and_alignment<ushort2>, size_and_alignment<short4>,  size_and_alignment<double2>,
        size_and_alignment<int2>,    size_and_alignment<__half>,  size_and_alignment<__half2>,
        size_and_alignment<__nv_bfloat162>, size_and_alignment<Pack<__half, 8>>,
    };
    for (int i = 0; i < 14; i++) static_cast<int*>(out)[i] = known[i];
    return cudaSuccess;
}

__device__ int counter;
__constant__ float table[4] = {1, 2, 4, 8};
__global__ void globals(float* out) {
    atomicAdd(&counter, 1);
    out[threadIdx.x] = table[threadIdx.x % 4];
}
extern "C" int global_variables(void* out, cudaStream_t stream, LaunchRecord* record) {
    record->set(1, 8);
    globals<<<1, 8, 0, stream>>>(static_cast<float*>(out));
    return cudaGetLastError();
}
