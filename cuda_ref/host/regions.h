// Memory that kernels may use, besides their shared memory and their stack: operands, allocations, variables,
// parameters. Part of checked.h.
//
// Memory of cudaMalloc lies apart from that of the host, at addresses that are not used again. Each of its bytes has a bit
// that says whether it was written. The host may not touch it.
#pragma once

#include "races.h"

namespace cuda_host {

constexpr int MAX_REGIONS = 4096, MAX_SHARED = 64, KEPT_FREED = 256;
constexpr uintptr_t FIRST_ADDRESS = uintptr_t(1) << 45;
constexpr size_t BETWEEN = 2 << 20;  // unused bytes between two allocations

static Memory regions[MAX_REGIONS];
static bool too_many_regions = false;  // bounds of global memory are not checked then
static int region_count = 0, operand_count = 0, last_region = 0;  // the operands come first
static uintptr_t device_begin = 0, device_end = 0;  // of all allocations of the device
static Memory noted[MAX_SHARED];                    // variables of constant and global memory
static int noted_count = 0;

struct Noted {
    template <typename T>
    CUDA_HOST_UNCHECKED Noted(T& variable, const char* name, bool constant) {
        if (noted_count == MAX_SHARED) return;
        Memory& m = noted[noted_count++];
        m = {reinterpret_cast<uintptr_t>(&variable), sizeof variable, "", !constant, false};
        m.origin = SYMBOL;
        snprintf(m.name, sizeof m.name, "%s", name);
    }
};

CUDA_HOST_UNCHECKED static void forget_values(Memory& m) {
    unshade(m);
    free(m.written);
    m.written = nullptr;
}

CUDA_HOST_UNCHECKED static void allow(const void* begin, size_t bytes, const char* name, Origin origin = OPERAND) {
    if (begin == nullptr) return;
    const uintptr_t from = reinterpret_cast<uintptr_t>(begin);
    int at = region_count;
    for (int i = operand_count; i < region_count; i++)
        if (regions[i].begin == from || (at == region_count && at > KEPT_FREED && regions[i].freed)) at = i;
    if (at == MAX_REGIONS) {
        too_many_regions = true;
        return;
    }
    Memory& m = regions[at];
    forget_values(m);
    m = {from, bytes, "", true, false};
    m.origin = origin;
    snprintf(m.name, sizeof m.name, "%s", name);
    if (at == region_count) region_count++;
    if (origin != DEVICE) return;
    m.written = static_cast<unsigned char*>(calloc(bytes / 8 + 1, 1));
    if (device_begin == 0 || from < device_begin) device_begin = from;
    if (from + bytes > device_end) device_end = from + bytes;
}

static size_t pages(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

CUDA_HOST_UNCHECKED static void* allocate(size_t bytes, Origin origin) {
    if (bytes == 0) return nullptr;
    void* found = nullptr;
    if (origin == DEVICE) {
        static uintptr_t next = FIRST_ADDRESS;
        found = mmap(reinterpret_cast<void*>(next), pages(bytes), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        next += (pages(bytes) + BETWEEN) / BETWEEN * BETWEEN + BETWEEN;
        if (found == MAP_FAILED) return nullptr;
    } else {
        found = aligned_alloc(256, (bytes + 255) / 256 * 256);
    }
    allow(found, bytes, "an allocation", origin);
    return found;
}

CUDA_HOST_UNCHECKED static const char* release(void* begin, bool pinned) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(begin);
    Memory* found = nullptr;
    for (int i = operand_count; i < region_count; i++) {
        Memory& r = regions[i];
        if (r.begin == at && r.origin != OPERAND && (found == nullptr || found->freed)) found = &r;
        if (r.begin < at && at < r.begin + r.bytes && !r.freed && r.name[0]) return "the pointer is not the one of the allocation";
    }
    if (found == nullptr && too_many_regions) return nullptr;
    if (found == nullptr) return "the pointer is none that the runtime has allocated";
    if (found->freed) return "the memory was freed before";
    if ((found->origin == PINNED) != pinned) return pinned ? "the memory is not of cudaMallocHost" : "the memory is of cudaMallocHost";
    found->freed = true;
    forget_values(*found);
    if (found->origin == DEVICE)
        munmap(begin, pages(found->bytes));
    else
        free(begin);
    return nullptr;
}

CUDA_HOST_UNCHECKED static Memory* region_of(const void* begin) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(begin);
    for (int i = 0; i < region_count; i++)
        if (!regions[i].freed && regions[i].name[0] && at >= regions[i].begin && at < regions[i].begin + regions[i].bytes)
            return regions + i;
    for (int i = 0; i < noted_count; i++)
        if (at >= noted[i].begin && at < noted[i].begin + noted[i].bytes) return noted + i;
    return nullptr;
}

// True if a copy may use these bytes as memory of the device or of the host.
CUDA_HOST_UNCHECKED static bool fits(const void* begin, size_t bytes, bool on_device, char* why, size_t size) {
    const Memory* m = region_of(begin);
    why[0] = 0;
    if (bytes == 0 || (m == nullptr && (!on_device || too_many_regions))) return true;
    if (m == nullptr) return snprintf(why, size, "is no memory of the device"), false;
    if (on_device && m->origin == SYMBOL)
        return snprintf(why, size, "is the variable %s: cudaMemcpyToSymbol, or the address of cudaGetSymbolAddress", m->name), false;
    if (!on_device && m->origin == DEVICE) return snprintf(why, size, "is memory of the device, not of the host"), false;
    const size_t from = reinterpret_cast<uintptr_t>(begin) - m->begin;
    if (!on_device || from + bytes <= m->bytes) return true;
    return snprintf(why, size, "is %s, which has %zu bytes; the copy takes %zu from byte %zu", m->name, m->bytes, bytes, from),
           false;
}

CUDA_HOST_UNCHECKED static bool is_written(const Memory& m, size_t i) { return m.written[i / 8] >> i % 8 & 1; }
CUDA_HOST_UNCHECKED static void set_written(Memory& m, size_t i, bool to) {
    m.written[i / 8] = to ? m.written[i / 8] | 1 << i % 8 : m.written[i / 8] & ~(1 << i % 8);
}

CUDA_HOST_UNCHECKED static void note_copy(void* to, const void* from, size_t bytes) {
    Memory* const target = region_of(to);
    if (target == nullptr || target->written == nullptr) return;
    const Memory* const source = from ? region_of(from) : nullptr;
    const size_t first = reinterpret_cast<uintptr_t>(to) - target->begin;
    for (size_t i = 0; i < bytes; i++) {
        const bool known = source && source->written;
        set_written(*target, first + i,
                    !known || is_written(*source, reinterpret_cast<uintptr_t>(from) - source->begin + i));
    }
}

// Notes a write, and fails for a read of bytes that nothing has written. Padding may be read beside what was written.
CUDA_HOST_UNCHECKED static void note_written(Memory& m, size_t first, size_t bytes, bool write, const void* place) {
    bool any = write || replaces;
    for (size_t i = first; i < first + bytes; i++) {
        if (write)
            set_written(m, i, true);
        else
            any |= is_written(m, i);
    }
    if (!any)
        fail(cudaErrorLaunchFailure, "%sreads index %zu of %s, which nothing has written: no cudaMemcpy, no cudaMemset, no "
             "kernel", at_line(place), first / bytes, m.name);
}

// The host has asked for the address of a variable.
CUDA_HOST_UNCHECKED static void note_address(const volatile void* variable) {
    Memory* const m = region_of(const_cast<const void*>(variable));
    if (m && m->origin == SYMBOL) m->origin = OPERAND;
}

// Ends the process, as a GPU's memory ends one that touches it.
CUDA_HOST_UNCHECKED static void check_host(uintptr_t at, size_t bytes, bool write, const void* place) {
    if (at < device_begin || at >= device_end) return;
    const Memory* m = region_of(reinterpret_cast<const void*>(at));
    if (m == nullptr || m->origin != DEVICE) return;
    fflush(stdout);
    fprintf(stderr, "%sthe host %s index %zu of %s of the device: cudaMemcpy copies\n", at_line(place),
            write ? "writes" : "reads", (at - m->begin) / bytes, m->name);
    abort();
}

}  // namespace cuda_host
