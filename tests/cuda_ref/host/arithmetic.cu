// Mathematical functions, bits, atomics, and loads and stores with cache hints.
#include "common.cuh"

__global__ void functions(const float* in, float* out, int n) {
    if (threadIdx.x >= n) return;
    const float x = in[threadIdx.x];
    const float results[30] = {
        expf(x),           exp2f(x),          logf(x),           log2f(x),
        tanhf(x),          sqrtf(x),          rsqrtf(x),         fabsf(x),
        floorf(x),         erff(x),           __expf(x),         __logf(x),
        __frcp_rn(x),      __fdividef(1, x),  __fsqrt_rn(x),     fmaxf(x, NAN),
        fminf(x, INFINITY), max(x, 0.5f),     min(x, 0.5f),      __saturatef(x),
        float(__float2int_rn(x)), float(__float2int_rz(x)), float(__float2uint_rz(x)),
        __int_as_float(__float_as_int(x) ^ 0x80000000),
        isnan(x) ? 1.0f : 0.0f, isinf(x) ? 1.0f : 0.0f,
        fmaf(x, x, -1.0f), __fmaf_rn(x, x, -1.0f), __fmul_rn(x, x), powf(fabsf(x), 1.5f),
    };
    for (int i = 0; i < 30; i++) out[threadIdx.x * 30 + i] = results[i];
}
extern "C" int mathematics(const float* in, float* out, int64_t n, cudaStream_t stream, LaunchRecord* record) {
    record->set(1, 1024);
    functions<<<1, 1024, 0, stream>>>(in, out, n);
    return cudaGetLastError();
}

__global__ void bits(int* out) {
    const int results[14] = {
        __popc(0xf0f0),
        __clz(1),
        __clz(0),
        __ffs(8),
        int(__brev(1) >> 31),
        __popcll(~0ull),
        __clzll(1),
        int(__umulhi(1u << 31, 6)),
        __mulhi(-1, 5),
        int(__byte_perm(0x33221100, 0x77665544, 0x7531)),
        int(__funnelshift_l(0x80000000, 1, 1)),
        min(3, 2) + max(-1, -5),
        int(min(7u, 9u)),
        int(max(int64_t(1) << 40, int64_t(3)) >> 40),
    };
    for (int i = 0; i < 14; i++) out[i] = results[i];
}
extern "C" int bit(int* out, cudaStream_t stream, LaunchRecord* record) {
    record->set(1, 1);
    bits<<<1, 1, 0, stream>>>(out);
    return cudaGetLastError();
}

__global__ void atomics(const float* in, float* f, double* d, int* i, unsigned* u) {
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(f, in[t]);
    atomicAdd(d, double(in[t]));
    atomicAdd(i, t);
    atomicMax(i + 1, (t * 7919) % 1000);
    atomicMin(i + 2, (t * 7919) % 1000);
    atomicOr(u, 1u << t % 20);
    atomicXor(u + 1, unsigned(t));
    atomicInc(u + 2, 99);
    int seen = i[3];  // a maximum by compare and swap
    while (seen < t) {
        const int before = atomicCAS(i + 3, seen, t);
        if (before == seen) break;
        seen = before;
    }
    if (t == 0) i[4] = atomicExch(i + 5, 42);
}
extern "C" int atomic(const float* in, float* f, double* d, int* i, unsigned* u, cudaStream_t stream,
                      LaunchRecord* record) {
    record->set(4, 128);
    atomics<<<4, 128, 0, stream>>>(in, f, d, i, u);
    return cudaGetLastError();
}

template <typename T>
__global__ void hints(const void* from, void* to) {
    const T* in = static_cast<const T*>(from) + threadIdx.x;
    T* out = static_cast<T*>(to) + threadIdx.x * 4;
    __stwb(out, __ldg(in));
    __stcg(out + 1, __ldcg(in));
    __stcs(out + 2, __ldcs(in));
    __stwt(out + 3, __ldlu(in));
}
extern "C" int hint(const void* in, void* out, int64_t bytes, cudaStream_t stream, LaunchRecord* record) {
    record->set(1, 16);
    if (bytes == 4) hints<float><<<1, 16, 0, stream>>>(in, out);
    if (bytes == 8) hints<int2><<<1, 16, 0, stream>>>(in, out);
    if (bytes == 16) hints<float4><<<1, 16, 0, stream>>>(in, out);
    return cudaGetLastError();
}
