// Host side of the matmul kernels on tensor cores: launches in clusters, and launches of one block per tile.
#pragma once

#include <type_traits>

#include "common/tiles.cuh"
#include "hopper/tma.cuh"

// Launches like launch_clusters, for a kernel whose launches take different amounts of shared memory. `most_bytes` is
// the largest: the limit belongs to the kernel, and a lower one could make the launch of another thread fail.
template <typename... Parameters, typename... Arguments>
cudaError_t launch_clusters_up_to(size_t most_bytes, int cluster, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                                  size_t shared_bytes, cudaStream_t stream, LaunchRecord* record,
                                  Arguments... arguments) {
    record->set(grid, block, shared_bytes);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(most_bytes));
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {unsigned(cluster), 1, 1};
    const cudaLaunchConfig_t config = {grid, block, shared_bytes, stream, &attribute, cluster > 1};
    cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
    return cudaGetLastError();  // returns the error and clears it
}

// Launches blocks in clusters of `cluster` blocks. 1 launches them outside of clusters, which assigns them to the GPCs
// in another order than clusters of one block (see tiles.cuh).
template <typename... Parameters, typename... Arguments>
cudaError_t launch_clusters(int cluster, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
                            cudaStream_t stream, LaunchRecord* record, Arguments... arguments) {
    return launch_clusters_up_to(shared_bytes, cluster, kernel, grid, block, shared_bytes, stream, record,
                                 arguments...);
}

// Number of clusters that the device runs at a time, if each block takes all shared memory of a multiprocessor. Some
// GPCs have no room for clusters of four or more. 0 if the driver does not report it.
template <typename... Parameters>
int active_clusters(int cluster, void (*kernel)(Parameters...), int threads, size_t shared_bytes) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared_bytes));
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {unsigned(cluster), 1, 1};
    const cudaLaunchConfig_t config = {dim3(unsigned(cluster)), dim3(unsigned(threads)), shared_bytes, nullptr,
                                       &attribute, 1};
    int clusters = 0;
    return cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) == cudaSuccess ? clusters : 0;
}

// Launches a kernel that may begin before the previous kernel in the stream has ended: see start_next_kernel.
template <typename... Parameters, typename... Arguments>
cudaError_t launch_early(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
                         LaunchRecord* record, Arguments... arguments) {
    record->set(grid, block, shared_bytes);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared_bytes));
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    const cudaLaunchConfig_t config = {grid, block, shared_bytes, stream, &attribute, 1};
    cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
    return cudaGetLastError();
}

struct OperandMaps {
    CUtensorMap a, b;
};

// Launches a kernel in which each block computes one tile of BLOCK_M x BLOCK_N and loads whole tiles of a and b by TMA.
template <int BLOCK_M, int BLOCK_N, int GROUP_M, typename T>
cudaError_t launch_tiles(void (*kernel)(OperandMaps, GroupedTileScheduler<GROUP_M>, T*, int, int, int),
                         const MatrixOperand& a, const MatrixOperand& b, void* out, int64_t K, int threads,
                         int shared_bytes, cudaStream_t stream, LaunchRecord* record) {
    OperandMaps maps;
    if (!encode_operand_map<T>(&maps.a, a, K, BLOCK_M) || !encode_operand_map<T>(&maps.b, b, K, BLOCK_N)) {
        return cudaErrorInvalidValue;
    }
    const GroupedTileScheduler<GROUP_M> tiles(ceil_div<int64_t>(a.rows, BLOCK_M), ceil_div<int64_t>(b.rows, BLOCK_N));
    return launch_clusters(1, kernel, dim3(tiles.count()), threads, shared_bytes, stream, record, maps, tiles,
                           static_cast<T*>(out), a.rows, b.rows, K);
}

// Calls f(zero of the type, A_MN, B_MN) for a 16-bit dtype code and two layouts, the last two as std::bool_constant.
template <typename F>
cudaError_t dispatch_16_bit(int64_t dtype, bool a_mn, bool b_mn, F f) {
    const auto dispatch_layouts = [&](auto zero) {
        constexpr std::true_type yes;
        constexpr std::false_type no;
        return a_mn ? b_mn ? f(zero, yes, yes) : f(zero, yes, no) : b_mn ? f(zero, no, yes) : f(zero, no, no);
    };
    switch (dtype) {
        case FLOAT16: return dispatch_layouts(__half());
        case BFLOAT16: return dispatch_layouts(__nv_bfloat16());
        default: return cudaErrorInvalidValue;
    }
}
