// Exercise cuda/14_transpose: shared memory makes both sides coalesced.
//
// out[n, m] = x[m, n]. A block of 32 x 8 threads reads a tile of 32 x 32 elements along the rows of x, and writes it
// along the rows of out: in each access the lanes of a warp use neighbouring addresses.
#include "common.cuh"

constexpr int TILE = 32, ROWS = 8;

__global__ void transpose_kernel(const float* x, float* out, int64_t M, int64_t N) {
    __shared__ float tile[TILE][TILE + 1];  // + 1: the elements of a column lie in different banks
    const int64_t first_m = int64_t(blockIdx.y) * TILE, first_n = int64_t(blockIdx.x) * TILE;
    for (int i = threadIdx.y; i < TILE; i += ROWS) {
        const int64_t m = first_m + i, n = first_n + threadIdx.x;
        if (m < M && n < N) tile[i][threadIdx.x] = x[m * N + n];
    }
    __syncthreads();
    for (int i = threadIdx.y; i < TILE; i += ROWS) {
        // TODO: write row first_n + i of out, at column first_m + threadIdx.x, if both exist. The element stands in the
        // tile at the row of its m and the column of its n, counted from the tile's corner.
        const int64_t n = first_n + i, m = first_m + threadIdx.x;
        if (m < M && n < N) out[n * M + m] = tile[threadIdx.x][i];
        // END
    }
}

extern "C" int transpose(const float* x, float* out, int64_t M, int64_t N, int64_t dtype, cudaStream_t stream,
                         LaunchRecord* record) {
    const dim3 block(TILE, ROWS), grid(unsigned(ceil_div<int64_t>(N, TILE)), unsigned(ceil_div<int64_t>(M, TILE)));
    record->set(grid, block);
    transpose_kernel<<<grid, block, 0, stream>>>(x, out, M, N);
    return cudaGetLastError();
}
