// The running block: its threads, their scheduling, and the detection of deadlocks.
//
// A fiber runs threads one after another in a loop. A thread that must wait keeps the stack of its fiber, and the loop
// continues on another fiber. A kernel without barriers never switches.
#pragma once

namespace cuda_host {

// Marks of shared memory that nobody has written, and of a lane without part in a shuffle: NaN in 16, 32 and 64 bits.
constexpr uint32_t UNWRITTEN = 0xfff5fff5u, ABSENT = 0xfff3fff3u;

enum Wait : unsigned char { RUNS, BARRIER, WARP_OPERATION, PAUSE, LEFT };

struct Thread {
    Context context;  // saved while the thread waits
    uint3 index;
    Wait wait;
    int line;   // source line at which the thread waits
    int fiber;  // the fiber whose stack it uses
    // Arguments and result of the thread in a warp operation.
    unsigned mask, operation, source;
    int line_of_operation;
    uint64_t given, received;
};

struct Block {
    Thread threads[MAX_THREADS];
    int count;             // threads of a block
    int started, running;  // number of threads that have begun; the running one
    int live;              // threads that have not returned
    int direction;         // +1: threads start in ascending order, -1: descending
    uint3 grid_index;
    unsigned long long serial = 0;  // number of blocks that this library has run

    int ready[MAX_THREADS], ready_begin, ready_count;  // queue of threads that can continue
    int waiting, barrier_line, barrier_votes;          // at the barrier: threads, line, true predicates
    int barrier_result_count, barrier_result_size;     // results of the last barrier
    unsigned warp_live[MAX_THREADS / WARP], warp_waiting[MAX_THREADS / WARP];  // lanes
    uint32_t epoch, warp_epoch[MAX_THREADS / WARP];  // barriers and warp operations so far
    uint32_t launch_epoch, block_epoch;              // `epoch` at the begin of the launch and of the block
    bool fenced, acquired;  // a __threadfence in the launch so far; an atomic operation in the block so far

    Context fibers[MAX_THREADS];  // idle fibers wait in fiber_main for a thread to start
    int idle[MAX_THREADS], idle_count, fiber_count;
    int fiber;  // the running fiber
    uint32_t switches;  // from thread to thread
    Context launcher;

    void (*body)(const void*);
    const void* closure;
    uint64_t blocks_left;
    size_t dynamic_bytes, static_bytes, shared_bytes;  // shared_bytes limits the sum of the others
    bool failed;
};
static Block block;

// Not itself checked by checked.h, which calls it.
CUDA_HOST_UNCOUNTED __attribute__((no_sanitize("thread"))) static inline bool in_kernel() {
    return block.body != nullptr && block.running >= 0;
}

alignas(1024) static char dynamic_memory[SHARED_OPTIN];

}  // namespace cuda_host

static dim3 gridDim, blockDim;
static uint3 blockIdx, threadIdx;
static const int warpSize = 32;

namespace cuda_host {

static void fiber_main();

// Ends the launch with an error: no thread of any block continues.
template <typename... Arguments>
[[noreturn]] CUDA_HOST_UNCOUNTED static void fail(cudaError_t error, const char* format, Arguments... arguments) {
    const Quiet quiet;
    char reason[300];
    snprintf(reason, sizeof reason, format, arguments...);
    const uint3 b = blockIdx, t = threadIdx;
    set_error(error, "block (%u, %u, %u), thread (%u, %u, %u): %s", b.x, b.y, b.z, t.x, t.y, t.z, reason);
    failed = error;
    block.failed = true;
    Context abandoned;
    switch_context(abandoned, block.launcher);
    __builtin_unreachable();
}

// Ends the launch since it needs what cannot be emulated.
template <typename... Arguments>
[[noreturn]] static void decline(const char* format, Arguments... arguments) {
    has_declined = true;
    fail(cudaErrorNotSupported, format, arguments...);
}

static const char* name_of(Wait wait) {
    return wait == BARRIER ? "__syncthreads" : wait == WARP_OPERATION ? "a warp operation" : "__nanosleep";
}

// Fails because no thread can run, but not all have returned. Lists the source lines at which threads wait.
[[noreturn]] static void fail_deadlock() {
    char places[240] = "";
    int used = 0, left = 0;
    for (int i = 0; i < block.count; i++) {
        const Thread& first = block.threads[i];
        left += first.wait == LEFT;
        int same = 0, before = 0;
        for (int j = 0; j < block.count; j++) {
            const Thread& other = block.threads[j];
            if (other.wait == first.wait && other.line == first.line) j < i ? before++ : same++;
        }
        if (first.wait == LEFT || before || used > 160) continue;
        used += snprintf(places + used, sizeof places - used, "%d wait in %s on line %d, ", same, name_of(first.wait),
                         first.line);
    }
    fail(cudaErrorLaunchTimeout, "never finishes: of %d threads %s%d have returned", block.count, places, left);
}

static inline void make_ready(int thread) {
    block.ready[(block.ready_begin + block.ready_count++) & (MAX_THREADS - 1)] = thread;
}

static inline int take_ready() {
    const int thread = block.ready[block.ready_begin];
    block.ready_begin = (block.ready_begin + 1) & (MAX_THREADS - 1);
    block.ready_count--;
    return thread;
}

// Ensures that there is an idle fiber. Returns false if there is no memory for one.
static bool have_idle() {
    if (block.idle_count) return true;
    const int fresh = block.fiber_count;
    if (!fresh_context(block.fibers[fresh], fresh, fiber_main)) return false;
    block.idle[block.idle_count++] = block.fiber_count++;
    return true;
}

// Saves the calling context in `from`. Switches to a ready thread, or to an idle fiber, which starts the next thread.
static void run_another(Context& from, bool prefer_new) {
    if (block.ready_count && !(prefer_new && block.started < block.count)) {
        const int next = take_ready();
        block.fiber = block.threads[next].fiber;
        switch_context(from, block.threads[next].context);
    } else if (block.started < block.count) {
        if (!have_idle()) fail(cudaErrorMemoryAllocation, "no memory for another stack");
        block.fiber = block.idle[--block.idle_count];
        switch_context(from, block.fibers[block.fiber]);
    } else {
        fail_deadlock();
    }
}

// Suspends the running thread until another thread has made it ready and its turn in the queue has come.
CUDA_HOST_UNCOUNTED static void wait(Wait why, int line) {
    const Quiet quiet;
    const int self = block.running;
    Thread& thread = block.threads[self];
    thread.wait = why;
    thread.line = line;
    thread.fiber = block.fiber;
    if (why == PAUSE) make_ready(self);
    if (block.ready_count && block.ready[block.ready_begin] == self && (why != PAUSE || block.started == block.count))
        take_ready();
    else
        run_another(thread.context, why == PAUSE);
    thread.wait = RUNS;
    block.running = self;
    block.switches++;
    threadIdx = thread.index;
}

}  // namespace cuda_host
