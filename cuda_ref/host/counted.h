// Counts what the warps of a launch do: requests to memory, sectors of 32 bytes, bank conflicts, divergent branches.
//
// -fsanitize-coverage=trace-pc calls a function of this header in each basic block, checked.h one for each access. Both
// are kept in the order of each thread. When all threads of a warp have come to a barrier or returned, the warp runs
// again on paper: its lanes take each basic block together, and part at a branch. They meet again at the branch's
// immediate post-dominator, the first block on all paths that follow, as the compilers of GPUs arrange it.
//
// The code of a compiler for a GPU may differ: it merges neighbouring accesses, and replaces short branches
// by predicates.
#pragma once

#include <dlfcn.h>

namespace cuda_host {

enum Kind : uint32_t { BLOCK, LOAD, STORE, SHARED_LOAD, SHARED_STORE, ATOMIC, BARRIERS };

#ifndef CUDA_HOST_COUNTED

static inline void note_access(Kind, uintptr_t, size_t, uintptr_t) {}
static inline void begin_kernel(const char*) {}
static inline void begin_thread() {}
static inline void end_thread() {}
static inline void reach_barrier(int) {}

#else

#define CUDA_HOST_COUNTER CUDA_HOST_UNCOUNTED __attribute__((no_sanitize("thread"), noinline))

struct Counts {  // in the order of FIELDS in build/counting.py
    uint64_t launches, blocks, warps, loads, load_sectors, stores, store_sectors, shared_loads, shared_stores, conflicts,
        atomics, barriers, divergent;
};
struct Kernel {
    char name[160];
    Counts counts;
    uint64_t* executed;  // by node: how often a lane has run it
    int nodes;
};
constexpr int MAX_KERNELS = 256;
static Kernel kernels[MAX_KERNELS];
static int kernel_count = 0, kernel = 0;

// Accesses of the threads since the last barrier.
struct Event {
    uintptr_t place, at;  // of a basic block: its address, its node
    uint32_t bytes;
    Kind kind;
};
struct Lane {
    Event* events;
    size_t count, capacity, next;
    int node;  // the basic block in which it is
};
static Lane lanes[MAX_THREADS];
constexpr size_t MAX_EVENTS = size_t(1) << 25;  // of all threads
static size_t event_capacity = 0;
static uint32_t at_barrier[MAX_THREADS / WARP];

CUDA_HOST_COUNTER static void note(Kind kind, uintptr_t place, uintptr_t at, size_t bytes) {
    Lane& lane = lanes[block.running];
    if (lane.count == lane.capacity) {
        const size_t more = lane.capacity ? lane.capacity : 1024;
        if (event_capacity + more > MAX_EVENTS)
            fail(cudaErrorMemoryAllocation, "too many steps to count; take a smaller case");
        event_capacity += more;
        lane.capacity += more;
        lane.events = static_cast<Event*>(realloc(lane.events, lane.capacity * sizeof(Event)));
    }
    lane.events[lane.count++] = {place, at, uint32_t(bytes), kind};
}

// A longer access takes several instructions, of 16 bytes at most.
CUDA_HOST_COUNTER static void note_access(Kind kind, uintptr_t at, size_t bytes, uintptr_t place) {
    const size_t piece = bytes <= 16 ? bytes : bytes % 16 == 0 && at % 16 == 0 ? 16 : 4;
    for (size_t i = 0; i < bytes; i += piece) note(kind, place, at + i, bytes - i < piece ? bytes - i : piece);
}

// The observed control flow: basic blocks as nodes. Node 0 is the end of a thread and of its way to a barrier.
struct Node {
    uintptr_t place;
    int successors[2], more;  // `more` is the index of a node that has further successors, as those of a switch
    int meets;                // the immediate post-dominator
    int order;                // in a walk backwards from node 0; -1: not reached
};
constexpr int MAX_NODES = 1 << 16, BUCKETS = 1 << 17;
static Node nodes[MAX_NODES] = {{0, {-1, -1}, -1, 0, 0}};
static int node_count = 1, buckets[BUCKETS];
static bool graph_changed = true;

CUDA_HOST_COUNTER static int fresh_node(uintptr_t place) {
    if (node_count == MAX_NODES) fail(cudaErrorMemoryAllocation, "too many basic blocks to count");
    nodes[node_count] = {place, {-1, -1}, -1, 0, -1};
    return node_count++;
}

CUDA_HOST_COUNTER static int node_of(uintptr_t place) {
    size_t i = place * 0x9e3779b97f4a7c15u >> 47;
    while (buckets[i] && nodes[buckets[i]].place != place) i = (i + 1) % BUCKETS;
    if (buckets[i] == 0) buckets[i] = fresh_node(place);
    return buckets[i];
}

CUDA_HOST_COUNTER static void connect(int from, int to) {
    for (;;) {
        Node& node = nodes[from];
        for (int& each : node.successors) {
            if (each == to) return;
            if (each >= 0) continue;
            each = to;
            graph_changed = true;
            return;
        }
        if (node.more < 0) node.more = fresh_node(0);
        from = nodes[from].more;
    }
}

// Successor i of a node; -1 if there are fewer.
CUDA_HOST_COUNTER static int successor(int node, int i) {
    for (; i >= 2 && node >= 0; i -= 2) node = nodes[node].more;
    return node < 0 ? -1 : nodes[node].successors[i];
}

// Immediate post-dominators, by the iteration of Cooper, Harvey and Kennedy (2001) over the reversed graph.
CUDA_HOST_COUNTER static void find_meeting_points() {
    static int *post = nullptr, *first = nullptr, *edges = nullptr, *stack = nullptr;
    const size_t words = sizeof(int) * (node_count + 1);
    post = static_cast<int*>(realloc(post, words));
    first = static_cast<int*>(realloc(first, words + sizeof(int)));
    stack = static_cast<int*>(realloc(stack, 2 * words));
    memset(first, 0, words + sizeof(int));
    for (int i = 0; i < node_count; i++)
        for (int n = 0, to; nodes[i].place && (to = successor(i, n)) >= 0; n++) first[to + 2]++;
    for (int i = 1; i < node_count; i++) first[i + 1] += first[i];
    edges = static_cast<int*>(realloc(edges, sizeof(int) * (first[node_count] + 1)));
    for (int i = 0; i < node_count; i++)  // predecessors of node n: edges[first[n]] ... edges[first[n + 1] - 1]
        for (int n = 0, to; nodes[i].place && (to = successor(i, n)) >= 0; n++) edges[first[to + 1]++] = i;
    for (int i = 0; i < node_count; i++) nodes[i].order = -1, nodes[i].meets = -1;
    int used = 0, depth = 0;
    nodes[0].order = 0;
    stack[depth++] = 0, stack[depth++] = first[0];
    while (depth) {
        const int node = stack[depth - 2], next = stack[depth - 1];
        if (next == first[node + 1]) {
            nodes[node].order = used;
            post[used++] = node;
            depth -= 2;
            continue;
        }
        stack[depth - 1]++;
        if (nodes[edges[next]].order >= 0) continue;
        nodes[edges[next]].order = 0;
        stack[depth++] = edges[next], stack[depth++] = first[edges[next]];
    }
    nodes[0].meets = 0;
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = used - 2; i >= 0; i--) {
            int meets = -1;
            for (int n = 0, other; (other = successor(post[i], n)) >= 0; n++) {
                if (nodes[other].meets < 0) continue;
                if (meets < 0) meets = other;
                while (meets != other) {
                    while (nodes[meets].order < nodes[other].order) meets = nodes[meets].meets;
                    while (nodes[other].order < nodes[meets].order) other = nodes[other].meets;
                }
            }
            if (meets >= 0 && nodes[post[i]].meets != meets) nodes[post[i]].meets = meets, changed = true;
        }
    }
    graph_changed = false;
}

