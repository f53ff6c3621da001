// The functions of checked.h without effect.
#pragma once

namespace cuda_host {

struct Atomic {
    ~Atomic() {}
};
static inline void settle() {}
static inline void note_return(int) {}
static inline void check_barrier() {}
static inline void check_copy(void*, const void*, size_t, size_t, const void*) {}
static inline void fill_shared(void* begin, size_t bytes) { memset(begin, 0xff, bytes); }
static inline void note_variable(void*, size_t, const char*) {}
static void allow(const void*, size_t, const char*) {}
static void forget(const void*) {}
static bool is_allowed(const void*, size_t) { return true; }
static inline int allow_parameter(const void*, size_t) { return 0; }
static inline void forget_parameters(int) {}

}  // namespace cuda_host
