// Function and variable qualifiers, and the vector types with their sizes and alignments on a GPU.
#pragma once

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ __inline__ __attribute__((always_inline))
#define __noinline__  // empty, because the standard headers write __attribute__((__noinline__))
#define __align__(n) __attribute__((aligned(n)))

#define CUDA_HOST_VECTORS(type, element, align2, align4)                                                       \
    struct type##1 { element x; };                                                                              \
    struct alignas(align2) type##2 { element x, y; };                                                           \
    struct type##3 { element x, y, z; };                                                                        \
    struct alignas(align4) type##4 { element x, y, z, w; };                                                     \
    static inline type##1 make_##type##1(element x) { return {x}; }                                             \
    static inline type##2 make_##type##2(element x, element y) { return {x, y}; }                               \
    static inline type##3 make_##type##3(element x, element y, element z) { return {x, y, z}; }                 \
    static inline type##4 make_##type##4(element x, element y, element z, element w) { return {x, y, z, w}; }

CUDA_HOST_VECTORS(char, signed char, 2, 4)
CUDA_HOST_VECTORS(uchar, unsigned char, 2, 4)
CUDA_HOST_VECTORS(short, short, 4, 8)
CUDA_HOST_VECTORS(ushort, unsigned short, 4, 8)
CUDA_HOST_VECTORS(int, int, 8, 16)
CUDA_HOST_VECTORS(uint, unsigned, 8, 16)
CUDA_HOST_VECTORS(long, long, 16, 16)
CUDA_HOST_VECTORS(ulong, unsigned long, 16, 16)
CUDA_HOST_VECTORS(longlong, long long, 16, 16)
CUDA_HOST_VECTORS(ulonglong, unsigned long long, 16, 16)
CUDA_HOST_VECTORS(float, float, 8, 16)
CUDA_HOST_VECTORS(double, double, 16, 16)
#undef CUDA_HOST_VECTORS

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};