// The number of distinct units of `size` bytes that the lanes touch.
CUDA_HOST_COUNTER static int distinct_units(const Event* const* events, int count, uintptr_t size) {
    uintptr_t seen[WARP * 2];
    int found = 0;
    for (int i = 0; i < count; i++)
        for (uintptr_t unit = events[i]->at / size; unit <= (events[i]->at + events[i]->bytes - 1) / size; unit++) {
            int j = found - 1;
            while (j >= 0 && seen[j] != unit) j--;
            if (j < 0 && found < WARP * 2) seen[found++] = unit;
        }
    return found;
}

// Wavefronts of a request to shared memory beyond those that its width needs. 32 banks of 4 bytes serve a word each;
// lanes that want the same word share it. Accesses of 8 and 16 bytes are served by halves and quarters of a warp.
CUDA_HOST_COUNTER static int bank_conflicts(const Event* const* events, const int* numbers, int count) {
    const uint32_t bytes = events[0]->bytes;
    const int share = bytes <= 4 ? WARP : bytes <= 8 ? WARP / 2 : WARP / 4;
    int conflicts = 0;
    for (int begin = 0; begin < WARP; begin += share) {
        uintptr_t words[WARP * 4];
        int found = 0, load[32] = {}, most = 0;
        for (int i = 0; i < count; i++) {
            if (numbers[i] < begin || numbers[i] >= begin + share) continue;
            for (uintptr_t word = events[i]->at / 4; word <= (events[i]->at + bytes - 1) / 4 && found < WARP * 4; word++) {
                int j = found - 1;
                while (j >= 0 && words[j] != word) j--;
                if (j >= 0) continue;
                words[found++] = word;
                if (++load[word % 32] > most) most = load[word % 32];
            }
        }
        conflicts += most > 1 ? most - 1 : 0;
    }
    return conflicts;
}

