// launch_clusters, active_clusters and launch_early of cuda_ref/common/launch.cuh on a CPU.
#pragma once

#include "common/tiles.cuh"
#include "hopper/tma.cuh"

struct OperandMaps {
    CUtensorMap a, b;
};

template <typename Kernel, typename... Arguments>
cudaError_t launch_clusters(int, Kernel kernel, dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
                            LaunchRecord* record, Arguments... arguments) {
    record->set(grid, block, shared_bytes);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared_bytes));
    ::cuda_host::launch(::cuda_host::address(kernel), [&](auto... given) { kernel(given...); }, grid, block,
                        shared_bytes, stream)(arguments...);
    return cudaGetLastError();
}

template <typename Kernel>
int active_clusters(int, Kernel, int, size_t) {
    return 2;  // few, so that each computes several tiles
}

template <typename Kernel, typename... Arguments>
cudaError_t launch_early(Kernel kernel, dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
                         LaunchRecord* record, Arguments... arguments) {
    return launch_clusters(1, kernel, grid, block, shared_bytes, stream, record, arguments...);
}
