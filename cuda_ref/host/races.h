// Finds races: accesses of two threads to the same memory, at least one of them a write, that nothing orders. Part of
// checked.h.
//
// Within a block, barriers order accesses; within a warp, warp operations too. Blocks of a launch are not ordered, except
// that a thread which has passed an atomic operation, or a volatile access to global memory, may use what other blocks
// have written before a __threadfence. Two atomic operations are no race.
#pragma once

#include "places.h"

namespace cuda_host {

struct Access {
    const void* place;
    uint32_t epoch, warp_epoch;
    uint16_t thread;
    bool made, atomic;
};
// The latest accesses to a granule of memory.
struct Shadow {
    Access write, reads[2];  // of the reads, one by each of two threads
};
// Memory that threads share: an operand, an allocation, a variable of shared memory. Parameters have no name.
struct Memory {
    uintptr_t begin;
    size_t bytes;
    char name[48];
    bool global, freed;
    uint32_t granule;  // bytes
    Shadow* shadow;
    Origin origin;
    unsigned char* written;  // a bit for each byte of the device's memory; null for other memory
};

static bool in_atomic = false, atomic_counted = false, replaces = false;  // replaces: it does not use the old value
struct Atomic {
    const Quiet quiet;
    CUDA_HOST_UNCOUNTED Atomic(bool replacing = false) {
        in_atomic = block.acquired = true, atomic_counted = false, replaces = replacing;
    }
    CUDA_HOST_UNCOUNTED ~Atomic() {
        asm volatile("" ::: "memory");  // later reads read again
        in_atomic = replaces = false;
    }
};

// A possible race of the running thread with an earlier access.
struct Race {
    const Memory* memory;
    size_t offset, bytes;  // of the granule in the memory, and of the access
    Access earlier, now;
    bool earlier_write, now_write;
};
// A write is a race only if it changes the value, which is known at the next access.
struct Pending {
    uintptr_t at;
    size_t bytes;
    char before[64];
    Race race;
};
static Pending pending;


[[noreturn]] CUDA_HOST_UNCHECKED static void fail_race(const Race& race) {
    char other[48], where[160], what[80];
    describe_thread(race.earlier.thread, other, sizeof other);
    describe_place(race.earlier.place, where, sizeof where);
    block.running = race.now.thread;
    threadIdx = block.threads[race.now.thread].index;
    const Memory& m = *race.memory;
    snprintf(what, sizeof what, m.global ? "index %zu of %s" : "byte %zu of %s", race.offset / (m.global ? race.bytes : 1),
             m.name);
    const bool same_block = race.earlier.epoch >= block.block_epoch;
    const bool same_warp = race.earlier.thread / WARP == race.now.thread / WARP;
    fail(cudaErrorLaunchFailure, "%srace: %s %s, which %s%s %s%s%s, %s", at_line(race.now.place),
         race.now_write ? "writes" : "reads", what, other, same_block ? "" : " of another block",
         race.earlier_write ? "has written" : "has read", where[0] ? " at " : "", where,
         !same_block ? "and blocks have no order" : same_warp ? "with no __syncthreads or __syncwarp between the two"
                                                              : "with no __syncthreads between the two");
}

CUDA_HOST_UNCHECKED static void settle_race() {
    if (pending.bytes == 0) return;
    const size_t bytes = pending.bytes;
    pending.bytes = 0;
    if (memcmp(reinterpret_cast<const void*>(pending.at), pending.before, bytes) != 0) fail_race(pending.race);
}

CUDA_HOST_UNCHECKED static bool unordered(const Access& earlier, bool global, bool atomic) {
    const int self = block.running;
    if (!earlier.made || earlier.epoch < block.launch_epoch || (earlier.atomic && atomic)) return false;
    if (earlier.epoch < block.block_epoch) return global && !(block.fenced && block.acquired);
    if (earlier.epoch != block.epoch || earlier.thread == self) return false;
    return earlier.thread / WARP != self / WARP || earlier.warp_epoch == block.warp_epoch[self / WARP];
}

// True if a thread of the running block has written the word at this address.
CUDA_HOST_UNCHECKED static bool has_written(const Memory& m, uintptr_t at) {
    if (m.shadow == nullptr) return false;
    const Access& write = m.shadow[(at - m.begin) / m.granule].write;
    return write.made && write.epoch >= block.block_epoch;
}

// Gives memory a shadow with a granule that divides all accesses. Most are of words.
CUDA_HOST_UNCHECKED static bool shade(Memory& m, size_t offset, size_t bytes) {
    const uint32_t granule = (offset | bytes) % 4 == 0 ? 4 : (offset | bytes) % 2 == 0 ? 2 : 1;
    if (m.shadow && m.granule <= granule) return true;
    if (m.bytes > size_t(1) << 31) return false;  // its shadow would be larger still: no search for races
    const uint32_t before = m.shadow ? m.granule : granule;
    auto* const shadow = static_cast<Shadow*>(calloc(m.bytes / granule + 1, sizeof(Shadow)));
    if (shadow == nullptr) return false;
    for (size_t i = 0; m.shadow && i < m.bytes / granule; i++) shadow[i] = m.shadow[i * granule / before];
    free(m.shadow);
    m.shadow = shadow;
    m.granule = granule;
    return true;
}

CUDA_HOST_UNCHECKED static void unshade(Memory& m) {
    free(m.shadow);
    m.shadow = nullptr;
}

// Notes an access to memory that threads share, and fails if it is a race.
CUDA_HOST_UNCHECKED static void note_shared(Memory& m, uintptr_t at, size_t bytes, bool write, bool atomic,
                                            const void* place) {
    const int self = block.running;
    const Access mine = {place, block.epoch, block.warp_epoch[self / WARP], uint16_t(self), true, atomic};
    if (!shade(m, at - m.begin, bytes)) return;
    for (size_t i = (at - m.begin) / m.granule; i * m.granule < at - m.begin + bytes; i++) {
        Shadow& s = m.shadow[i];
        const Access* earlier = unordered(s.write, m.global, atomic) ? &s.write : nullptr;
        if (write && earlier == nullptr)
            for (const Access& read : s.reads)
                if (unordered(read, m.global, atomic)) earlier = &read;
        if (earlier) {
            const Race race = {&m, i * m.granule, bytes, *earlier, mine, earlier == &s.write, write};
            if (!write) fail_race(race);
            if (pending.bytes == 0) {
                pending.at = at;
                pending.bytes = bytes < sizeof pending.before ? bytes : sizeof pending.before;
                memcpy(pending.before, reinterpret_cast<const void*>(at), pending.bytes);
                pending.race = race;
            }
        }
        if (write) {
            s.write = mine;
        } else {
            if (s.reads[0].thread != self || s.reads[0].epoch != block.epoch) s.reads[1] = s.reads[0];
            s.reads[0] = mine;
        }
    }
}

}  // namespace cuda_host
