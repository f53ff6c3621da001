// Checks each access of a kernel: bounds of global and shared memory, and races in shared memory.
//
// With -fsanitize=thread the compiler calls a function of this header before each load and store; what the
// compiler keeps in registers is not checked. A kernel may use the operands that `cuda_host_allow` names, memory of
// cudaMalloc, its parameters, its shared memory, variables of the library, and its stack.
// A race is an access to shared memory that another thread has written, or a write to what another thread has read or
// written, with no barrier between the two. Barriers are those of the block and, within a warp, warp operations.
#pragma once

#include <dlfcn.h>
#include <link.h>

namespace cuda_host {

#define CUDA_HOST_UNCHECKED CUDA_HOST_UNCOUNTED __attribute__((no_sanitize("thread"), noinline))

constexpr int MAX_REGIONS = 4096, MAX_SHARED = 64;
constexpr uintptr_t GAP = 128;  // unused bytes before and after each variable, as build/rewrite.py declares it
constexpr uint64_t NEAR = 1 << 20;  // an address this close to a region was meant to be in it

struct Region {
    uintptr_t begin;
    size_t bytes;
    char name[48];
    bool freed;
};
static Region regions[MAX_REGIONS];
static bool too_many_regions = false;  // bounds of global memory are not checked then
static int region_count = 0, operand_count = 0, last_region = 0;  // the operands come first

// The accesses of a byte of shared memory since the last barrier.
struct Access {
    const void* place;
    uint32_t epoch, warp_epoch;
    uint16_t thread;
    bool made, atomic;
};
struct Shadow {
    Access write, reads[2];  // of the reads, one by each of two threads
};
struct SharedVariable {
    uintptr_t begin;
    size_t bytes;
    const char* name;
    Shadow* shadow;
};
static SharedVariable shared[MAX_SHARED];
static int shared_count = 0;

static bool in_atomic = false, atomic_counted = false;
struct Atomic {
    const Quiet quiet;
    CUDA_HOST_UNCOUNTED Atomic() { in_atomic = true, atomic_counted = false; }
    CUDA_HOST_UNCOUNTED ~Atomic() {
        asm volatile("" ::: "memory");  // later reads read again
        in_atomic = false;
    }
};

// A possible race of the running thread with an earlier access.
struct Race {
    const SharedVariable* variable;
    size_t offset;
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

static char library_path[1024];  // empty: where it was loaded from

// "file.cu:12", or "" if addr2line is not installed. Inlined functions of the headers in host/ are skipped.
CUDA_HOST_UNCHECKED static void describe_place(const void* place, char* text, size_t size) {
    text[0] = 0;
    Dl_info info;
    if (dladdr(place, &info) == 0) return;
    const char* path = library_path[0] ? library_path : info.dli_fname;
    if (strchr(path, '\'')) return;
    const uintptr_t base = reinterpret_cast<uintptr_t>(info.dli_fbase);
    const uintptr_t offset = reinterpret_cast<uintptr_t>(place) - 1 - (base < 0x500000 ? 0 : base);
    char command[1200], line[1200];
    snprintf(command, sizeof command, "addr2line -i -e '%s' 0x%lx 2>/dev/null", path, offset);
    FILE* answer = popen(command, "r");
    if (answer == nullptr) return;
    while (text[0] == 0 && fgets(line, sizeof line, answer)) {
        if (strstr(line, "/host/") || line[0] == '?') continue;
        const char* name = strrchr(line, '/');
        snprintf(text, size, "%s", name ? name + 1 : line);
        text[strcspn(text, " \n")] = 0;
    }
    while (fgets(line, sizeof line, answer)) {}
    pclose(answer);
}

CUDA_HOST_UNCHECKED static void describe_thread(int thread, char* text, size_t size) {
    const uint3 t = block.threads[thread].index;
    snprintf(text, size, "thread (%u, %u, %u)", t.x, t.y, t.z);
}

CUDA_HOST_UNCHECKED static const char* at_line(const void* place) {
    static char texts[2][200];
    static int next = 0;
    char* text = texts[next = 1 - next];
    char where[160];
    describe_place(place, where, sizeof where);
    snprintf(text, sizeof texts[0], where[0] ? "%s: " : "%s", where);
    return text;
}

[[noreturn]] CUDA_HOST_UNCHECKED static void fail_bounds(uintptr_t at, size_t bytes, bool write, const void* place) {
    const Region* nearest = nullptr;
    uint64_t best = NEAR;
    for (int i = 0; i < region_count; i++) {
        const Region& r = regions[i];
        const uint64_t away = at >= r.begin ? at - r.begin - (at - r.begin < r.bytes ? at - r.begin : r.bytes)
                                            : r.begin - at;
        if (r.name[0] && away < best) best = away, nearest = &r;
    }
    const char* did = write ? "writes" : "reads";
    if (nearest == nullptr)
        fail(cudaErrorIllegalAddress, "%s%s %zu bytes at 0x%lx, which is no memory of the device: a pointer of the host, "
             "or an index far out of bounds", at_line(place), did, bytes, at);
    if (nearest->freed)
        fail(cudaErrorIllegalAddress, "%s%s %s, which was freed", at_line(place), did, nearest->name);
    const long offset = long(at - nearest->begin), size = long(bytes);
    const long index = offset >= 0 ? offset / size : -((-offset + size - 1) / size);
    fail(cudaErrorIllegalAddress, "%s%s index %ld of %s, which has %zu elements of %ld bytes", at_line(place), did, index,
         nearest->name, nearest->bytes / bytes, size);
}

[[noreturn]] CUDA_HOST_UNCHECKED static void fail_race(const Race& race) {
    char other[48], where[160];
    describe_thread(race.earlier.thread, other, sizeof other);
    describe_place(race.earlier.place, where, sizeof where);
    block.running = race.now.thread;
    threadIdx = block.threads[race.now.thread].index;
    const bool same_warp = race.earlier.thread / WARP == race.now.thread / WARP;
    fail(cudaErrorLaunchFailure, "%srace: %s byte %zu of %s, which %s %s%s%s, with no %s between the two",
         at_line(race.now.place), race.now_write ? "writes" : "reads", race.offset, race.variable->name, other,
         race.earlier_write ? "has written" : "has read", where[0] ? " at " : "", where,
         same_warp ? "__syncwarp" : "__syncthreads");
}

CUDA_HOST_UNCHECKED static void settle() {
    if (pending.bytes == 0) return;
    const size_t bytes = pending.bytes;
    pending.bytes = 0;
    if (memcmp(reinterpret_cast<const void*>(pending.at), pending.before, bytes) != 0) fail_race(pending.race);
}

CUDA_HOST_UNCHECKED static bool unordered(const Access& earlier) {
    const int self = block.running;
    if (!earlier.made || earlier.epoch != block.epoch || earlier.thread == self) return false;
    if (earlier.atomic && in_atomic) return false;
    return earlier.thread / WARP != self / WARP || earlier.warp_epoch == block.warp_epoch[self / WARP];
}

CUDA_HOST_UNCHECKED static void note_shared(const SharedVariable& v, uintptr_t at, size_t bytes, bool write,
                                            const void* place) {
    const int self = block.running;
    const Access mine = {place, block.epoch, block.warp_epoch[self / WARP], uint16_t(self), true, in_atomic};
    for (size_t i = at - v.begin; i < at - v.begin + bytes; i++) {
        Shadow& s = v.shadow[i];
        const Access* earlier = unordered(s.write) ? &s.write : nullptr;
        if (write && earlier == nullptr)
            for (const Access& read : s.reads)
                if (unordered(read)) earlier = &read;
        if (earlier) {
            const Race race = {&v, i, *earlier, mine, earlier == &s.write, write};
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

CUDA_HOST_UNCHECKED static void count_access(bool in_shared, uintptr_t at, size_t bytes, bool write, const void* place) {
    if (in_atomic && atomic_counted) return;
    atomic_counted = in_atomic;
    const Kind kind = in_atomic ? ATOMIC : in_shared ? (write ? SHARED_STORE : SHARED_LOAD) : (write ? STORE : LOAD);
    note_access(kind, at, bytes, reinterpret_cast<uintptr_t>(place));
}

static uintptr_t library_begin = 0, library_end = 0;

CUDA_HOST_UNCHECKED static int find_library(dl_phdr_info* info, size_t, void* inside) {
    uintptr_t begin = ~uintptr_t(0), end = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const auto& each = info->dlpi_phdr[i];
        if (each.p_type != PT_LOAD) continue;
        const uintptr_t from = info->dlpi_addr + each.p_vaddr, to = from + each.p_memsz;
        if (from < begin) begin = from;
        if (to > end) end = to;
    }
    const uintptr_t at = reinterpret_cast<uintptr_t>(inside);
    if (at < begin || at >= end) return 0;
    library_begin = begin;
    library_end = end;
    return 1;
}

CUDA_HOST_UNCHECKED static void check_access(uintptr_t at, size_t bytes, bool write, const void* place) {
    if (!in_kernel() || bytes == 0 || block.failed) return;
    settle();
    if (library_end == 0) dl_iterate_phdr(find_library, &library_begin);
    if (at >= library_begin && at < library_end) {
        const uintptr_t dynamic = reinterpret_cast<uintptr_t>(dynamic_memory);
        for (int i = 0; i < shared_count; i++) {
            const SharedVariable& v = shared[i];
            if (v.begin == dynamic && (at < dynamic || at + bytes > dynamic + v.bytes)) continue;
            if (at + bytes <= v.begin - GAP || at >= v.begin + v.bytes + GAP) continue;
            if (at < v.begin || at + bytes > v.begin + v.bytes)
                fail(cudaErrorIllegalAddress, "%s%s byte %ld of %s, which has %zu bytes", at_line(place),
                     write ? "writes" : "reads", long(at - v.begin), v.name, v.bytes);
            count_access(true, at, bytes, write, place);
            return note_shared(v, at, bytes, write, place);
        }
        if (at >= dynamic && at < dynamic + sizeof dynamic_memory)
            fail(cudaErrorIllegalAddress, "%s%s byte %zu of dynamic shared memory, of which the launch asks for %zu bytes",
                 at_line(place), write ? "writes" : "reads", size_t(at - dynamic), block.dynamic_bytes);
        return;
    }
    const uintptr_t bottom = reinterpret_cast<uintptr_t>(stacks);
    if (at >= bottom && at < bottom + STRIDE * MAX_THREADS) return;
    for (int n = 0, i = last_region; n < region_count; n++, i++) {
        if (i >= region_count) i = 0;
        const Region& r = regions[i];
        if (r.freed || at < r.begin || at + bytes > r.begin + r.bytes) continue;
        last_region = i;
        if (r.name[0]) count_access(false, at, bytes, write, place);  // parameters have no name
        return;
    }
    if (!too_many_regions) fail_bounds(at, bytes, write, place);
    count_access(false, at, bytes, write, place);
}

// An asynchronous copy of `read` bytes, which writes `bytes` of shared memory.
CUDA_HOST_UNCHECKED static void check_copy(void* to, const void* from, size_t bytes, size_t read, const void* place) {
    check_access(reinterpret_cast<uintptr_t>(from), read, false, place);
    check_access(reinterpret_cast<uintptr_t>(to), bytes, true, place);
}

CUDA_HOST_UNCHECKED static void allow(const void* begin, size_t bytes, const char* name) {
    if (begin == nullptr) return;
    int at = region_count;
    for (int i = operand_count; i < region_count; i++)
        if (regions[i].begin == reinterpret_cast<uintptr_t>(begin) || (at == region_count && regions[i].freed)) at = i;
    if (at == MAX_REGIONS) {
        too_many_regions = true;
        return;
    }
    regions[at] = {reinterpret_cast<uintptr_t>(begin), bytes, "", false};
    snprintf(regions[at].name, sizeof regions[at].name, "%s", name);
    if (at == region_count) region_count++;
}

CUDA_HOST_UNCHECKED static bool is_allowed(const void* begin, size_t bytes) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(begin);
    for (int i = 0; i < region_count; i++) {
        const Region& r = regions[i];
        if (!r.freed && at >= r.begin && at + bytes <= r.begin + r.bytes) return true;
    }
    return bytes == 0 || too_many_regions;
}

// Names the parameters of a launch, whose memory a kernel reads as it begins.
CUDA_HOST_UNCHECKED static int allow_parameter(const void* begin, size_t bytes) {
    if (region_count == MAX_REGIONS) return region_count;
    regions[region_count] = {reinterpret_cast<uintptr_t>(begin), bytes, "", false};
    return region_count++;
}
CUDA_HOST_UNCHECKED static void forget_parameters(int count) {
    region_count = count;
    in_atomic = false;  // also after a launch that has failed
    pending.bytes = 0;
}

CUDA_HOST_UNCHECKED static void forget(const void* begin) {
    for (int i = operand_count; i < region_count; i++)
        if (regions[i].begin == reinterpret_cast<uintptr_t>(begin)) regions[i].freed = true;
}

// Fills shared memory with NaN, which is no access of a thread.
CUDA_HOST_UNCHECKED static void fill_shared(void* begin, size_t bytes) { memset(begin, 0xff, bytes); }

// Notes a variable of shared memory. Called by the first thread of each block that reaches its declaration.
CUDA_HOST_UNCHECKED static void note_variable(void* begin, size_t bytes, const char* name) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(begin);
    for (int i = 0; i < shared_count; i++) {
        SharedVariable& v = shared[i];
        if (v.begin != at) continue;
        if (v.bytes < bytes) {
            free(v.shadow);
            v.shadow = static_cast<Shadow*>(calloc(bytes, sizeof(Shadow)));
        }
        v.bytes = bytes;
        return;
    }
    if (shared_count < MAX_SHARED)
        shared[shared_count++] = {at, bytes, name, static_cast<Shadow*>(calloc(bytes, sizeof(Shadow)))};
}

}  // namespace cuda_host

#define CUDA_HOST_EXPORT extern "C" __attribute__((visibility("default"), used, no_sanitize("thread"))) inline

// Replaces the memory that kernels may use as operands: all calls between two with `first` add to it.
CUDA_HOST_EXPORT void cuda_host_allow(const void* begin, size_t bytes, const char* name, int first) {
    using namespace cuda_host;
    if (first) region_count = operand_count = 0;
    allow(begin, bytes, name);
    operand_count = region_count;
}

// The path of this library, which may have moved since it was loaded.
CUDA_HOST_EXPORT void cuda_host_moved(const char* path) {
    snprintf(cuda_host::library_path, sizeof cuda_host::library_path, "%s", path);
}

#define CUDA_HOST_HOOK \
    extern "C" CUDA_HOST_UNCOUNTED __attribute__((visibility("hidden"), used, no_sanitize("thread"))) inline void
#define CUDA_HOST_HOOKS(name, bytes, write)                                                          \
    CUDA_HOST_HOOK __tsan_##name##bytes(uintptr_t at) {                                               \
        cuda_host::check_access(at, bytes, write, __builtin_return_address(0));                       \
    }
