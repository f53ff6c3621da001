// Execution contexts with their own stacks. A waiting thread of a block is such a context.
//
// A switch saves the callee-saved registers and the stack pointer, which takes about five nanoseconds.
#pragma once

#include <sys/mman.h>

#if defined(__x86_64__) && defined(__ELF__) && !defined(CUDA_HOST_UCONTEXT)
#define CUDA_HOST_ASM 1
asm(R"(
    .pushsection .text
    .balign 16
cuda_host_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    popq %rcx
    jmpq *%rcx
    .popsection
)");
namespace cuda_host {
constexpr int SAVED_WORDS = 7, ENTRY_WORD = 6;
}
#elif defined(__aarch64__) && defined(__ELF__) && !defined(CUDA_HOST_UCONTEXT)
#define CUDA_HOST_ASM 1
asm(R"(
    .pushsection .text
    .balign 16
cuda_host_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .popsection
)");
namespace cuda_host {
constexpr int SAVED_WORDS = 20, ENTRY_WORD = 11;
}
#else
#include <ucontext.h>
#endif

namespace cuda_host {

constexpr size_t PAGE = 65536;  // a multiple of every page size in use
constexpr size_t STACK = 2 * PAGE, STRIDE = STACK + PAGE;
static char* stacks = nullptr;  // MAX_THREADS stacks, each above an unmapped page, so that an overflow faults

#ifdef CUDA_HOST_ASM

extern "C" void cuda_host_switch(void** save, void* load) asm("cuda_host_switch") __attribute__((visibility("hidden")));

struct Context {
    void* stack_pointer;
};

static inline void switch_context(Context& from, const Context& to) {
    cuda_host_switch(&from.stack_pointer, to.stack_pointer);
}

static inline void make_context(Context& context, char* bottom, size_t size, void (*entry)()) {
    void** top = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(bottom + size) & ~uintptr_t(15));
    *--top = nullptr;  // return address of the entry function; keeps the alignment of a call
#if defined(__aarch64__)
    *--top = nullptr;
#endif
    top -= SAVED_WORDS;
    for (int i = 0; i < SAVED_WORDS; i++) top[i] = nullptr;
    top[ENTRY_WORD] = reinterpret_cast<void*>(entry);
    context.stack_pointer = top;
}

#else

struct Context {
    ucontext_t state;
};

static inline void switch_context(Context& from, Context& to) { swapcontext(&from.state, &to.state); }

static inline void make_context(Context& context, char* bottom, size_t size, void (*entry)()) {
    getcontext(&context.state);
    context.state.uc_stack.ss_sp = bottom;
    context.state.uc_stack.ss_size = size;
    context.state.uc_link = nullptr;
    makecontext(&context.state, entry, 0);
}

#endif

// Creates a context on stack i that starts in `entry`. Returns false without memory. The tops of the stacks are
// staggered, so that they use different cache lines.
static bool fresh_context(Context& context, int i, void (*entry)()) {
    if (stacks == nullptr) {
        void* all = mmap(nullptr, STRIDE * MAX_THREADS, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (all == MAP_FAILED) return false;
        stacks = static_cast<char*>(all);
    }
    char* bottom = stacks + i * STRIDE + PAGE;
    if (mprotect(bottom, STACK, PROT_READ | PROT_WRITE) != 0) return false;
    make_context(context, bottom, STACK - i % 32 * 320, entry);
    return true;
}

}  // namespace cuda_host
