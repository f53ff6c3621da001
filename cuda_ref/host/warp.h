// Warp operations: the lanes of a mask wait for each other, exchange one word each, and continue.
//
// Lanes that have returned are not waited for. A shuffle reads NaN from a lane that does not take part.
#pragma once

namespace cuda_host {

enum Operation : unsigned { SYNC, SHUFFLE, BALLOT, MATCH, ADD, MIN, MAX, AND, OR, XOR, GATHER, SIGNED = 16 };
// Shuffles of different kinds do not meet.
enum Mode : unsigned { FROM = 0, UP = 32, DOWN = 64, ACROSS = 96 };

// The values that the lanes of a warp have passed to gather(), until the next gather().
alignas(64) static char gathered[MAX_THREADS / WARP][WARP * 32];

static inline unsigned lane() { return block.running % WARP; }

// If all live lanes of the mask wait in this operation, sets their results and makes them ready.
static bool complete(int warp, unsigned mask, unsigned operation) {
    const unsigned need = mask & block.warp_live[warp];
    if (need == 0 || (block.warp_waiting[warp] & need) != need) return false;
    Thread* lanes = block.threads + warp * WARP;
    uint64_t total = 0;
    bool first = true;
    for (int i = 0; i < WARP; i++) {
        if (!(need >> i & 1)) continue;
        if (lanes[i].mask != mask || lanes[i].operation != operation) return false;
        const uint64_t x = lanes[i].given;
        const bool less = operation & SIGNED ? int32_t(x) < int32_t(total) : x < total;
        switch (operation % UP & ~SIGNED) {
            case BALLOT: total |= uint64_t(x != 0) << i; break;
            case ADD: total = uint32_t(total + x); break;
            case AND: total = first ? x : total & x; break;
            case OR: total |= x; break;
            case XOR: total ^= x; break;
            case MIN: total = first || less ? x : total; break;
            case MAX: total = first || !less ? x : total; break;
        }
        if (operation == GATHER)
            memcpy(gathered[warp] + i * lanes[i].source, reinterpret_cast<const void*>(x), lanes[i].source);
        first = false;
    }
    for (int i = 0; i < WARP; i++) {
        if (!(need >> i & 1)) continue;
        const unsigned source = lanes[i].source;
        lanes[i].received = total;
        if (operation % UP == SHUFFLE) {
            const bool takes_part = need >> source & 1;
            lanes[i].received = takes_part ? lanes[source].given : uint64_t(ABSENT) << 32 | ABSENT;
            if (!takes_part) note_absent(source, mask, lanes[i].line_of_operation);
        }
        if (operation == MATCH)
            for (int j = 0; j < WARP; j++)
                lanes[i].received |= uint64_t((need >> j & 1) && lanes[j].given == lanes[i].given) << j;
    }
    settle();
    block.warp_waiting[warp] &= ~need;
    block.warp_epoch[warp]++;
    release(warp * WARP, WARP, [need](int i) { return need >> i & 1; });
    return true;
}

CUDA_HOST_UNCOUNTED static uint64_t meet(unsigned mask, unsigned operation, uint64_t given, unsigned source, int line) {
    const Quiet quiet;
    const int self = block.running, warp = self / WARP;
    if (!(mask >> lane() & 1))
        fail(cudaErrorLaunchFailure, "line %d: lane %u is not in its own mask 0x%08x", line, lane(), mask);
    Thread& thread = block.threads[self];
    thread.mask = mask;
    thread.operation = operation;
    thread.given = given;
    thread.source = source;
    thread.line_of_operation = line;
    block.warp_waiting[warp] |= 1u << lane();
    complete(warp, mask, operation);
    wait(WARP_OPERATION, line);
    return thread.received;
}

// Called when a thread returns, since others may wait only for this one.
static void leave_warp(int self) {
    const int warp = self / WARP;
    block.warp_live[warp] &= ~(1u << self % WARP);
    for (unsigned rest = block.warp_waiting[warp]; rest; rest &= rest - 1) {
        if (!(block.warp_waiting[warp] & rest & -rest)) continue;
        const Thread& waiting = block.threads[warp * WARP + __builtin_ctz(rest)];
        complete(warp, waiting.mask, waiting.operation);
    }
}

template <typename T>
static inline T shuffle(Mode mode, unsigned mask, T value, int source, int line) {
    static_assert(sizeof(T) <= 8, "a shuffle moves 8 bytes at most");
    uint64_t word = 0;
    memcpy(&word, &value, sizeof value);
    word = meet(mask, SHUFFLE | mode, word, source, line);
    memcpy(&value, &word, sizeof value);
    return value;
}

// The values of all 32 lanes, valid until the warp's next call. It takes one wait; shuffles of many words take many.
template <typename T>
static inline const T* gather(const T& value, int line = __builtin_LINE()) {
    static_assert(sizeof(T) <= 32, "a gather takes 32 bytes of each lane at most");
    meet(0xffffffffu, GATHER, reinterpret_cast<uint64_t>(&value), sizeof(T), line);
    return reinterpret_cast<const T*>(gathered[block.running / WARP]);
}

}  // namespace cuda_host