#define CUDA_HOST_BOTH(prefix, bytes) \
    CUDA_HOST_HOOKS(prefix##read, bytes, false) CUDA_HOST_HOOKS(prefix##write, bytes, true)
CUDA_HOST_BOTH(, 1)
CUDA_HOST_BOTH(, 2)
CUDA_HOST_BOTH(, 4)
CUDA_HOST_BOTH(, 8)
CUDA_HOST_BOTH(, 16)
CUDA_HOST_BOTH(unaligned_, 2)
CUDA_HOST_BOTH(unaligned_, 4)
CUDA_HOST_BOTH(unaligned_, 8)
CUDA_HOST_BOTH(unaligned_, 16)
CUDA_HOST_HOOK __tsan_read_range(uintptr_t at, size_t bytes) {
    cuda_host::check_access(at, bytes, false, __builtin_return_address(0));
}
CUDA_HOST_HOOK __tsan_write_range(uintptr_t at, size_t bytes) {
    cuda_host::check_access(at, bytes, true, __builtin_return_address(0));
}
CUDA_HOST_HOOK __tsan_vptr_update(void**, void*) {}
CUDA_HOST_HOOK __tsan_init() {}
#undef CUDA_HOST_BOTH
#undef CUDA_HOST_HOOKS
#undef CUDA_HOST_HOOK
