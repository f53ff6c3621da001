// Cooperative groups, and memory of a stream.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include "common.cuh"

namespace cg = cooperative_groups;

struct Pair {
    float most, sum;
};

__global__ void tiles(const float* in, float* out) {
    const cg::thread_block block = cg::this_thread_block();
    const auto warp = cg::tiled_partition<32>(block);
    const auto quad = cg::tiled_partition<4>(warp);
    const int t = block.thread_rank();
    float* mine = out + t * 10;
    mine[0] = warp.thread_rank();
    mine[1] = warp.meta_group_rank();
    mine[2] = quad.meta_group_rank();
    mine[3] = cg::reduce(warp, in[t], cg::plus<float>{});
    mine[4] = cg::reduce(quad, in[t], cg::greater<float>());
    mine[5] = quad.shfl_down(in[t], 1);
    mine[6] = quad.ballot(t % 4 == 2);
    const Pair pair = cg::reduce(warp, Pair{in[t], 1.0f}, [](Pair a, Pair b) {
        return Pair{a.most > b.most ? a.most : b.most, a.sum + b.sum};
    });
    mine[7] = pair.most + pair.sum;
    if (t % 2) {
        const cg::coalesced_group odd(cg::coalesced_threads());
        mine[8] = odd.size() <= 32;
    }
    block.sync();
    mine[9] = cg::this_grid().thread_rank();
}
extern "C" int groups(const float* in, float* out, cudaStream_t stream, LaunchRecord* record) {
    record->set(1, 64);
    float* copy;
    if (const cudaError_t error = cudaMallocAsync(&copy, 64 * sizeof(float), stream)) return error;
    cudaMemcpyAsync(copy, in, 64 * sizeof(float), cudaMemcpyDeviceToDevice, stream);
    tiles<<<1, 64, 0, stream>>>(copy, out);
    const cudaError_t launched = cudaGetLastError();
    const cudaError_t freed = cudaFreeAsync(copy, stream);
    return launched ? launched : freed;
}

__global__ void grid_wide(int* out) {
    out[blockIdx.x] = 1;
    cg::this_grid().sync();
}
extern "C" int grid_sync(int* out, int64_t blocks, cudaStream_t stream, LaunchRecord* record) {
    record->set(blocks, 32);
    grid_wide<<<blocks, 32, 0, stream>>>(out);
    return cudaGetLastError();
}