// One instruction of the lanes `group` of a warp, all at the same place.
CUDA_HOST_COUNTER static void issue(int warp, uint32_t group) {
    const Event* events[WARP];
    int numbers[WARP], count = 0;
    for (uint32_t rest = group; rest; rest &= rest - 1) {
        numbers[count] = __builtin_ctz(rest);
        Lane& lane = lanes[warp * WARP + numbers[count]];
        const Event& event = lane.events[lane.next++];
        if (event.kind == BARRIERS) lane.node = node_of(event.place);
        events[count++] = &event;
    }
    Counts& counts = kernels[kernel].counts;
    switch (events[0]->kind) {
        case LOAD: counts.loads++, counts.load_sectors += distinct_units(events, count, 32); break;
        case STORE: counts.stores++, counts.store_sectors += distinct_units(events, count, 32); break;
        case SHARED_LOAD: counts.shared_loads++, counts.conflicts += bank_conflicts(events, numbers, count); break;
        case SHARED_STORE: counts.shared_stores++, counts.conflicts += bank_conflicts(events, numbers, count); break;
        case ATOMIC: counts.atomics++; break;
        case BARRIERS: counts.barriers++; break;
        case BLOCK: break;
    }
}

// Runs the lanes `mask` of a warp until all are at the node `stop`, or have no more events.
CUDA_HOST_COUNTER static void replay(int warp, uint32_t mask, int stop) {
    Lane* const of_warp = lanes + warp * WARP;
    while (mask) {
        uint32_t at_block = 0, group = 0;
        const Event* leader = nullptr;
        for (uint32_t rest = mask; rest; rest &= rest - 1) {
            const int i = __builtin_ctz(rest);
            const Lane& lane = of_warp[i];
            if (lane.next == lane.count) {
                mask &= ~(1u << i);
                continue;
            }
            const Event& event = lane.events[lane.next];
            if (event.kind == BLOCK) {
                at_block |= 1u << i;
                continue;
            }
            if (leader == nullptr) leader = &event;
            if (event.place == leader->place && event.kind == leader->kind) group |= 1u << i;
        }
        if (group) {
            issue(warp, group);
            continue;
        }
        if (at_block == 0) return;
        const Lane& first = of_warp[__builtin_ctz(at_block)];
        const int target = int(first.events[first.next].at), from = first.node;
        uint32_t same = 0;
        for (uint32_t rest = at_block; rest; rest &= rest - 1) {
            const Lane& lane = of_warp[__builtin_ctz(rest)];
            if (int(lane.events[lane.next].at) == target) same |= rest & -rest;
        }
        if (same == at_block) {
            if (target == stop) return;
            Kernel& k = kernels[kernel];
            for (uint32_t rest = same; rest; rest &= rest - 1) {
                Lane& lane = of_warp[__builtin_ctz(rest)];
                lane.node = target;
                lane.next++;
            }
            k.executed[target] += __builtin_popcount(same);
            continue;
        }
        kernels[kernel].counts.divergent++;
        const int meets = nodes[from].meets;
        for (uint32_t rest = at_block; rest;) {
            const Lane& lane = of_warp[__builtin_ctz(rest)];
            const int to = int(lane.events[lane.next].at);
            uint32_t part = 0;
            for (uint32_t others = rest; others; others &= others - 1) {
                const Lane& other = of_warp[__builtin_ctz(others)];
                if (int(other.events[other.next].at) == to) part |= others & -others;
            }
            rest &= ~part;
            if (to != meets) replay(warp, part, meets);
        }
    }
}

