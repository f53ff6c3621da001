// Checks each access of a kernel: bounds of all memory, and races in global and shared memory.
//
// With -fsanitize=thread the compiler calls a function of this header before each load and store; what the
// compiler keeps in registers is not checked. A kernel may use the operands that `cuda_host_allow` names, memory of
// cudaMalloc, its parameters, its shared memory, variables of the library, and its stack. With -fsanitize=bounds an index
// of an array of known size is checked too, such as those in constant memory and those of a thread.
#pragma once

#include <link.h>

#include "unwritten.h"

namespace cuda_host {

constexpr uintptr_t GAP = 128;  // unused bytes before and after each variable, as build/rewrite.py declares it
constexpr uint64_t NEAR = 1 << 20;  // an address this close to a region was meant to be in it

static Memory shared[MAX_SHARED];
static int shared_count = 0;
static const void* last_place = nullptr;

// An index out of the bounds of an array. The next access shows whether it is one of a variable that is checked as a
// whole, since a row of it may be left on purpose.
struct BadIndex {
    const char *file, *type;  // no file: there is none
    unsigned line;
    long index;
    int thread;
};
static BadIndex bad_index;

[[noreturn]] CUDA_HOST_UNCHECKED static void fail_element(const Memory& m, uintptr_t at, size_t bytes, bool write,
                                                          const void* place) {
    const char* did = write ? "writes" : "reads";
    if (m.freed) fail(cudaErrorIllegalAddress, "%s%s %s, which was freed", at_line(place), did, m.name);
    const long offset = long(at - m.begin), size = long(bytes);
    const long index = offset >= 0 ? offset / size : -((-offset + size - 1) / size);
    fail(cudaErrorIllegalAddress, "%s%s index %ld of %s, which has %zu elements of %ld bytes", at_line(place), did, index,
         m.name, m.bytes / bytes, size);
}

[[noreturn]] CUDA_HOST_UNCHECKED static void fail_bounds(uintptr_t at, size_t bytes, bool write, const void* place) {
    const Memory* nearest = nullptr;
    uint64_t best = NEAR;
    for (int i = 0; i < region_count; i++) {
        const Memory& r = regions[i];
        const uint64_t away = at >= r.begin ? at - r.begin - (at - r.begin < r.bytes ? at - r.begin : r.bytes)
                                            : r.begin - at;
        if (r.name[0] && away < best) best = away, nearest = &r;
    }
    if (nearest == nullptr)
        fail(cudaErrorIllegalAddress, "%s%s %zu bytes at 0x%lx, which is no memory of the device: a pointer of the host, "
             "or an index far out of bounds", at_line(place), write ? "writes" : "reads", bytes, at);
    fail_element(*nearest, at, bytes, write, place);
}

[[noreturn]] CUDA_HOST_UNCHECKED static void fail_index() {
    const BadIndex bad = bad_index;
    bad_index.file = nullptr;
    block.running = bad.thread;
    threadIdx = block.threads[bad.thread].index;
    const char* name = strrchr(bad.file, '/');
    fail(cudaErrorIllegalAddress, "%s:%u: index %ld of an array of type %s", name ? name + 1 : bad.file, bad.line, bad.index,
         bad.type);
}

CUDA_HOST_UNCHECKED static void settle() {
    if (bad_index.file) fail_index();
    settle_race();
    settle_store();
}

CUDA_HOST_UNCHECKED static void end_block() {
    settle();
    check_marks();
}

static uint32_t left_epoch[MAX_THREADS];  // `epoch` when a thread returned

CUDA_HOST_UNCHECKED static void note_return(int self) { left_epoch[self] = block.epoch; }

// Fails if a thread has returned after an earlier barrier of its block, and others of its warp wait at this one: on a
// GPU such a warp may hang. A thread without work may return before the first barrier.
CUDA_HOST_UNCHECKED static void check_barrier() {
    if (block.live == block.count) return;
    for (int i = 0; i < block.count; i++) {
        if (block.threads[i].wait != LEFT || left_epoch[i] == block.block_epoch || !block.warp_live[i / WARP]) continue;
        char gone[48];
        describe_thread(i, gone, sizeof gone);
        block.running = i / WARP * WARP + __builtin_ctz(block.warp_live[i / WARP]);
        threadIdx = block.threads[block.running].index;
        fail(cudaErrorLaunchFailure, "waits in __syncthreads on line %d, but %s of the same warp has passed an earlier one "
             "and returned: on a GPU the warp may hang", block.barrier_line, gone);
    }
}

CUDA_HOST_UNCHECKED static bool is_near(const Memory& m, uintptr_t at) {
    return at + GAP > m.begin && at < m.begin + m.bytes + GAP;
}

// Fails unless this access is to a variable whose bounds are checked as a whole, in the line of the bad index.
CUDA_HOST_UNCHECKED static void judge_index(uintptr_t at, const void* place) {
    char here[160], line[16];
    describe_place(place, here, sizeof here);
    snprintf(line, sizeof line, ":%u", bad_index.line);
    const char* colon = strrchr(here, ':');
    bool whole = false;
    for (int i = 0; i < shared_count; i++) whole |= is_near(shared[i], at);
    for (int i = 0; i < noted_count; i++) whole |= is_near(noted[i], at);
    if (!whole || colon == nullptr || strcmp(colon, line) != 0) fail_index();
    bad_index.file = nullptr;
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

CUDA_HOST_UNCHECKED static bool in_library(uintptr_t at) {
    if (library_end == 0) dl_iterate_phdr(find_library, &library_begin);
    return at >= library_begin && at < library_end;
}

// Refuses a variable of the host, or the host's name of one of the device, as an argument of a launch.
CUDA_HOST_UNCHECKED static bool is_argument(int number, const volatile void* pointer) {
    if (!in_library(reinterpret_cast<uintptr_t>(pointer))) return true;
    const Memory* const m = region_of(const_cast<const void*>(pointer));
    if (m && m->origin != SYMBOL) return true;
    failed = cudaErrorIllegalAddress;
    set_error(failed, "argument %d of a launch is %s%s", number, m ? "the host's name of the variable " : "a variable of the host",
              m ? m->name : "");
    return false;
}

CUDA_HOST_UNCHECKED static void note_global(Memory& m, uintptr_t at, size_t bytes, bool write, bool is_volatile,
                                            const void* place) {
    count_access(false, at, bytes, write, place);
    if (is_volatile) block.acquired = true;
    if (m.written) note_written(m, at - m.begin, bytes, write, place);
    if (write) note_store(m, at, bytes, place);
    note_shared(m, at, bytes, write, in_atomic || is_volatile, place);
}

// True for a read of the aligned word that holds the first element of a misaligned operand. The allocation has it too.
CUDA_HOST_UNCHECKED static bool is_word_around(const Memory& m, uintptr_t at, size_t bytes) {
    size_t word = 1;
    while (word < bytes) word *= 2;  // an asynchronous copy may read a part of its word
    return word <= 16 && at % word == 0 && at < m.begin && at + bytes > m.begin;
}

// is_volatile: another thread may change the value, so an access to global memory is no race with an atomic operation.
CUDA_HOST_UNCHECKED static void check_access(uintptr_t at, size_t bytes, bool write, const void* place,
                                             bool is_volatile = false) {
    if (bytes == 0 || block.failed) return;
    if (!in_kernel()) return check_host(at, bytes, write, place);
    last_place = place;
    if (bad_index.file) judge_index(at, place);
    settle_race();
    settle_store();
    if (in_library(at)) {
        const uintptr_t dynamic = reinterpret_cast<uintptr_t>(dynamic_memory);
        for (int i = 0; i < shared_count; i++) {
            Memory& v = shared[i];
            if (v.begin == dynamic && (at < dynamic || at + bytes > dynamic + v.bytes)) continue;
            if (!is_near(v, at)) continue;
            if (at < v.begin || at + bytes > v.begin + v.bytes)
                fail(cudaErrorIllegalAddress, "%s%s byte %ld of %s, which has %zu bytes", at_line(place),
                     write ? "writes" : "reads", long(at - v.begin), v.name, v.bytes);
            count_access(true, at, bytes, write, place);
            if (!write) note_read(v, at, bytes, has_written(v, at), place);
            return note_shared(v, at, bytes, write, in_atomic, place);
        }
        if (at >= dynamic && at < dynamic + sizeof dynamic_memory)
            fail(cudaErrorIllegalAddress, "%s%s byte %zu of dynamic shared memory, of which the launch asks for %zu bytes",
                 at_line(place), write ? "writes" : "reads", size_t(at - dynamic), block.dynamic_bytes);
        for (int i = 0; i < noted_count; i++) {
            Memory& m = noted[i];
            if (!is_near(m, at)) continue;
            if (at < m.begin || at + bytes > m.begin + m.bytes) fail_element(m, at, bytes, write, place);
            if (m.global) note_global(m, at, bytes, write, is_volatile, place);
        }
        return;
    }
    const uintptr_t bottom = reinterpret_cast<uintptr_t>(stacks);
    if (at >= bottom && at < bottom + STRIDE * MAX_THREADS) return;
    for (int n = 0, i = last_region; n < region_count; n++, i++) {
        if (i >= region_count) i = 0;
        Memory& r = regions[i];
        const bool around = !write && is_word_around(r, at, bytes);
        if (r.freed || (at < r.begin && !around) || at + bytes > r.begin + r.bytes) continue;
        last_region = i;
        const uintptr_t from = around ? r.begin : at;
        if (r.name[0]) note_global(r, from, at + bytes - from, write, is_volatile, place);
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

// Names the parameters of a launch, whose memory a kernel reads as it begins.
CUDA_HOST_UNCHECKED static int allow_parameter(const void* begin, size_t bytes) {
    if (region_count == MAX_REGIONS) return region_count;
    forget_values(regions[region_count]);
    regions[region_count] = {reinterpret_cast<uintptr_t>(begin), bytes, "", true, false};
    return region_count++;
}
CUDA_HOST_UNCHECKED static void forget_parameters(int count) {
    region_count = count;
    in_atomic = false;  // also after a launch that has failed
    pending.bytes = latest.bytes = marked.bytes = 0;
    bad_index.file = nullptr;
}

// Fills shared memory with marks, which is no access of a thread.
CUDA_HOST_UNCHECKED static void fill_shared(void* begin, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        static_cast<unsigned char*>(begin)[i] = reinterpret_cast<const unsigned char*>(&UNWRITTEN)[i % 4];
}

// Notes a variable of shared memory. Called by the first thread of each block that reaches its declaration.
CUDA_HOST_UNCHECKED static void note_variable(void* begin, size_t bytes, const char* name) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(begin);
    int i = 0;
    while (i < shared_count && shared[i].begin != at) i++;
    if (i == MAX_SHARED) return;
    Memory& v = shared[i];
    if (i == shared_count) shared_count++;
    if (i < shared_count && v.begin == at && v.bytes >= bytes) {
        v.bytes = bytes;
        return;
    }
    unshade(v);
    v = {at, bytes, "", false, false};
    snprintf(v.name, sizeof v.name, "%s", name);
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

#define CUDA_HOST_HOOK_OF(type) \
    extern "C" CUDA_HOST_UNCOUNTED __attribute__((visibility("hidden"), used, no_sanitize("thread"))) inline type
#define CUDA_HOST_HOOK CUDA_HOST_HOOK_OF(void)
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
#define CUDA_HOST_VOLATILE(bytes)                                                           \
    CUDA_HOST_HOOK __tsan_volatile_read##bytes(uintptr_t at) {                                 \
        cuda_host::check_access(at, bytes, false, __builtin_return_address(0), true);          \
    }                                                                                          \
    CUDA_HOST_HOOK __tsan_volatile_write##bytes(uintptr_t at) {                                \
        cuda_host::check_access(at, bytes, true, __builtin_return_address(0), true);           \
    }
CUDA_HOST_VOLATILE(1)
CUDA_HOST_VOLATILE(2)
CUDA_HOST_VOLATILE(4)
CUDA_HOST_VOLATILE(8)
CUDA_HOST_VOLATILE(16)
#undef CUDA_HOST_VOLATILE
// The compiler calls these in place of __atomic_load_n and __atomic_store_n, whose value another process may change.
#define CUDA_HOST_ATOMIC(bits, word)                                                                                  \
    CUDA_HOST_HOOK_OF(word) __tsan_atomic##bits##_load(const volatile word* at, int) {                                \
        cuda_host::check_access(reinterpret_cast<uintptr_t>(at), bits / 8, false, __builtin_return_address(0), true); \
        return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                                 \
    }                                                                                                                 \
    CUDA_HOST_HOOK_OF(void) __tsan_atomic##bits##_store(volatile word* at, word value, int) {                         \
        cuda_host::check_access(reinterpret_cast<uintptr_t>(at), bits / 8, true, __builtin_return_address(0), true);  \
        __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                                                \
    }
