// A launch: checks the limits of a device, then runs block after block.
#pragma once

#include <pthread.h>

#include <type_traits>

namespace cuda_host {

static pthread_mutex_t launching = PTHREAD_MUTEX_INITIALIZER;

static void begin_block() {
    blockIdx = block.grid_index;
    block.serial++;
    block.block_epoch = ++block.epoch;
    block.acquired = false;
    block.started = block.ready_begin = block.ready_count = block.waiting = block.barrier_votes = 0;
    block.live = block.count;
    block.static_bytes = 0;
    for (int w = 0; w * WARP < block.count; w++) {
        const int lanes = block.count - w * WARP;
        block.warp_live[w] = lanes >= WARP ? ~0u : (1u << lanes) - 1;
        block.warp_waiting[w] = 0;
    }
    fill_shared(dynamic_memory, block.dynamic_bytes);
    note_variable(dynamic_memory, block.dynamic_bytes, "dynamic shared memory");
}

static bool next_block() {
    end_block();
    if (--block.blocks_left == 0) return false;
    block.direction = -block.direction;
    if (++block.grid_index.x == gridDim.x) {
        block.grid_index.x = 0;
        if (++block.grid_index.y == gridDim.y) block.grid_index.y = 0, ++block.grid_index.z;
    }
    begin_block();
    return true;
}

static inline void thread_returns() {
    const int self = block.running;
    block.threads[self].wait = LEFT;
    note_return(self);
    block.live--;
    leave_warp(self);
    end_thread();
    if (block.waiting && block.waiting == block.live) open_barrier();
}

// The loop of a fiber: runs threads, from block to block.
static void fiber_main() {
    for (;;) {
        while (block.started < block.count) {
            const int self = block.direction > 0 ? block.started : block.count - 1 - block.started;
            block.started++;
            block.running = self;
            block.threads[self].wait = RUNS;
            threadIdx = block.threads[self].index;
            begin_thread();
            block.body(block.closure);
            thread_returns();
        }
        if (block.live == 0 && next_block()) continue;
        const int fiber = block.fiber;
        block.idle[block.idle_count++] = fiber;
        if (block.live == 0)
            switch_context(block.fibers[fiber], block.launcher);
        else
            run_another(block.fibers[fiber], false);
    }
}

static cudaError_t check(dim3 grid, dim3 threads, size_t bytes, const void* kernel) {
    const auto within = [](unsigned x, unsigned most) { return 1 <= x && x <= most; };
    const auto refused = [](auto... said) { return set_error(cudaErrorInvalidValue, said...); };  // as in CUDA 13
    if (!within(grid.x, 0x7fffffff) || !within(grid.y, 65535) || !within(grid.z, 65535))
        return refused("invalid argument: a grid of (%u, %u, %u) blocks; each must be at least 1, y and z at most 65535", grid.x,
                       grid.y, grid.z);
    if (!within(threads.x, MAX_THREADS) || !within(threads.y, MAX_THREADS) || !within(threads.z, 64) ||
        threads.x * threads.y * threads.z > MAX_THREADS)
        return refused("invalid argument: a block of (%u, %u, %u) threads; it must have 1 to 1024, in z at most 64", threads.x,
                       threads.y, threads.z);
    if (bytes > shared_limit(kernel))
        return refused("invalid argument: %zu bytes of dynamic shared memory; the kernel may use %zu, and up to %zu by "
                       "cudaFuncSetAttribute", bytes, shared_limit(kernel), SHARED_OPTIN);
    return cudaSuccess;
}

static void run(const void* kernel, const char* name, dim3 grid, dim3 threads, size_t bytes, void (*body)(const void*),
                const void* closure) {
    pthread_mutex_lock(&launching);
    gridDim = grid;
    blockDim = threads;
    block.count = int(threads.x * threads.y * threads.z);
    int i = 0;
    for (unsigned z = 0; z < threads.z; z++)
        for (unsigned y = 0; y < threads.y; y++)
            for (unsigned x = 0; x < threads.x; x++) block.threads[i++].index = {x, y, z};
    block.grid_index = {0, 0, 0};
    block.blocks_left = uint64_t(grid.x) * grid.y * grid.z;
    block.direction = 1;
    block.dynamic_bytes = bytes;
    block.shared_bytes = is_allowed_shared(kernel, bytes) ? SHARED_OPTIN : SHARED_DEFAULT;
    block.body = body;
    block.closure = closure;
    block.failed = false;
    block.running = -1;
    block.launch_epoch = block.epoch + 1;
    block.fenced = false;
    begin_kernel(name);
#ifdef CUDA_HOST_PROGRAM
    begin_watch();
#endif
    begin_block();
    if (have_idle())
        run_another(block.launcher, true);
    else
        set_error(cudaErrorMemoryAllocation);
    block.running = -1;
    if (block.failed) block.idle_count = block.fiber_count = 0;  // unfinished threads stay on their stacks
    pthread_mutex_unlock(&launching);
}

template <typename T>
static bool is_argument_of(int number, T value) {
    if constexpr (std::is_pointer_v<T> && !std::is_function_v<std::remove_pointer_t<T>>) return is_argument(number, value);
    return true;
}

template <typename Kernel>
struct Launch {
    const void* address;
    Kernel kernel;
    dim3 grid, threads;
    size_t bytes;
    const char* name = "";

    // Names the kernel, for its counts.
    Launch& named(const char* its_name) { return name = its_name, *this; }

    template <typename... Arguments>
    void operator()(Arguments... arguments) const {
        int number = 0;
        if (check(grid, threads, bytes, address) != cudaSuccess || !(is_argument_of(++number, arguments) && ...)) return;
        const auto thread = [&] { kernel(arguments...); };
        using Body = decltype(thread);
        const int regions = allow_parameter(&thread, sizeof thread);
        allow_parameter(this, sizeof *this);
        (allow_parameter(&arguments, sizeof arguments), ...);
        run(address, name, grid, threads, bytes, [](const void* closure) { (*static_cast<Body*>(closure))(); }, &thread);
        forget_parameters(regions);
    }
};

template <typename Kernel>
static Launch<Kernel> launch(const void* address, Kernel kernel, dim3 grid, dim3 threads, size_t bytes = 0,
                             cudaStream_t = nullptr) {
    return {address, kernel, grid, threads, bytes};
}

}  // namespace cuda_host

// Called by -fsanitize=alignment for an address that is not a multiple of the alignment of the accessed type.
extern "C" __attribute__((visibility("hidden"), used)) inline void __ubsan_handle_type_mismatch_v1(void* where,
                                                                                                   uintptr_t pointer) {
    struct Where {
        const char* file;
        unsigned line, column;
        const struct { uint16_t kind, info; char name[1]; } * type;
        unsigned char log_alignment, access;
    };
    const Where& w = *static_cast<const Where*>(where);
    if (!cuda_host::in_kernel()) return;
    cuda_host::fail(cudaErrorMisalignedAddress, "line %u: %s at address 0x%lx, which is no multiple of %d", w.line,
                    w.type->name, static_cast<unsigned long>(pointer), 1 << w.log_alignment);
}
