// __syncthreads, its variants with a predicate, and shared memory.
#pragma once

namespace cuda_host {

// Makes the chosen ones of the threads first ... first + count - 1 ready. The running thread, which arrives last,
// continues first: this saves a switch and reverses the order at each barrier.
template <typename Chosen>
static inline void release(int first, int count, Chosen chosen) {
    const int last = block.running - first, step = last * 2 >= count ? -1 : 1;
    for (int n = 0, i = last; n < count; n++, i += step) {
        if (i < 0) i = count - 1;
        if (i >= count) i = 0;
        if (chosen(i)) make_ready(first + i);
    }
}

static void open_barrier() {
    settle();
    check_barrier();
    block.epoch++;
    block.barrier_result_count = block.barrier_votes;
    block.barrier_result_size = block.waiting;
    block.waiting = block.barrier_votes = 0;
    release(0, block.count, [](int i) { return block.threads[i].wait == BARRIER; });
}

// All live threads must reach the same barrier. Threads that have returned are not waited for, as CUDA specifies since
// Volta. Kernels should not rely on this: an H200 hangs if the threads of one warp return one by one.
CUDA_HOST_UNCOUNTED static void barrier(bool predicate, int line) {
    const Quiet quiet;
    reach_barrier(line);
    if (block.waiting == 0) block.barrier_line = line;
    if (line == block.barrier_line) {
        block.waiting++;
        block.barrier_votes += predicate;
    }
    block.threads[block.running].wait = BARRIER;
    block.threads[block.running].line = line;
    if (block.waiting == block.live) open_barrier();
    wait(BARRIER, line);
}

// Static shared memory. The first thread of a block to reach a declaration fills it with NaN.
template <typename T>
CUDA_HOST_UNCOUNTED static inline void enter_shared(unsigned long long& serial, T& variable, const char* name) {
    const Quiet quiet;
    if (serial == block.serial) return;
    serial = block.serial;
    block.static_bytes += sizeof(T);
    if (block.static_bytes > SHARED_DEFAULT || block.static_bytes + block.dynamic_bytes > block.shared_bytes)
        fail(cudaErrorInvalidValue, "%zu bytes of static shared memory (at most 49152), %zu of dynamic, %zu for both",
             block.static_bytes, block.dynamic_bytes, block.shared_bytes);
    fill_shared((void*)&variable, sizeof(T));
    note_variable((void*)&variable, sizeof(T), name);
}

template <typename T>
static inline T* dynamic_shared() {
    return reinterpret_cast<T*>(dynamic_memory);
}

}  // namespace cuda_host

static inline void __syncthreads(int line = __builtin_LINE()) { cuda_host::barrier(false, line); }
static inline int __syncthreads_count(int predicate, int line = __builtin_LINE()) {
    cuda_host::barrier(predicate != 0, line);
    return cuda_host::block.barrier_result_count;
}
static inline int __syncthreads_or(int predicate, int line = __builtin_LINE()) {
    cuda_host::barrier(predicate != 0, line);
    return cuda_host::block.barrier_result_count != 0;
}
static inline int __syncthreads_and(int predicate, int line = __builtin_LINE()) {
    cuda_host::barrier(predicate != 0, line);
    return cuda_host::block.barrier_result_count == cuda_host::block.barrier_result_size;
}
static inline void __nanosleep(unsigned, int line = __builtin_LINE()) { cuda_host::wait(cuda_host::PAUSE, line); }
static inline void __threadfence_block() {}
static inline void __threadfence() { cuda_host::block.fenced = true; }
static inline void __threadfence_system() { cuda_host::block.fenced = true; }
[[noreturn]] static inline void __trap() { cuda_host::fail(cudaErrorLaunchFailure, "__trap()"); }
