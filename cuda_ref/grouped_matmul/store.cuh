// The end of a tile in products over groups: rows of the output that belong to the next expert are not written.
#pragma once

#include "hopper/epilogue.cuh"

// Stores a consumer's 64 rows of sums, box by box. Rows from `end` on belong to the next expert and are not stored.
template <typename T, int COUNT>
__device__ __forceinline__ void store_rows(const CUtensorMap* map, T* __restrict__ out, const float (&acc)[COUNT],
                                           uint32_t shared, const char* boxes, int consumer, int thread, int m, int n,
                                           int end, int N) {
    static_assert(COUNT % 64 == 0, "an even number of boxes, which alternate");
    const bool by_tma = m + 64 <= end && N % (16 / sizeof(T)) == 0;
#pragma unroll
    for (int j = 0; j < COUNT / 4; j += 8) {
        const int offset = j / 8 % 2 * BOX_BYTES, column = n + j * 8;
        if (thread == 0) tma_store_wait_group_read<1>();
        named_barrier_sync(1 + consumer, WARPGROUP);  // the box may be overwritten
        write_box<T, false>(shared + offset, acc, j, thread);
        fence_proxy_async();
        named_barrier_sync(1 + consumer, WARPGROUP);
        if (by_tma) {
            if (thread == 0 && column < N) tma_store(map, shared + offset, column, m);
        } else if (column < N) {
            store_box_directly(out, boxes + offset, thread, m, column, end, N);
        }
        if (thread == 0) tma_store_commit_group();
    }
}
