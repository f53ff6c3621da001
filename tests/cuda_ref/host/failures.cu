// Wrong kernels, with one error each.
#include "common.cuh"

__global__ void poison(float* out) {
    __shared__ float fixed[64];
    __shared__ __half fixed_half[64];
    extern __shared__ float dynamic[];
    const int t = threadIdx.x;
    if (blockIdx.x == 0) {
        fixed[t] = dynamic[t] = 1.0f;
        fixed_half[t] = __float2half_rn(1.0f);
    }
    __syncthreads();
    out[(blockIdx.x * 64 + t) * 3] = fixed[t];
    out[(blockIdx.x * 64 + t) * 3 + 1] = dynamic[t];
    out[(blockIdx.x * 64 + t) * 3 + 2] = to_float(fixed_half[t]);
}
extern "C" int poisoned(float* out, cudaStream_t stream, LaunchRecord* record) {
    record->set(2, 64, 256);
    poison<<<2, 64, 256, stream>>>(out);
    return cudaGetLastError();
}

__global__ void no_barrier(float* out, int backwards) {
    __shared__ float x[64];
    x[threadIdx.x] = threadIdx.x;
    const int other = backwards ? 63 - threadIdx.x : (threadIdx.x + 1) % 64;
    out[blockIdx.x * 64 + threadIdx.x] = x[other];
}
extern "C" int without_barrier(float* out, int64_t backwards, cudaStream_t stream, LaunchRecord* record) {
    record->set(2, 64);
    no_barrier<<<2, 64, 0, stream>>>(out, backwards);
    return cudaGetLastError();
}

__global__ void stuck(int how, int* out) {
    const int t = threadIdx.x;
    if (how == 0) {
        if (t < 32)
            __syncthreads();
        else
            __syncthreads();  // another one
    } else if (how == 1) {
        if (t < 5)
            __syncwarp();
        else
            __syncthreads();
    } else if (how == 2) {
        if (t != 3)
            out[t] = __shfl_sync(0xffffffffu, t, 0);
        else
            __syncthreads();
    } else if (how == 3) {
        out[t] = __shfl_sync(0x0000fff0u, t, 4);  // all lanes call, with a mask that does not name them all
    } else if (how == 4) {
        if (t == 40) __trap();
        __syncthreads();
    }
    if (t == 0) out[0] = 77;
}
extern "C" int get_stuck(int64_t how, int* out, cudaStream_t stream, LaunchRecord* record) {
    record->set(2, 64);
    stuck<<<2, 64, 0, stream>>>(how, out);
    return cudaGetLastError();
}

__global__ void wide(const void* in, float* out) {
    const float4 v = static_cast<const float4*>(in)[threadIdx.x];
    out[threadIdx.x] = v.x + v.y + v.z + v.w;
}
__global__ void wide_pack(const void* in, float* out) {
    const Pack<__half, 8> v = static_cast<const Pack<__half, 8>*>(in)[threadIdx.x];
    out[threadIdx.x] = to_float(v[0]);
}
__global__ void wide_hint(const void* in, float* out) {
    const uint4 v = __ldcs(static_cast<const uint4*>(in) + threadIdx.x);
    __stcs(reinterpret_cast<uint4*>(out) + threadIdx.x, v);
}
extern "C" int aligned(const void* in, float* out, int64_t offset, int64_t how, cudaStream_t stream,
                       LaunchRecord* record) {
    const void* from = static_cast<const char*>(in) + offset;
    record->set(1, 2);
    if (how == 0) wide<<<1, 2, 0, stream>>>(from, out);
    if (how == 1) wide_pack<<<1, 2, 0, stream>>>(from, out);
    if (how == 2) wide_hint<<<1, 2, 0, stream>>>(from, out);
    return cudaGetLastError();
}

// A good launch after an error of somebody else, which nobody has asked for.
extern "C" int good_after_bad(float* out, cudaStream_t stream, LaunchRecord* record) {
    no_barrier<<<2, 4096, 0, stream>>>(out, 0);  // more threads than a block may have
    record->set(2, 64);
    no_barrier<<<2, 64, 0, stream>>>(out, 0);
    return cudaGetLastError();
}
