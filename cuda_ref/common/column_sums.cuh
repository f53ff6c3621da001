// Sums of the columns of one or two float matrices (parts, n), contiguous, one after the other, in a fixed order. The
// last step of sums over many rows.
#pragma once

#include "common/common.cuh"

constexpr int SUM_COLUMNS = 32, SUM_ROWS = 16;  // of a block

// Thread (c, r) of a block adds the parts r, r + SUM_ROWS, ... of a column; the first row of threads adds these sums.
// blockIdx.y is the number of the matrix.
template <typename T>
__global__ void __launch_bounds__(SUM_COLUMNS* SUM_ROWS)
    column_sums(const float* __restrict__ partial, T* __restrict__ first, T* __restrict__ second, int64_t parts,
                int64_t n) {
    __shared__ float sums[SUM_ROWS][SUM_COLUMNS];
    const int64_t column = int64_t(blockIdx.x) * SUM_COLUMNS + threadIdx.x;
    partial += blockIdx.y * parts * n;
    T* out = blockIdx.y == 0 ? first : second;
    float sum = 0.0f;
    if (column < n) {
        for (int64_t part = threadIdx.y; part < parts; part += SUM_ROWS) sum += partial[part * n + column];
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && column < n) {
        float total = 0.0f;
#pragma unroll
        for (int row = 0; row < SUM_ROWS; ++row) total += sums[row][threadIdx.x];
        out[column] = from_float<T>(total);
    }
}

// second: null if there is one matrix.
template <typename T>
void launch_column_sums(const float* partial, T* first, T* second, int64_t parts, int64_t n, cudaStream_t stream,
                        LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(n, SUM_COLUMNS)), second == nullptr ? 1 : 2);
    const dim3 block(SUM_COLUMNS, SUM_ROWS);
    record->set(grid, block);
    column_sums<T><<<grid, block, 0, stream>>>(partial, first, second, parts, n);
}
