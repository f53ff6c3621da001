// Epilogues store the sums of a warpgroup, in the fragment layout of wgmma (see wgmma.cuh), to out.
#pragma once

#include "hopper/tma.cuh"

// Stores directly from registers, two elements at a time, with bounds checks: the 64 x 2 COUNT sums of a warpgroup,
// from (m, n) of the row-major out on. `thread` is 0 ... 127.
template <typename T, int COUNT>
__device__ __forceinline__ void store_from_registers(T* __restrict__ out, const float (&acc)[COUNT], int thread, int m,
                                                     int n, int M, int N) {
    const int row = m + thread / 32 * 16 + thread % 32 / 4, column = n + thread % 4 * 2;
#pragma unroll
    for (int i = 0; i < COUNT; i += 2) {
        const int r = row + i % 4 / 2 * 8, c = column + i / 4 * 8;
        if (r >= M || c >= N) continue;
        T* const to = out + int64_t(r) * N + c;
        const Pack<T, 2> pair = {from_float<T>(acc[i]), from_float<T>(acc[i + 1])};
        if (N % 2 == 0) {
            *reinterpret_cast<Pack<T, 2>*>(to) = pair;
        } else {
            to[0] = pair[0];
            if (c + 1 < N) to[1] = pair[1];
        }
    }
}

// The functions below store through shared memory: sums are rounded, written to swizzled boxes, and stored by TMA.

// Fragments of A that threads read from an MN-major tile (tf32) take its rows in another order: row r of the product is
// row permuted_row(r) of the tile. A warp that reads eight rows and four k then accesses 32 different banks.
__device__ __forceinline__ int permuted_row(int r) { return r / 32 * 32 + r % 32 / 8 * 4 + r % 8 / 4 * 16 + r % 4; }

// Writes 64 rows of the sums, from column 8 j on, to a box that is 128 bytes wide.
template <typename T, bool PERMUTED, int COUNT>
__device__ __forceinline__ void write_box(uint32_t box, const float (&acc)[COUNT], int j, int thread) {
    const int lane = thread % 32, warp_row = thread / 32 * 16;
    if constexpr (sizeof(T) == 2) {
        const int row = warp_row + lane % 16, chunk = lane / 16;
#pragma unroll
        for (int i = 0; i < 8; i += 2) {
            uint32_t x[4];
#pragma unroll
            for (int matrix = 0; matrix < 4; ++matrix) {
                const float* pair = &acc[(j + i) * 4 + matrix * 2];
                const Pack<T, 2> rounded = {from_float<T>(pair[0]), from_float<T>(pair[1])};
                memcpy(&x[matrix], &rounded, 4);
            }
            stmatrix_x4(box + row * ROW_BYTES + ((i + chunk) ^ row % 8) * 16, x);
        }
    } else {
#pragma unroll
        for (int i = 0; i < 8; ++i) {  // four times eight columns of rows r and r + 8
            const int r = warp_row + lane / 4 + i % 2 * 8, row = PERMUTED ? permuted_row(r) : r;
            const int chunk = i / 2 * 2 + lane % 4 / 2;
            const float* pair = &acc[(j + i / 2) * 4 + i % 2 * 2];
            store_shared(box + row * ROW_BYTES + (chunk ^ row % 8) * 16 + lane % 2 * 8, make_float2(pair[0], pair[1]));
        }
    }
}

// Writes the transpose of 64 rows and 64 columns of float32 sums, from column 8 j on, to two boxes of 64 rows and 32
// columns.
template <int COUNT>
__device__ __forceinline__ void write_boxes_transposed(uint32_t boxes, const float (&acc)[COUNT], int j, int thread) {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
        const int column = permuted_row(thread / 32 * 16 + thread % 32 / 4 + i % 4 / 2 * 8);
        const int row = i / 4 * 8 + thread % 4 * 2 + i % 2;
        const int offset = row * ROW_BYTES + (column % 32 / 4 ^ row % 8) * 16 + column % 4 * 4;
        store_shared(boxes + column / 32 * BOX_BYTES + offset, acc[j * 4 + i]);
    }
}

