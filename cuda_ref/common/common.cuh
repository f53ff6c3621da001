// Shared by all kernels of this folder: dtype codes, float conversions, 16-byte accesses and the launch record.
//
// Conventions of a .cu file
//   extern "C" int <function>(<arguments>, cudaStream_t stream, LaunchRecord* record)
// Arguments are pointers, int64_t, int, float and double. The function fills the record, launches with `<<<>>>`, or
// launch_clusters of launch.cuh, and returns cudaGetLastError(). `build` reads this signature from the text, so it must
// be in one piece, with plain types and names.
//
// nvcc compiles the text for a GPU; the C++ compiler compiles the same text, with the headers in host/, for the CPU.
// The host headers do not provide wgmma, mma, TMA, mbarriers, clusters, or inline PTX outside of
// `#ifdef __CUDA_ARCH__`. A file that uses these, or needs a particular architecture, has a line of this form:
//   // requires: sm_90a
// Building it for the CPU, or for another GPU, then raises NotImplementedError. sm_80 means 8.0 or newer; the suffix
// `a` means exactly that architecture. cp.async from <cuda_pipeline.h> (__pipeline_memcpy_async, __pipeline_commit,
// __pipeline_wait_prior) and nvcuda::wmma from <mma.h> need no such line.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include <type_traits>

enum Dtype { FLOAT32 = 0, FLOAT16 = 1, BFLOAT16 = 2, FLOAT64 = 3 };  // build.DTYPES

// The last launch, for error messages; LaunchRecord in build. `set` must be called before each launch. It also clears
// any earlier error, which cudaGetLastError would otherwise return after the launch.
struct LaunchRecord {
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;  // dynamic

    void set(dim3 grid_dim, dim3 block_dim, size_t dynamic_bytes = 0) {
        grid[0] = grid_dim.x, grid[1] = grid_dim.y, grid[2] = grid_dim.z;
        block[0] = block_dim.x, block[1] = block_dim.y, block[2] = block_dim.z;
        shared_bytes = static_cast<unsigned>(dynamic_bytes);
        cudaGetLastError();
    }
};

// 16-bit and 32-bit types are computed in float. to_float is exact, from_float rounds once, to nearest even.
__host__ __device__ __forceinline__ float to_float(float x) { return x; }
__host__ __device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__host__ __device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
__host__ __device__ __forceinline__ T from_float(float x);
template <>
__host__ __device__ __forceinline__ float from_float<float>(float x) {
    return x;
}
template <>
__host__ __device__ __forceinline__ __half from_float<__half>(float x) {
    return __float2half_rn(x);
}
template <>
__host__ __device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
    return __float2bfloat16_rn(x);
}

// The type in which elements of type T are computed, for kernels that take double too.
template <typename T>
using Working = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename T>
__host__ __device__ __forceinline__ Working<T> to_working(T x) {
    if constexpr (std::is_same_v<T, double>) {
        return x;
    } else {
        return to_float(x);
    }
}
template <typename T>
__host__ __device__ __forceinline__ T from_working(Working<T> x) {
    if constexpr (std::is_same_v<T, double>) {
        return x;
    } else {
        return from_float<T>(x);
    }
}

// N elements that one instruction reads or writes, at most 16 bytes; the address must be a multiple of the size.
template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
    T at[N];
    __host__ __device__ __forceinline__ T& operator[](int i) { return at[i]; }
    __host__ __device__ __forceinline__ const T& operator[](int i) const { return at[i]; }
};

// Applies f to the elements of one or more packs of 16 bytes, which are passed as four registers each.
template <typename T, typename F, typename... Packs>
__device__ __forceinline__ uint4 elementwise(F f, uint4 first, Packs... rest) {
    constexpr int LANES = 16 / sizeof(T);
    const uint4 packs[] = {first, rest...};
    Pack<T, LANES> in[1 + sizeof...(rest)], out;
    memcpy(in, packs, sizeof(packs));
#pragma unroll
    for (int lane = 0; lane < LANES; ++lane) {
        if constexpr (sizeof...(rest) == 0) {
            out[lane] = f(in[0][lane]);
        } else {
            out[lane] = f(in[0][lane], in[1][lane]);
        }
    }
    uint4 result;
    memcpy(&result, &out, sizeof(result));
    return result;
}

// Rounds to 11 significant bits, to nearest, ties away from zero, like cvt.rna.tf32. NaN stays NaN.
__device__ __forceinline__ float round_to_tf32(float x) {
    const unsigned bits = __float_as_uint(x);
    return (bits & 0x7fffffffu) > 0x7f800000u ? x : __uint_as_float((bits + 0x1000u) & 0xffffe000u);
}

template <typename I>
__host__ __device__ constexpr I ceil_div(I a, I b) {
    return (a + b - 1) / b;
}

// Number of multiprocessors of the current device.
inline int multiprocessor_count() {
    int device, count;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
    return count;
}

// Shared memory that the current device gives to a block.
inline size_t most_shared_bytes() {
    int device = 0, bytes = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    return size_t(bytes);
}

inline bool is_aligned(const void* pointer, size_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

// Calls f with a zero of a dtype code's type: by_dtype(dtype, [&](auto x) { using T = decltype(x); ... });
template <typename F>
inline cudaError_t by_dtype(int64_t dtype, F f) {
    switch (dtype) {
        case FLOAT32: f(float{}); break;
        case FLOAT16: f(__half{}); break;
        case BFLOAT16: f(__nv_bfloat16{}); break;
        default: return cudaErrorInvalidValue;
    }
    return cudaGetLastError();
}

// The same for a kernel that takes double too.
template <typename F>
inline cudaError_t by_dtype_or_double(int64_t dtype, F f) {
    if (dtype != FLOAT64) return by_dtype(dtype, f);
    f(double{});
    return cudaGetLastError();
}
