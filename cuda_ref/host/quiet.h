// Marks the code of these headers, whose basic blocks counted.h must not take for those of a kernel.
#pragma once

#ifdef CUDA_HOST_COUNTED
#define CUDA_HOST_UNCOUNTED __attribute__((no_sanitize_coverage))
#else
#define CUDA_HOST_UNCOUNTED
#endif

// Also not itself checked by checked.h, which calls it.
#define CUDA_HOST_UNCHECKED CUDA_HOST_UNCOUNTED __attribute__((no_sanitize("thread"), noinline))

namespace cuda_host {

// In its scope no basic block is counted.
#ifdef CUDA_HOST_COUNTED
static volatile bool quiet = true;  // volatile, since the calls that read it are inserted late
struct Quiet {
    const bool before = quiet;
    CUDA_HOST_UNCOUNTED Quiet() { quiet = true; }
    CUDA_HOST_UNCOUNTED ~Quiet() { quiet = before; }
};
#else
struct Quiet {
    ~Quiet() {}
};
#endif

}  // namespace cuda_host