// Stores a box of 64 rows to out, from (m, n) on, 8 aligned bytes at a time. A row's first group begins before the box
// if its first element is not at a multiple of 8 bytes. Not inlined: four copies of this code would lie between the
// instructions of a kernel that stores by TMA, and slow down their fetching.
template <typename T>
__device__ __noinline__ void store_box_directly(T* __restrict__ out, const char* box, int thread, int m, int n, int M,
                                                   int N) {
    constexpr int COLUMNS = ROW_BYTES / sizeof(T), WIDTH = 8 / sizeof(T), GROUPS = COLUMNS / WIDTH + 1;
    const int columns = min(COLUMNS, N - n);
#pragma unroll 3
    for (int i = thread; i < 64 * GROUPS; i += WARPGROUP) {
        const int row = i / GROUPS;
        if (m + row >= M) continue;
        T* const to = out + int64_t(m + row) * N + n;
        const int column = i % GROUPS * WIDTH - int(reinterpret_cast<uintptr_t>(to) / sizeof(T) % WIDTH);
        Pack<T, WIDTH> group;
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            const int byte = max(0, min(column + j, COLUMNS - 1)) * int(sizeof(T));
            group[j] = *reinterpret_cast<const T*>(box + row * ROW_BYTES + (byte / 16 ^ row % 8) * 16 + byte % 16);
        }
        if (column >= 0 && column + WIDTH <= columns) {
            *reinterpret_cast<Pack<T, WIDTH>*>(to + column) = group;
        } else {
#pragma unroll
            for (int j = 0; j < WIDTH; ++j) {
                if (column + j >= 0 && column + j < columns) to[column + j] = group[j];
            }
        }
    }
}

// Stores a box of 64 rows to out, from (m, n) on; by TMA if the rows of out are multiples of 16 bytes.
template <typename T>
__device__ __forceinline__ void store_box(const CUtensorMap* map, T* __restrict__ out, uint32_t shared, const char* box,
                                          int thread, int m, int n, int M, int N) {
    if (N % (16 / sizeof(T)) == 0) {
        if (thread == 0) tma_store(map, shared, n, m);
    } else if (n < N) {
        store_box_directly(out, box, thread, m, n, M, N);
    }
}

// Stores the 64 rows of consumer `consumer`, from (m, n) of the product on, box by box; TMA reads one box while the
// next is written. If TRANSPOSED, out is the transpose of the product; M and N are the sizes of out in either case.
template <typename T, bool PERMUTED, bool TRANSPOSED, int COUNT>
__device__ __forceinline__ void store_through_shared(const CUtensorMap* map, T* __restrict__ out,
                                                     const float (&acc)[COUNT], uint32_t shared, const char* boxes,
                                                     int consumer, int thread, int m, int n, int M, int N) {
    constexpr int COLUMNS = TRANSPOSED ? 64 : ROW_BYTES / sizeof(T);  // columns of the product per iteration
    constexpr bool SAME_BOX = COUNT / 4 / (COLUMNS / 8) % 2 == 1;  // true if the first box is that of the last store
#pragma unroll
    for (int j = 0; j < COUNT / 4; j += COLUMNS / 8) {
        const int offset = TRANSPOSED ? 0 : j / (COLUMNS / 8) % 2 * BOX_BYTES;
        if (thread == 0) {
            if (TRANSPOSED || (SAME_BOX && j == 0)) {
                tma_store_wait_group_read<0>();
            } else {
                tma_store_wait_group_read<1>();
            }
        }
        named_barrier_sync(1 + consumer, WARPGROUP);  // the boxes may be overwritten
        if constexpr (TRANSPOSED) {
            write_boxes_transposed(shared, acc, j, thread);
        } else {
            write_box<T, PERMUTED>(shared + offset, acc, j, thread);
        }
        fence_proxy_async();
        named_barrier_sync(1 + consumer, WARPGROUP);
        if constexpr (TRANSPOSED) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int box = i * BOX_BYTES;
                store_box(map, out, shared + box, boxes + box, thread, n + j * 8, m + i * 32, M, N);
            }
        } else {
            store_box(map, out, shared + offset, boxes + offset, thread, m, n + j * 8, M, N);
        }
        if (thread == 0) tma_store_commit_group();
    }
}

// store_through_shared for 16 bits, with a box for each 64 columns: all are written before the first is stored.
template <int BOXES, typename T, int COUNT>
__device__ __forceinline__ void store_boxes(const CUtensorMap* map, T* __restrict__ out, const float (&acc)[COUNT],
                                            uint32_t shared, const char* boxes, int consumer, int thread, int m, int n,
                                            int M, int N) {
    if (thread == 0) tma_store_wait_group_read<0>();
    named_barrier_sync(1 + consumer, WARPGROUP);
#pragma unroll
    for (int box = 0; box < BOXES; ++box) write_box<T, false>(shared + box * BOX_BYTES, acc, box * 8, thread);
    fence_proxy_async();
    named_barrier_sync(1 + consumer, WARPGROUP);
#pragma unroll
    for (int box = 0; box < BOXES; ++box) {
        store_box(map, out, shared + box * BOX_BYTES, boxes + box * BOX_BYTES, thread, m, n + box * 64, M, N);
    }
    if (thread == 0) tma_store_commit_group();
}
