// __syncthreads with and without a predicate, threads that return early, static and dynamic shared memory.
#include "common.cuh"

__global__ void reverse(const float* in, float* out, int n) {
    __shared__ float buffer[1024];
    buffer[threadIdx.x] = in[blockIdx.x * n + threadIdx.x];
    __syncthreads();
    out[blockIdx.x * n + threadIdx.x] = buffer[n - 1 - threadIdx.x];
}
extern "C" int reverse_blocks(const float* in, float* out, int64_t n, int64_t blocks, cudaStream_t stream,
                              LaunchRecord* record) {
    record->set(blocks, n);
    reverse<<<blocks, n, 0, stream>>>(in, out, n);
    return cudaGetLastError();
}

// A tree sum with a barrier in each step. Two variables in one declaration, and dynamic shared memory.
template <typename T>
__global__ void total(const T* in, float* out) {
    extern __shared__ __align__(16) unsigned char raw[];
    __shared__ T first[256], last;
    float* sums = reinterpret_cast<float*>(raw);
    first[threadIdx.x] = in[blockIdx.x * 256 + threadIdx.x];
    if (threadIdx.x == 255) last = first[255];
    sums[threadIdx.x] = to_float(first[threadIdx.x]);
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        out[2 * blockIdx.x] = sums[0];
        out[2 * blockIdx.x + 1] = to_float(last);
    }
}
extern "C" int totals(const void* in, float* out, int64_t blocks, int64_t dtype, cudaStream_t stream,
                      LaunchRecord* record) {
    record->set(blocks, 256, 1024);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        total<T><<<blocks, 256, 256 * sizeof(float), stream>>>(static_cast<const T*>(in), out);
    });
}

__global__ void votes(int* out) {
    const int t = threadIdx.x + threadIdx.y * blockDim.x;
    if (t >= 70) return;
    out[t * 5 + 0] = __syncthreads_count(t % 3 == 0);
    out[t * 5 + 1] = __syncthreads_or(t == 69) != 0;
    out[t * 5 + 2] = __syncthreads_or(t == 70) != 0;
    out[t * 5 + 3] = __syncthreads_and(t < 70) != 0;
    out[t * 5 + 4] = __syncthreads_and(t != 13) != 0;
}
extern "C" int vote(int* out, cudaStream_t stream, LaunchRecord* record) {
    record->set(1, dim3(10, 10));
    votes<<<1, dim3(10, 10), 0, stream>>>(out);
    return cudaGetLastError();
}

// Threads return one after the other, while the others continue to meet at a barrier.
__global__ void countdown(int* out, int n) {
    for (int turn = 0; turn < n; turn++) {
        if (threadIdx.x == turn) return;
        const int here = __syncthreads_count(1);
        if (threadIdx.x == n - 1) out[turn] = here;
    }
}
extern "C" int count_down(int* out, int64_t n, cudaStream_t stream, LaunchRecord* record) {
    record->set(1, n);
    countdown<<<1, n, 0, stream>>>(out, n);
    return cudaGetLastError();
}

// Threads that spin on a write of another one call __nanosleep.
__global__ void spin(int* out) {
    __shared__ int volatile turn;
    if (threadIdx.x == 0) turn = 0;
    __syncthreads();
    while (turn != threadIdx.x) __nanosleep(20);
    out[threadIdx.x] = turn;
    __threadfence_block();
    turn = threadIdx.x + 1;
}
extern "C" int take_turns(int* out, int64_t n, cudaStream_t stream, LaunchRecord* record) {
    record->set(1, n);
    spin<<<1, n, 0, stream>>>(out);
    return cudaGetLastError();
}
