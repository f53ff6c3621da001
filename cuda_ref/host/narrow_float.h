// The 16-bit floating-point types, by one template for both formats. Arithmetic is done in float and rounded again. The
// result is correctly rounded, since float has more than twice the bits. fma uses double and round_to_odd.
#pragma once

#include "cuda_runtime.h"

namespace cuda_host {

struct Half {  // 5 bits of exponent, 10 of fraction
    CUDA_HOST_UNCOUNTED static float widen(uint16_t bits) {
        // Shifts the fields into place; the factor 2^112 corrects the exponent, also of subnormals.
        const unsigned magnitude = bits & 0x7fffu, sign = unsigned(bits & 0x8000u) << 16;
        if (magnitude > 0x7c00u) return bits_as<float>(0x7fffffffu);
        if (magnitude == 0x7c00u) return bits_as<float>(sign | 0x7f800000u);
        return bits_as<float>(sign | bits_as<unsigned>(bits_as<float>(magnitude << 13) * 0x1p112f));
    }
    CUDA_HOST_UNCOUNTED static uint16_t narrow(float x) {
        unsigned bits = bits_as<unsigned>(x);
        const unsigned sign = bits >> 16 & 0x8000u;
        bits &= 0x7fffffffu;
        if (bits > 0x7f800000u) return 0x7fff;
        if (bits >= 0x477ff000u) return uint16_t(sign | 0x7c00u);  // 65520 and above round to infinity
        if (bits < 0x38800000u)  // below 2^-14: adding 0.5 aligns the last bit of the float with that of a subnormal
            return uint16_t(sign | (bits_as<unsigned>(bits_as<float>(bits) + 0.5f) - 0x3f000000u));
        bits += 0xfffu + (bits >> 13 & 1u);  // to nearest, ties to even
        return uint16_t(sign | ((bits - 0x38000000u) >> 13));
    }
};

struct Bfloat16 {  // the upper half of a float
    static float widen(uint16_t bits) { return bits_as<float>(unsigned(bits) << 16); }
    CUDA_HOST_UNCOUNTED static uint16_t narrow(float x) {
        unsigned bits = bits_as<unsigned>(x);
        if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
        bits += 0x7fffu + (bits >> 16 & 1u);
        return uint16_t(bits >> 16);
    }
};

// A float that can be rounded again without a double rounding error: truncated, with the last bit set if inexact.
CUDA_HOST_UNCOUNTED static inline float round_to_odd(double x) {
    float y = float(x);
    if (double(y) == x || !isfinite(x) || !isfinite(y)) return y;
    unsigned bits = bits_as<unsigned>(y);
    if (fabs(double(y)) > fabs(x)) bits--;
    return bits_as<float>(bits | 1u);
}

template <typename Format>
struct Narrow {
    uint16_t __x;

    Narrow() = default;
    Narrow(float x) : __x(Format::narrow(x)) {}
    Narrow(double x) : __x(Format::narrow(round_to_odd(x))) {}
    Narrow(int x) : Narrow(double(x)) {}
    Narrow(unsigned x) : Narrow(double(x)) {}
    Narrow(long x) : Narrow(double(x)) {}
    Narrow(unsigned long x) : Narrow(double(x)) {}
    Narrow(long long x) : Narrow(double(x)) {}
    Narrow(unsigned long long x) : Narrow(double(x)) {}
    operator float() const { return Format::widen(__x); }
    explicit operator bool() const { return (__x & 0x7fff) != 0; }

    Narrow operator-() const { return from_bits(__x ^ 0x8000); }
    Narrow operator+() const { return *this; }
    Narrow& operator+=(Narrow y) { return *this = *this + y; }
    Narrow& operator-=(Narrow y) { return *this = *this - y; }
    Narrow& operator*=(Narrow y) { return *this = *this * y; }
    Narrow& operator/=(Narrow y) { return *this = *this / y; }

    static Narrow from_bits(unsigned bits) {
        Narrow x;
        x.__x = uint16_t(bits);
        return x;
    }

    friend Narrow operator+(Narrow x, Narrow y) { return float(x) + float(y); }
    friend Narrow operator-(Narrow x, Narrow y) { return float(x) - float(y); }
    friend Narrow operator*(Narrow x, Narrow y) { return float(x) * float(y); }
    friend Narrow operator/(Narrow x, Narrow y) { return float(x) / float(y); }
    friend bool operator==(Narrow x, Narrow y) { return float(x) == float(y); }
    friend bool operator!=(Narrow x, Narrow y) { return float(x) != float(y); }
    friend bool operator<(Narrow x, Narrow y) { return float(x) < float(y); }
    friend bool operator>(Narrow x, Narrow y) { return float(x) > float(y); }
    friend bool operator<=(Narrow x, Narrow y) { return float(x) <= float(y); }
    friend bool operator>=(Narrow x, Narrow y) { return float(x) >= float(y); }
};

template <typename Format>
struct alignas(4) Narrow2 {
    Narrow<Format> x, y;
    friend Narrow2 operator+(Narrow2 a, Narrow2 b) { return {a.x + b.x, a.y + b.y}; }
    friend Narrow2 operator-(Narrow2 a, Narrow2 b) { return {a.x - b.x, a.y - b.y}; }
    friend Narrow2 operator*(Narrow2 a, Narrow2 b) { return {a.x * b.x, a.y * b.y}; }
    friend Narrow2 operator/(Narrow2 a, Narrow2 b) { return {a.x / b.x, a.y / b.y}; }
};

}  // namespace cuda_host

