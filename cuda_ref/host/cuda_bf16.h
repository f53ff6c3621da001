// __nv_bfloat16 and __nv_bfloat162, with the functions of the CUDA header of the same name.
#pragma once

#include "narrow_float.h"

using __nv_bfloat16 = cuda_host::Narrow<cuda_host::Bfloat16>;
using __nv_bfloat162 = cuda_host::Narrow2<cuda_host::Bfloat16>;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

static inline __nv_bfloat16 __float2bfloat16(float x) { return x; }
static inline __nv_bfloat16 __float2bfloat16_rn(float x) { return x; }
static inline __nv_bfloat16 __double2bfloat16(double x) { return x; }
static inline __nv_bfloat16 __int2bfloat16_rn(int x) { return x; }
static inline float __bfloat162float(__nv_bfloat16 x) { return x; }
static inline int __bfloat162int_rn(__nv_bfloat16 x) { return __float2int_rn(x); }
static inline int __bfloat162int_rz(__nv_bfloat16 x) { return __float2int_rz(x); }
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.__x; }
static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { return __nv_bfloat16::from_bits(x); }
static inline short __bfloat16_as_short(__nv_bfloat16 x) { return short(x.__x); }
static inline __nv_bfloat16 __short_as_bfloat16(short x) { return __nv_bfloat16::from_bits(uint16_t(x)); }

static inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
static inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
static inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return {x, x}; }
static inline __nv_bfloat162 __float2bfloat162_rn(float x) { return {__nv_bfloat16(x), __nv_bfloat16(x)}; }
static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__nv_bfloat16(x), __nv_bfloat16(y)}; }
static inline __nv_bfloat162 __float22bfloat162_rn(float2 x) { return {__nv_bfloat16(x.x), __nv_bfloat16(x.y)}; }
static inline float2 __bfloat1622float2(__nv_bfloat162 x) { return {float(x.x), float(x.y)}; }
static inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 x) { return x.x; }
static inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 x) { return x.y; }
