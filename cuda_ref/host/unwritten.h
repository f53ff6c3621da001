// Finds results from unwritten shared memory, or from a lane that takes no part in a shuffle. Part of checked.h.
//
// Such memory and such lanes hold a mark, a NaN that sums and products keep. Reading a mark is no error: a tile may be
// read beyond its written part, and a lane may drop what it gets. Storing a mark in global memory, or adding it there,
// is an error.
#pragma once

#include "regions.h"

namespace cuda_host {

constexpr int NEAR_MARK = 4096;  // an integer so close to a mark was counted up from it

// The first read of a mark in the running block.
struct Source {
    unsigned long long serial;  // of the block
    char text[160];
};
static Source source;
// The latest write to global memory, whose value is known at the next access.
struct Store {
    uintptr_t at;
    size_t bytes, index;
    const Memory* memory;
    const void* place;
    int thread;
};
static Store latest, marked;  // marked: the first in the block that wrote a mark

CUDA_HOST_UNCHECKED static bool has_mark(uintptr_t at, size_t bytes, int tolerance) {
    for (size_t i = 0; i + 4 <= bytes; i += 4) {
        uint32_t value;
        memcpy(&value, reinterpret_cast<const void*>(at + i), 4);
        for (int n = 0; n < 2; n++) {
            const int64_t away = int64_t(int32_t(value)) - int32_t(n ? ABSENT : UNWRITTEN);
            if (-tolerance <= away && away <= tolerance) return true;
        }
    }
    return false;
}

CUDA_HOST_UNCHECKED static void settle_store() {
    if (latest.bytes == 0) return;
    if (marked.bytes == 0 && has_mark(latest.at, latest.bytes, NEAR_MARK)) marked = latest;
    latest.bytes = 0;
}

// Fails at the end of a block: a race, which may be the reason, has been found by then.
CUDA_HOST_UNCHECKED static void check_marks() {
    if (marked.bytes == 0) return;
    const Store store = marked;
    block.running = store.thread;
    threadIdx = block.threads[store.thread].index;
    fail(cudaErrorLaunchFailure, "%swrites to index %zu of %s what comes from %s", at_line(store.place), store.index,
         store.memory->name, source.text);
}

CUDA_HOST_UNCHECKED static void note_source(const char* text) {
    if (source.serial == block.serial) return;
    source.serial = block.serial;
    snprintf(source.text, sizeof source.text, "%s", text);
}

// Notes a read of shared memory. written: this block has written these bytes.
CUDA_HOST_UNCHECKED static void note_read(const Memory& m, uintptr_t at, size_t bytes, bool written, const void* place) {
    if (written || !has_mark(at, bytes, 0)) return;
    char text[160], where[80];
    if (in_atomic && !replaces)
        fail(cudaErrorLaunchFailure, "%sadds to byte %zu of %s, which no thread has written", at_line(place),
             size_t(at - m.begin), m.name);
    if (source.serial == block.serial) return;
    describe_place(place, where, sizeof where);
    snprintf(text, sizeof text, "byte %zu of %s, which no thread has written%s%s", size_t(at - m.begin), m.name,
             where[0] ? ", read at " : "", where);
    note_source(text);
}

// A shuffle gave the value of a lane that takes no part in it.
CUDA_HOST_UNCHECKED static void note_absent(unsigned lane, unsigned mask, int line) {
    char text[160];
    snprintf(text, sizeof text, "lane %u, which takes no part in the shuffle with the mask 0x%08x on line %d", lane, mask, line);
    note_source(text);
}

CUDA_HOST_UNCHECKED static void note_store(const Memory& m, uintptr_t at, size_t bytes, const void* place) {
    if (source.serial == block.serial) latest = {at, bytes, size_t(at - m.begin) / bytes, &m, place, block.running};
}

}  // namespace cuda_host
