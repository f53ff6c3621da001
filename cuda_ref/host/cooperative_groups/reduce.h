// Reductions of cooperative groups, with the functions of the CUDA header of the same name.
#pragma once

#include "../cooperative_groups.h"

namespace cooperative_groups {

template <typename T>
struct plus {
    T operator()(T a, T b) const { return a + b; }
};
template <typename T>
struct less {
    T operator()(T a, T b) const { return b < a ? b : a; }
};
template <typename T>
struct greater {
    T operator()(T a, T b) const { return a < b ? b : a; }
};
template <typename T>
struct bit_and {
    T operator()(T a, T b) const { return a & b; }
};
template <typename T>
struct bit_or {
    T operator()(T a, T b) const { return a | b; }
};
template <typename T>
struct bit_xor {
    T operator()(T a, T b) const { return a ^ b; }
};

// All threads of the group get the result. Values are combined in pairs, as on a GPU.
template <typename Group, typename T, typename Op>
static inline T reduce(const Group& group, T value, Op op, int line = __builtin_LINE()) {
    if ((group.num_threads() & (group.num_threads() - 1)) == 0) {
        for (unsigned step = group.num_threads() / 2; step; step /= 2)
            value = op(value, group.shfl(value, group.thread_rank() ^ step, line));
        return value;
    }
    T total = group.shfl(value, 0, line);
    for (unsigned rank = 1; rank < group.num_threads(); rank++) total = op(total, group.shfl(value, rank, line));
    return total;
}

}  // namespace cooperative_groups
