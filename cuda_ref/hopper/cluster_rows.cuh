// Rows that the blocks of a cluster share: the exchange of their sums. Needs sm_90a.
#pragma once

#include "common/launch.cuh"
#include "common/rows.cuh"

constexpr int MOST_BLOCKS = 8;    // blocks per cluster; every GPU with clusters can launch this many
constexpr int CLUSTER_MAX = 512;  // threads per block; 8 packs each: two blocks take a multiprocessor's registers

// Gives lane r of each warp the numbers of block r of the cluster, and `neutral` to lanes without a block. The caller
// must end with cluster_wait(), so that a block stays until the others have read its numbers.
__device__ __forceinline__ float2 exchange(float2 own, float2 neutral) {
    __shared__ float2 place, numbers[MOST_BLOCKS];
    if (threadIdx.x == 0) place = own;
    cluster_sync();
    if (threadIdx.x < ctas_in_cluster()) {
        const uint32_t remote = map_shared_rank(shared_address(&place), threadIdx.x);
        float2 x;
        asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(remote) : "memory");
        numbers[threadIdx.x] = x;
    }
    __syncthreads();           // the numbers have arrived, which a relaxed arrival alone does not guarantee
    cluster_arrive_relaxed();  // this block needs no memory of other blocks any more
    const unsigned lane = threadIdx.x % WARP;
    return lane < ctas_in_cluster() ? numbers[lane] : neutral;
}

// Launches a kernel in which each cluster of `cluster` blocks computes one row.
template <typename... Parameters, typename... Arguments>
cudaError_t launch_shared_rows(void (*kernel)(Parameters...), int64_t m, int64_t cluster, int64_t threads,
                               cudaStream_t stream, LaunchRecord* record, Arguments... arguments) {
    if (cluster > MOST_BLOCKS || threads > CLUSTER_MAX) return cudaErrorInvalidValue;
    const dim3 grid(unsigned(m * cluster)), block{unsigned(threads)};
    return launch_clusters(int(cluster), kernel, grid, block, 0, stream, record, arguments...);
}
