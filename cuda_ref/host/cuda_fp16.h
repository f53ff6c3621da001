// __half and __half2, with the functions of the CUDA header of the same name.
#pragma once

#include "narrow_float.h"

using __half = cuda_host::Narrow<cuda_host::Half>;
using __half2 = cuda_host::Narrow2<cuda_host::Half>;
using half = __half;
using half2 = __half2;

static inline __half __float2half(float x) { return x; }
static inline __half __float2half_rn(float x) { return x; }
static inline __half __double2half(double x) { return x; }
static inline __half __int2half_rn(int x) { return x; }
static inline float __half2float(__half x) { return x; }
static inline int __half2int_rn(__half x) { return __float2int_rn(x); }
static inline int __half2int_rz(__half x) { return __float2int_rz(x); }
static inline unsigned short __half_as_ushort(__half x) { return x.__x; }
static inline __half __ushort_as_half(unsigned short x) { return __half::from_bits(x); }
static inline short __half_as_short(__half x) { return short(x.__x); }
static inline __half __short_as_half(short x) { return __half::from_bits(uint16_t(x)); }

static inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
static inline __half2 make_half2(__half x, __half y) { return {x, y}; }
static inline __half2 __half2half2(__half x) { return {x, x}; }
static inline __half2 __float2half2_rn(float x) { return {__half(x), __half(x)}; }
static inline __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
static inline __half2 __float22half2_rn(float2 x) { return {__half(x.x), __half(x.y)}; }
static inline float2 __half22float2(__half2 x) { return {float(x.x), float(x.y)}; }
static inline __half __low2half(__half2 x) { return x.x; }
static inline __half __high2half(__half2 x) { return x.y; }