// Functions that are overloaded for both formats.
#define CUDA_HOST_N cuda_host::Narrow<F>
#define CUDA_HOST_N2 cuda_host::Narrow2<F>
template <typename F> static inline CUDA_HOST_N __hadd(CUDA_HOST_N x, CUDA_HOST_N y) { return x + y; }
template <typename F> static inline CUDA_HOST_N __hsub(CUDA_HOST_N x, CUDA_HOST_N y) { return x - y; }
template <typename F> static inline CUDA_HOST_N __hmul(CUDA_HOST_N x, CUDA_HOST_N y) { return x * y; }
template <typename F> static inline CUDA_HOST_N __hdiv(CUDA_HOST_N x, CUDA_HOST_N y) { return x / y; }
template <typename F> static inline CUDA_HOST_N __hneg(CUDA_HOST_N x) { return -x; }
template <typename F> static inline CUDA_HOST_N __habs(CUDA_HOST_N x) { return x.from_bits(x.__x & 0x7fff); }
template <typename F> static inline CUDA_HOST_N __hfma(CUDA_HOST_N x, CUDA_HOST_N y, CUDA_HOST_N z) {
    return fma(double(float(x)), double(float(y)), double(float(z)));
}
template <typename F> static inline CUDA_HOST_N __hmax(CUDA_HOST_N x, CUDA_HOST_N y) { return fmaxf(x, y); }
template <typename F> static inline CUDA_HOST_N __hmin(CUDA_HOST_N x, CUDA_HOST_N y) { return fminf(x, y); }
template <typename F> static inline bool __hisnan(CUDA_HOST_N x) { return float(x) != float(x); }
template <typename F> static inline int __hisinf(CUDA_HOST_N x) { return isinf(float(x)) ? (x.__x >> 15 ? -1 : 1) : 0; }
template <typename F> static inline bool __heq(CUDA_HOST_N x, CUDA_HOST_N y) { return x == y; }
template <typename F> static inline bool __hne(CUDA_HOST_N x, CUDA_HOST_N y) { return x < y || x > y; }
template <typename F> static inline bool __hlt(CUDA_HOST_N x, CUDA_HOST_N y) { return x < y; }
template <typename F> static inline bool __hle(CUDA_HOST_N x, CUDA_HOST_N y) { return x <= y; }
template <typename F> static inline bool __hgt(CUDA_HOST_N x, CUDA_HOST_N y) { return x > y; }
template <typename F> static inline bool __hge(CUDA_HOST_N x, CUDA_HOST_N y) { return x >= y; }
template <typename F> static inline CUDA_HOST_N2 __hadd2(CUDA_HOST_N2 x, CUDA_HOST_N2 y) { return x + y; }
template <typename F> static inline CUDA_HOST_N2 __hsub2(CUDA_HOST_N2 x, CUDA_HOST_N2 y) { return x - y; }
template <typename F> static inline CUDA_HOST_N2 __hmul2(CUDA_HOST_N2 x, CUDA_HOST_N2 y) { return x * y; }
template <typename F> static inline CUDA_HOST_N2 __h2div(CUDA_HOST_N2 x, CUDA_HOST_N2 y) { return x / y; }
template <typename F> static inline CUDA_HOST_N2 __hneg2(CUDA_HOST_N2 x) { return {-x.x, -x.y}; }
template <typename F> static inline CUDA_HOST_N2 __hfma2(CUDA_HOST_N2 x, CUDA_HOST_N2 y, CUDA_HOST_N2 z) {
    return {__hfma(x.x, y.x, z.x), __hfma(x.y, y.y, z.y)};
}
template <typename F> static inline CUDA_HOST_N2 __hmax2(CUDA_HOST_N2 x, CUDA_HOST_N2 y) {
    return {__hmax(x.x, y.x), __hmax(x.y, y.y)};
}
template <typename F> static inline CUDA_HOST_N2 __hmin2(CUDA_HOST_N2 x, CUDA_HOST_N2 y) {
    return {__hmin(x.x, y.x), __hmin(x.y, y.y)};
}
template <typename F> static inline unsigned __hgt2_mask(CUDA_HOST_N2 x, CUDA_HOST_N2 y) {
    return (x.x > y.x ? 0xffffu : 0u) | (x.y > y.y ? 0xffff0000u : 0u);
}
template <typename F> static inline float __low2float(CUDA_HOST_N2 x) { return x.x; }
template <typename F> static inline float __high2float(CUDA_HOST_N2 x) { return x.y; }
template <typename F> static inline CUDA_HOST_N hexp(CUDA_HOST_N x) { return exp(double(float(x))); }
template <typename F> static inline CUDA_HOST_N hexp2(CUDA_HOST_N x) { return exp2(double(float(x))); }
template <typename F> static inline CUDA_HOST_N hlog(CUDA_HOST_N x) { return log(double(float(x))); }
template <typename F> static inline CUDA_HOST_N hsqrt(CUDA_HOST_N x) { return sqrt(double(float(x))); }
template <typename F> static inline CUDA_HOST_N hrsqrt(CUDA_HOST_N x) { return 1.0 / sqrt(double(float(x))); }
template <typename F> static inline CUDA_HOST_N hrcp(CUDA_HOST_N x) { return 1.0f / float(x); }
#undef CUDA_HOST_N
#undef CUDA_HOST_N2