template <typename T>
static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, int line = __builtin_LINE()) {
    const int lane = cuda_host::lane();
    return cuda_host::shuffle(cuda_host::FROM, mask, value, (lane & -width) | (source & (width - 1)), line);
}
template <typename T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
    const int lane = cuda_host::lane(), source = lane - int(delta);
    return cuda_host::shuffle(cuda_host::UP, mask, value, source < (lane & -width) ? lane : source, line);
}
template <typename T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
    const int lane = cuda_host::lane(), source = lane + int(delta);
    return cuda_host::shuffle(cuda_host::DOWN, mask, value, source > (lane | (width - 1)) ? lane : source, line);
}
template <typename T>
static inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, int line = __builtin_LINE()) {
    const int lane = cuda_host::lane(), source = lane ^ lane_mask;
    return cuda_host::shuffle(cuda_host::ACROSS, mask, value, source > (lane | (width - 1)) ? lane : source, line);
}

static inline void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE()) {
    cuda_host::meet(mask, cuda_host::SYNC, 0, 0, line);
}
static inline unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return cuda_host::meet(mask, cuda_host::BALLOT, predicate != 0, 0, line);
}
static inline int __any_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return __ballot_sync(mask, predicate, line) != 0;
}
static inline int __all_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return __ballot_sync(mask, !predicate, line) == 0;
}
// All lanes that have not returned count as active.
static inline unsigned __activemask() { return cuda_host::block.warp_live[cuda_host::block.running / cuda_host::WARP]; }

template <typename T>
static inline unsigned __match_any_sync(unsigned mask, T value, int line = __builtin_LINE()) {
    uint64_t word = 0;
    memcpy(&word, &value, sizeof value);
    return cuda_host::meet(mask, cuda_host::MATCH, word, 0, line);
}

#define CUDA_HOST_REDUCE(name, operation, type)                                                            \
    static inline type __reduce_##name##_sync(unsigned mask, type value, int line = __builtin_LINE()) {     \
        const unsigned sign = type(-1) < 0 ? cuda_host::SIGNED : 0;                                         \
        return type(cuda_host::meet(mask, cuda_host::operation | sign, unsigned(value), 0, line));          \
    }
CUDA_HOST_REDUCE(add, ADD, int)
CUDA_HOST_REDUCE(add, ADD, unsigned)
CUDA_HOST_REDUCE(min, MIN, int)
CUDA_HOST_REDUCE(min, MIN, unsigned)
CUDA_HOST_REDUCE(max, MAX, int)
CUDA_HOST_REDUCE(max, MAX, unsigned)
CUDA_HOST_REDUCE(and, AND, unsigned)
CUDA_HOST_REDUCE(or, OR, unsigned)
CUDA_HOST_REDUCE(xor, XOR, unsigned)
#undef CUDA_HOST_REDUCE
