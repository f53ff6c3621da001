// Asynchronous copies to shared memory (cp.async on a GPU), with the functions of the CUDA header of the same name.
//
// A copy is done when it is waited for; until then its target is NaN. This detects missing waits, and copies to memory
// that is still being read.
#pragma once

#include "cuda_runtime.h"

namespace cuda_host {

constexpr int MAX_COPIES = 256;  // most copies of one thread in flight

struct Copy {
    void* to;
    const void* from;
    size_t bytes, zeros;  // the last `zeros` bytes are not read but set to 0
    unsigned group;
};
struct Pipeline {
    unsigned long long serial;  // number of the block to which the other members belong
    int count;
    unsigned groups;  // committed groups
    Copy copies[MAX_COPIES];
};
static Pipeline pipelines[MAX_THREADS];

CUDA_HOST_UNCOUNTED static inline Pipeline& pipeline() {
    Pipeline& mine = pipelines[block.running];
    if (mine.serial != block.serial) mine.serial = block.serial, mine.count = 0, mine.groups = 0;
    return mine;
}

}  // namespace cuda_host

CUDA_HOST_UNCOUNTED static inline void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t zeros = 0) {
    using namespace cuda_host;
    if ((bytes != 4 && bytes != 8 && bytes != 16) || zeros > bytes)
        fail(cudaErrorInvalidValue, "a copy of 4, 8 or 16 bytes, not of %zu with %zu zeros", bytes, zeros);
    if (reinterpret_cast<uintptr_t>(to) % bytes || reinterpret_cast<uintptr_t>(from) % bytes)
        fail(cudaErrorMisalignedAddress, "copy from %p to %p, which must be multiples of %zu", from, to, bytes);
    Pipeline& mine = pipeline();
    if (mine.count == MAX_COPIES) fail(cudaErrorNotSupported, "more than %d copies under way in a thread", MAX_COPIES);
    check_copy(to, from, bytes, bytes - zeros, __builtin_return_address(0));
    memset(to, 0xff, bytes);
    mine.copies[mine.count++] = {to, from, bytes, zeros, mine.groups};
}

static inline void __pipeline_commit() { cuda_host::pipeline().groups++; }

// Waits for all groups but the last `prior`.
CUDA_HOST_UNCOUNTED static inline void __pipeline_wait_prior(size_t prior) {
    using namespace cuda_host;
    Pipeline& mine = pipeline();
    int left = 0;
    for (int i = 0; i < mine.count; i++) {
        const Copy& copy = mine.copies[i];
        if (copy.group + prior >= mine.groups) {
            mine.copies[left++] = copy;
            continue;
        }
        memcpy(copy.to, copy.from, copy.bytes - copy.zeros);
        memset(static_cast<char*>(copy.to) + copy.bytes - copy.zeros, 0, copy.zeros);
    }
    mine.count = left;
}
