// A whole program: says at its end which errors it has not asked for, ends a thread that does not end, and names the place
// of a segmentation fault.
#pragma once

#include <signal.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

namespace cuda_host {

constexpr int ENDLESS_S = 10;  // seconds of the processor without a switch to another thread

static struct Untold {
    CUDA_HOST_UNCHECKED ~Untold() {
        if (unreported[0] == 0) return;
        fflush(stdout);
        fprintf(stderr, "an error that the program did not ask for, by cudaGetLastError: %s\n", unreported);
        _exit(1);
    }
} at_the_end;

CUDA_HOST_UNCHECKED static const void* interrupted_at(void* context) {
    uintptr_t place = 0;
#if defined(__x86_64__)
    place = uintptr_t(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
    place = uintptr_t(static_cast<ucontext_t*>(context)->uc_mcontext.pc);
#endif
    return reinterpret_cast<const void*>(place + 1);
}

CUDA_HOST_UNCHECKED static void watch(int, siginfo_t*, void* context) {
    static uint64_t before[4];
    static int seconds = 0;
    if (!in_kernel() || block.failed) return;
    const uint64_t now[4] = {block.serial, uint64_t(block.running), block.epoch, uint64_t(block.switches)};
    seconds = memcmp(before, now, sizeof now) == 0 ? seconds + 1 : 0;
    memcpy(before, now, sizeof now);
    if (seconds < ENDLESS_S) return;
    seconds = 0;
    char where[160];
    describe_place(interrupted_at(context), where, sizeof where);
    if (where[0] == 0) describe_place(last_place, where, sizeof where);
    fail(cudaErrorLaunchTimeout, "%s%sthe thread has not ended after %d s: a loop without an end, or it waits for a thread "
         "that cannot run", where, where[0] ? ": " : "", ENDLESS_S);
}

// In a kernel every access is checked, so only a stack without room is left as the reason.
CUDA_HOST_UNCHECKED static void name_fault(int number, siginfo_t* info, void* context) {
    char where[160];
    const uintptr_t at = reinterpret_cast<uintptr_t>(info->si_addr);
    const uint3 b = blockIdx, t = threadIdx;
    describe_place(interrupted_at(context), where, sizeof where);
    fflush(stdout);
    if (in_kernel())
        fprintf(stderr, "block (%u, %u, %u), thread (%u, %u, %u): %s%sits stack has no room: a recursion without an end, or "
                "large arrays\n", b.x, b.y, b.z, t.x, t.y, t.z, where, where[0] ? ": " : "");
    else if (at + PAGE > device_begin && at < device_end + PAGE)
        fprintf(stderr, "the host touches memory of the device at 0x%lx: free() of a pointer of cudaMalloc, or a pointer that "
                "was freed\n", at);
    signal(number, SIG_DFL);  // the access is repeated
}

CUDA_HOST_UNCHECKED static void begin_watch() {
    static bool begun = false;
    if (begun) return;
    begun = true;
    struct sigaction action = {};
    action.sa_sigaction = watch;
    action.sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER;
    sigaction(SIGPROF, &action, nullptr);
    static char stack[1 << 16];
    const stack_t other = {stack, 0, sizeof stack};
    sigaltstack(&other, nullptr);
    action.sa_sigaction = name_fault;
    action.sa_flags |= SA_ONSTACK;
    sigaction(SIGSEGV, &action, nullptr);
    const itimerval each_second = {{1, 0}, {1, 0}};
    setitimer(ITIMER_PROF, &each_second, nullptr);
}

}  // namespace cuda_host