// Runs a warp on paper, whose lanes all wait at a barrier or have returned.
CUDA_HOST_COUNTER static void replay_warp(int warp) {
    uint32_t mask = 0;
    for (int i = 0; i < WARP; i++) {
        Lane& lane = lanes[warp * WARP + i];
        int node = lane.node;
        for (size_t n = 0; n < lane.count; n++) {
            Event& event = lane.events[n];
            if (event.kind == BARRIERS) connect(node, 0), node = node_of(event.place);
            if (event.kind != BLOCK) continue;
            const int next = node_of(event.place);
            event.at = next;
            connect(node, next);
            node = next;
        }
        if (block.threads[warp * WARP + i].wait == LEFT) connect(node, 0);
        if (lane.count) mask |= 1u << i;
    }
    if (graph_changed) find_meeting_points();
    Kernel& k = kernels[kernel];
    if (k.nodes < node_count) {
        k.executed = static_cast<uint64_t*>(realloc(k.executed, node_count * sizeof(uint64_t)));
        memset(k.executed + k.nodes, 0, (node_count - k.nodes) * sizeof(uint64_t));
        k.nodes = node_count;
    }
    replay(warp, mask, -1);
    for (int i = 0; i < WARP; i++) lanes[warp * WARP + i].count = lanes[warp * WARP + i].next = 0;
}

// Counts a warp as soon as no thread of it can go on without the others of its block.
CUDA_HOST_COUNTER static void replay_if_complete(int warp) {
    if (at_barrier[warp] != block.warp_live[warp]) return;
    replay_warp(warp);
    at_barrier[warp] = 0;
}

CUDA_HOST_COUNTER static void reach_barrier(int line) {
    note(BARRIERS, uintptr_t(1) << 63 | unsigned(line), 0, 0);
    const int warp = block.running / WARP;
    at_barrier[warp] |= 1u << block.running % WARP;
    replay_if_complete(warp);
}

CUDA_HOST_COUNTER static void begin_thread() {
    lanes[block.running].node = node_of(kernel + 1);
    quiet = false;
}

CUDA_HOST_COUNTER static void end_thread() {
    quiet = true;
    replay_if_complete(block.running / WARP);
}

CUDA_HOST_COUNTER static void begin_kernel(const char* name) {
    quiet = true;
    for (Lane& lane : lanes) lane.count = lane.next = 0;
    memset(at_barrier, 0, sizeof at_barrier);
    for (kernel = 0; kernel < kernel_count; kernel++)
        if (strcmp(kernels[kernel].name, name) == 0) break;
    if (kernel == MAX_KERNELS) kernel--;
    if (kernel == kernel_count) snprintf(kernels[kernel_count++].name, sizeof kernels[0].name, "%s", name);
    Counts& counts = kernels[kernel].counts;
    counts.launches++;
    counts.blocks += block.blocks_left;
    counts.warps += block.blocks_left * ((block.count + WARP - 1) / WARP);
}

// Writes a line for each kernel, and below it one for each basic block: its address in the library, how often run.
CUDA_HOST_COUNTER static void write_counts(const char* path) {
    FILE* file = fopen(path, "w");
    if (file == nullptr) return;
    Dl_info info;
    dladdr(reinterpret_cast<const void*>(&write_counts), &info);
    const uintptr_t base = reinterpret_cast<uintptr_t>(info.dli_fbase);
    for (int i = 0; i < kernel_count; i++) {
        Kernel& k = kernels[i];
        fprintf(file, "kernel\t%s", k.name);
        const uint64_t* const counts = reinterpret_cast<const uint64_t*>(&k.counts);
        for (size_t n = 0; n < sizeof(Counts) / sizeof(uint64_t); n++) fprintf(file, "\t%lu", counts[n]);
        fprintf(file, "\n");
        for (int n = 1; n < k.nodes; n++)
            if (k.executed[n]) fprintf(file, "block\t%lx\t%lu\n", nodes[n].place - base, k.executed[n]);
        free(k.executed);
        k = Kernel();
    }
    kernel_count = 0;
    fclose(file);
}

static struct AtExit {
    CUDA_HOST_UNCOUNTED ~AtExit() {
        if (const char* path = getenv("CUDA_HOST_COUNTS")) write_counts(path);
    }
} at_exit;

#endif

}  // namespace cuda_host

#ifdef CUDA_HOST_COUNTED

// Writes the counts since the last call, and begins anew.
extern "C" CUDA_HOST_UNCOUNTED __attribute__((visibility("default"), used)) inline void cuda_host_counts(const char* path) {
    cuda_host::write_counts(path);
}

// Called at the begin of each basic block.
extern "C" CUDA_HOST_UNCOUNTED __attribute__((visibility("hidden"), used, no_sanitize("thread"))) inline void
__sanitizer_cov_trace_pc() {
    using namespace cuda_host;
    if (!quiet && in_kernel() && !block.failed) note(BLOCK, reinterpret_cast<uintptr_t>(__builtin_return_address(0)), 0, 0);
}

#endif
