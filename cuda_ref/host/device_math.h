// Mathematical functions of CUDA beyond <math.h>. Approximate intrinsics are exact here, except that __fdividef is zero
// for denominators above 2^126, as on a GPU.
#pragma once

// glibc declares some of these names itself.
#define __expf(x) expf(x)
#define __exp10f(x) cuda_host::exp10_of(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __tanhf(x) tanhf(x)
#define __powf(x, y) powf(x, y)
#define exp10f(x) cuda_host::exp10_of(x)

namespace cuda_host {
static inline float exp10_of(float x) { return float(pow(10.0, double(x))); }
}  // namespace cuda_host

static inline float rsqrtf(float x) { return float(1.0 / sqrt(double(x))); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float fdividef(float x, float y) { return x / y; }
CUDA_HOST_UNCOUNTED static inline float __fdividef(float x, float y) {
    const float size = fabsf(y);
    return size > 0x1p126f && size < 0x1p128 ? x * copysignf(0.0f, y) : x / y;
}
static inline float __fadd_rn(float x, float y) { return x + y; }
static inline float __fsub_rn(float x, float y) { return x - y; }
static inline float __fmul_rn(float x, float y) { return x * y; }
static inline float __fdiv_rn(float x, float y) { return x / y; }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __frsqrt_rn(float x) { return rsqrtf(x); }
static inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
static inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }
CUDA_HOST_UNCOUNTED static inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

// Conversions saturate, and NaN becomes 0, as on a GPU.
namespace cuda_host {
template <typename I>
CUDA_HOST_UNCOUNTED static inline I to_integer(double x, double below, double above) {
    if (!(x == x)) return 0;
    return x <= below ? I(below) : x >= above ? I(I(above - 1.0)) : I(x);
}
static inline int to_int(double x) { return to_integer<int>(x, -0x1p31, 0x1p31); }
static inline unsigned to_uint(double x) { return to_integer<unsigned>(x, 0.0, 0x1p32); }
}  // namespace cuda_host
static inline int __float2int_rn(float x) { return cuda_host::to_int(rint(x)); }
static inline int __float2int_rz(float x) { return cuda_host::to_int(trunc(x)); }
static inline int __float2int_rd(float x) { return cuda_host::to_int(floor(x)); }
static inline int __float2int_ru(float x) { return cuda_host::to_int(ceil(x)); }
static inline unsigned __float2uint_rn(float x) { return cuda_host::to_uint(rint(x)); }
static inline unsigned __float2uint_rz(float x) { return cuda_host::to_uint(trunc(x)); }
static inline float __int2float_rn(int x) { return float(x); }
static inline float __uint2float_rn(unsigned x) { return float(x); }
static inline float __double2float_rn(double x) { return float(x); }

#define CUDA_HOST_MIN_MAX(result, a, b)              \
    static inline result min(a x, b y) {              \
        const result p = x, q = y;                    \
        return p < q ? p : q;                         \
    }                                                 \
    static inline result max(a x, b y) {              \
        const result p = x, q = y;                    \
        return p > q ? p : q;                         \
    }
CUDA_HOST_MIN_MAX(int, int, int)
CUDA_HOST_MIN_MAX(unsigned, unsigned, unsigned)
CUDA_HOST_MIN_MAX(unsigned, int, unsigned)
CUDA_HOST_MIN_MAX(unsigned, unsigned, int)
CUDA_HOST_MIN_MAX(long, long, long)
CUDA_HOST_MIN_MAX(unsigned long, unsigned long, unsigned long)
CUDA_HOST_MIN_MAX(unsigned long, long, unsigned long)
CUDA_HOST_MIN_MAX(unsigned long, unsigned long, long)
CUDA_HOST_MIN_MAX(long long, long long, long long)
CUDA_HOST_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
CUDA_HOST_MIN_MAX(unsigned long long, long long, unsigned long long)
CUDA_HOST_MIN_MAX(unsigned long long, unsigned long long, long long)
#undef CUDA_HOST_MIN_MAX
static inline float min(float x, float y) { return fminf(x, y); }
static inline float max(float x, float y) { return fmaxf(x, y); }
static inline double min(double x, double y) { return fmin(x, y); }
static inline double max(double x, double y) { return fmax(x, y); }
static inline double min(float x, double y) { return fmin(x, y); }
static inline double max(float x, double y) { return fmax(x, y); }
static inline double min(double x, float y) { return fmin(x, y); }
static inline double max(double x, float y) { return fmax(x, y); }
