// Atomics, loads and stores with cache hints, and operations on bits.
#pragma once

namespace cuda_host {

template <typename T>
struct Same {
    using type = T;
};
template <typename T>
using Exactly = typename Same<T>::type;  // an argument type that is converted to T and not used to deduce T

template <typename To, typename From>
static inline To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From), "");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

}  // namespace cuda_host

// Threads do not run in parallel, so plain reads and writes are atomic.
#define CUDA_HOST_ATOMIC(name, expression, ...)                              \
    template <typename T>                                                     \
    static inline T name(T* address, cuda_host::Exactly<T> value) {           \
        const cuda_host::Atomic atomic{__VA_ARGS__};                          \
        const T old = *address;                                               \
        *address = expression;                                                \
        return old;                                                           \
    }
CUDA_HOST_ATOMIC(atomicAdd, old + value)
CUDA_HOST_ATOMIC(atomicSub, old - value)
CUDA_HOST_ATOMIC(atomicExch, value, true)
CUDA_HOST_ATOMIC(atomicMax, old < value ? value : old)
CUDA_HOST_ATOMIC(atomicMin, value < old ? value : old)
CUDA_HOST_ATOMIC(atomicAnd, old & value)
CUDA_HOST_ATOMIC(atomicOr, old | value)
CUDA_HOST_ATOMIC(atomicXor, old ^ value)
CUDA_HOST_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
CUDA_HOST_ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1)
#undef CUDA_HOST_ATOMIC
template <typename T>
static inline T atomicCAS(T* address, cuda_host::Exactly<T> expected, cuda_host::Exactly<T> value) {
    const cuda_host::Atomic atomic;
    const T old = *address;
    if (old == expected) *address = value;
    return old;
}

// Other processes may share the memory, so this one is atomic.
static inline int atomicCAS_system(int* address, int expected, int value) {
    if (!__atomic_compare_exchange_n(address, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        sched_yield();  // the caller waits for another process
    return expected;
}

#define CUDA_HOST_LOAD(name)                      \
    template <typename T>                          \
    static inline T name(const T* address) {       \
        return *address;                           \
    }
CUDA_HOST_LOAD(__ldg)
CUDA_HOST_LOAD(__ldca)
CUDA_HOST_LOAD(__ldcg)
CUDA_HOST_LOAD(__ldcs)
CUDA_HOST_LOAD(__ldlu)
CUDA_HOST_LOAD(__ldcv)
#undef CUDA_HOST_LOAD

#define CUDA_HOST_STORE(name)                                             \
    template <typename T>                                                  \
    static inline void name(T* address, cuda_host::Exactly<T> value) {     \
        *address = value;                                                  \
    }
CUDA_HOST_STORE(__stwb)
CUDA_HOST_STORE(__stcg)
CUDA_HOST_STORE(__stcs)
CUDA_HOST_STORE(__stwt)
#undef CUDA_HOST_STORE

static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned __brev(unsigned x) {
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(x);
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return unsigned(((uint64_t(high) << 32 | low) << (shift & 31)) >> 32);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return unsigned((uint64_t(high) << 32 | low) >> (shift & 31));
}
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const uint64_t bytes = uint64_t(y) << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned s = selector >> 4 * i & 15, byte = unsigned(bytes >> 8 * (s & 7)) & 255;
        result |= (s & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * i;
    }
    return result;
}
static inline int __mulhi(int x, int y) { return int(int64_t(x) * y >> 32); }
static inline unsigned __umulhi(unsigned x, unsigned y) { return unsigned(uint64_t(x) * y >> 32); }
static inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(x) * y >> 64);
}

static inline int __float_as_int(float x) { return cuda_host::bits_as<int>(x); }
static inline unsigned __float_as_uint(float x) { return cuda_host::bits_as<unsigned>(x); }
static inline float __int_as_float(int x) { return cuda_host::bits_as<float>(x); }
static inline float __uint_as_float(unsigned x) { return cuda_host::bits_as<float>(x); }
static inline long long __double_as_longlong(double x) { return cuda_host::bits_as<long long>(x); }
static inline double __longlong_as_double(long long x) { return cuda_host::bits_as<double>(x); }
static inline size_t __cvta_generic_to_shared(const void* p) {
    return size_t(static_cast<const char*>(p) - cuda_host::dynamic_memory);
}
