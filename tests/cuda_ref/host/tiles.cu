// The grouped tile scheduler and its exact quotients.
#include "common/tiles.cuh"

__global__ void quotients(const int* x, int* out, int n, FastDivisor divisor) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = divisor.quotient(x[i]);
}
extern "C" int quotient(const int* x, int* out, int64_t n, int64_t divisor, cudaStream_t stream, LaunchRecord* record) {
    record->set(1, 32);
    quotients<<<1, 32, 0, stream>>>(x, out, int(n), FastDivisor(uint32_t(divisor)));
    return cudaGetLastError();
}

template <int GROUP_M>
__global__ void visits(int* out, GroupedTileScheduler<GROUP_M> tiles) {
    for (int i = threadIdx.x; i < tiles.count(); i += blockDim.x) {
        const TileCoordinate tile = tiles[i];
        out[2 * i] = tile.m, out[2 * i + 1] = tile.n;
    }
}
extern "C" int visit(int* out, int64_t tiles_m, int64_t tiles_n, int64_t group_m, cudaStream_t stream,
                     LaunchRecord* record) {
    record->set(1, 32);
    if (group_m == 4) {
        visits<<<1, 32, 0, stream>>>(out, GroupedTileScheduler<4>(tiles_m, tiles_n));
    } else {
        visits<<<1, 32, 0, stream>>>(out, GroupedTileScheduler<8>(tiles_m, tiles_n));
    }
    return cudaGetLastError();
}
