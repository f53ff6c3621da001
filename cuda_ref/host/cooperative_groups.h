// Cooperative groups with the functions of the CUDA header of the same name: blocks, tiles of a warp, active lanes.
//
// A grid's threads cannot wait for each other here, since blocks run one after the other: `grid_group::sync` ends the
// launch with cudaErrorNotSupported, unless the grid has one block.
#pragma once

#include "cuda_runtime.h"

namespace cooperative_groups {

namespace details {

static inline unsigned rank_in_block() {
    return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
}
static inline unsigned block_size() { return blockDim.x * blockDim.y * blockDim.z; }
static inline unsigned block_rank() { return (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x; }

}  // namespace details

class thread_block {
  public:
    static unsigned thread_rank() { return details::rank_in_block(); }
    static unsigned num_threads() { return details::block_size(); }
    static unsigned size() { return num_threads(); }
    static dim3 group_index() { return dim3(blockIdx); }
    static dim3 thread_index() { return dim3(threadIdx); }
    static dim3 group_dim() { return blockDim; }
    static dim3 dim_threads() { return blockDim; }
    static void sync(int line = __builtin_LINE()) { __syncthreads(line); }
};
static inline thread_block this_thread_block() { return {}; }

class grid_group {
  public:
    static unsigned long long thread_rank() {
        return uint64_t(details::block_rank()) * details::block_size() + details::rank_in_block();
    }
    static unsigned long long num_threads() { return num_blocks() * details::block_size(); }
    static unsigned long long size() { return num_threads(); }
    static unsigned long long num_blocks() { return uint64_t(gridDim.x) * gridDim.y * gridDim.z; }
    static unsigned long long block_rank() { return details::block_rank(); }
    static dim3 group_dim() { return gridDim; }
    static dim3 dim_blocks() { return gridDim; }
    static bool is_valid() { return num_blocks() == 1; }
    static void sync(int line = __builtin_LINE()) {
        if (num_blocks() > 1)
            cuda_host::decline("line %d: blocks that wait for each other; on a CPU they run one after the other", line);
        __syncthreads(line);
    }
};
static inline grid_group this_grid() { return {}; }

// Lanes of one warp. `mask` has those of the group.
class coalesced_group {
  public:
    explicit coalesced_group(unsigned mask) : mask(mask) {}
    unsigned thread_rank() const { return __popc(mask & ((1u << cuda_host::lane()) - 1)); }
    unsigned num_threads() const { return __popc(mask); }
    unsigned size() const { return num_threads(); }
    void sync(int line = __builtin_LINE()) const { __syncwarp(mask, line); }
    template <typename T>
    T shfl(T value, unsigned source, int line = __builtin_LINE()) const {
        return __shfl_sync(mask, value, lane_of(source % num_threads()), 32, line);
    }
    template <typename T>
    T shfl_down(T value, unsigned delta, int line = __builtin_LINE()) const {
        const unsigned source = thread_rank() + delta;
        return __shfl_sync(mask, value, lane_of(source < num_threads() ? source : thread_rank()), 32, line);
    }
    template <typename T>
    T shfl_up(T value, unsigned delta, int line = __builtin_LINE()) const {
        const unsigned rank = thread_rank();
        return __shfl_sync(mask, value, lane_of(delta <= rank ? rank - delta : rank), 32, line);
    }
    int any(int predicate, int line = __builtin_LINE()) const { return __any_sync(mask, predicate, line); }
    int all(int predicate, int line = __builtin_LINE()) const { return __all_sync(mask, predicate, line); }
    unsigned ballot(int predicate, int line = __builtin_LINE()) const {
        unsigned lanes = __ballot_sync(mask, predicate, line), ranks = 0;
        for (unsigned rank = 0; rank < num_threads(); rank++) ranks |= (lanes >> lane_of(rank) & 1) << rank;
        return ranks;
    }

  private:
    unsigned lane_of(unsigned rank) const {
        unsigned rest = mask;
        for (; rank; rank--) rest &= rest - 1;
        return __builtin_ctz(rest);
    }
    unsigned mask;
};
static inline coalesced_group coalesced_threads() { return coalesced_group(__activemask()); }

// A tile of a power of two of neighbouring threads, at most a warp.
template <unsigned Size, typename Parent = thread_block>
class thread_block_tile {
    static_assert(Size >= 1 && Size <= 32 && (Size & (Size - 1)) == 0, "a tile has 1, 2, 4, 8, 16 or 32 threads");

  public:
    static unsigned thread_rank() { return details::rank_in_block() % Size; }
    static constexpr unsigned num_threads() { return Size; }
    static constexpr unsigned size() { return Size; }
    static unsigned meta_group_rank() { return Parent::thread_rank() / Size; }
    static unsigned meta_group_size() { return (Parent::num_threads() + Size - 1) / Size; }
    static void sync(int line = __builtin_LINE()) { __syncwarp(mask(), line); }
    template <typename T>
    T shfl(T value, int source, int line = __builtin_LINE()) const {
        return __shfl_sync(mask(), value, source, Size, line);
    }
    template <typename T>
    T shfl_down(T value, unsigned delta, int line = __builtin_LINE()) const {
        return __shfl_down_sync(mask(), value, delta, Size, line);
    }
    template <typename T>
    T shfl_up(T value, unsigned delta, int line = __builtin_LINE()) const {
        return __shfl_up_sync(mask(), value, delta, Size, line);
    }
    template <typename T>
    T shfl_xor(T value, int lane_mask, int line = __builtin_LINE()) const {
        return __shfl_xor_sync(mask(), value, lane_mask, Size, line);
    }
    int any(int predicate, int line = __builtin_LINE()) const { return __any_sync(mask(), predicate, line); }
    int all(int predicate, int line = __builtin_LINE()) const { return __all_sync(mask(), predicate, line); }
    unsigned ballot(int predicate, int line = __builtin_LINE()) const {
        return (__ballot_sync(mask(), predicate, line) >> first()) & (Size == 32 ? ~0u : (1u << Size % 32) - 1);
    }

  private:
    static unsigned first() { return cuda_host::lane() / Size * Size; }
    static unsigned mask() { return (Size == 32 ? ~0u : (1u << Size % 32) - 1) << first(); }
};
template <unsigned Size, typename Parent>
static inline thread_block_tile<Size, Parent> tiled_partition(const Parent&) {
    return {};
}

template <typename Group>
static inline void sync(const Group& group, int line = __builtin_LINE()) {
    group.sync(line);
}

}  // namespace cooperative_groups