CUDA_HOST_ATOMIC(32, uint32_t)
CUDA_HOST_ATOMIC(64, uint64_t)
#undef CUDA_HOST_ATOMIC
CUDA_HOST_HOOK __tsan_read_range(uintptr_t at, size_t bytes) {
    cuda_host::check_access(at, bytes, false, __builtin_return_address(0));
}
CUDA_HOST_HOOK __tsan_write_range(uintptr_t at, size_t bytes) {
    cuda_host::check_access(at, bytes, true, __builtin_return_address(0));
}
CUDA_HOST_HOOK __tsan_vptr_update(void**, void*) {}
CUDA_HOST_HOOK __tsan_init() {}
// Called by -fsanitize=bounds for an index that is not within the bounds of its array.
CUDA_HOST_HOOK __ubsan_handle_out_of_bounds(void* where, uintptr_t index) {
    struct Type {
        uint16_t kind, info;
        char name[1];
    };
    struct Where {
        const char* file;
        unsigned line, column;
        const Type *array, *index;
    };
    const Where& w = *static_cast<const Where*>(where);
    if (!cuda_host::in_kernel() || cuda_host::block.failed) return;
    if (cuda_host::bad_index.file) cuda_host::fail_index();
    const int unused = 64 - (1 << (w.index->info >> 1));
    const bool is_signed = w.index->info & 1;
    const long value = is_signed && unused > 0 ? long(index << unused) >> unused : long(index);
    cuda_host::bad_index = {w.file, w.array->name, w.line, value, cuda_host::block.running};
}
// Called by -fsanitize=return at the end of a function that should have returned a value.
CUDA_HOST_HOOK __ubsan_handle_missing_return(void* where) {
    struct Where {
        const char* file;
        unsigned line, column;
    };
    const Where& w = *static_cast<const Where*>(where);
    const char* name = strrchr(w.file, '/');
    name = name ? name + 1 : w.file;
    if (cuda_host::in_kernel())
        cuda_host::fail(cudaErrorLaunchFailure, "%s:%u: a function ends without the `return` of its value", name, w.line);
    fprintf(stderr, "%s:%u: a function ends without the `return` of its value\n", name, w.line);
    abort();
}
#undef CUDA_HOST_BOTH
#undef CUDA_HOST_HOOKS
#undef CUDA_HOST_HOOK
#undef CUDA_HOST_HOOK_OF
