// The functions of cuda_ref/hopper/tma.cuh that attention uses, on a CPU. Loads are done at once, stores when they are waited
// for.
#pragma once

#include "hopper/mbarrier.cuh"

struct CUtensorMap {
    const char* base;
    int64_t sizes[4], strides[4];
    int rows;  // of a box of 64 columns
};

template <typename T>
constexpr int TENSOR_MAP_TYPE = 0;

template <int RANK>
bool encode_tensor_map(CUtensorMap* map, int, int element_bytes, const void* base, const int64_t (&sizes)[RANK],
                       const int64_t (&strides)[RANK - 1], const int (&box_outer)[RANK - 1]) {
    static_assert(RANK == 4, "");
    if (element_bytes != 2) stop("written for 16 bits");
    *map = {static_cast<const char*>(base), {}, {1}, box_outer[0]};
    for (int i = 0; i < RANK; ++i) map->sizes[i] = sizes[i];
    for (int i = 1; i < RANK; ++i) map->strides[i] = strides[i - 1];
    return true;
}

inline void tma_prefetch_descriptor(const CUtensorMap*) {}
inline void tma_load(uint32_t to, const CUtensorMap* map, int x, int y, int z, int w, uint32_t barrier) {
    for (int row = 0; row < map->rows; ++row) {
        for (int column = 0; column < 64; ++column) {
            const int64_t at[] = {x + column, y + row, z, w};
            int64_t offset = 0;
            bool inside = true;
            for (int i = 0; i < 4; ++i) offset += at[i] * map->strides[i], inside &= at[i] < map->sizes[i];
            uint16_t element = 0;
            if (inside) memcpy(&element, map->base + 2 * offset, sizeof element);
            memcpy(swizzled(to + row * ROW_BYTES + column * 2), &element, sizeof element);
        }
    }
    mbarrier_count(barrier, 0, -map->rows * ROW_BYTES);
}

inline void bulk_load(uint32_t to, const void* from, int bytes, uint32_t barrier) {
    memcpy(shared_pointer(to), from, bytes);
    mbarrier_count(barrier, 0, -bytes);
}

inline Deferred& bulk_stores() {
    static Deferred stores[1024];
    return stores[threadIdx.x];
}
inline void bulk_store(float* to, uint32_t from, int bytes) {
    bulk_stores().push_back([=] { memcpy(to, shared_pointer(from), bytes); });
}
inline void bulk_add(float* to, uint32_t from, int bytes) {
    bulk_stores().push_back([=] {
        const float* const x = reinterpret_cast<const float*>(shared_pointer(from));
        for (int i = 0; i < bytes / 4; ++i) to[i] += x[i];
    });
}
inline void tma_store_commit_group() {}
template <int PRIOR>
void tma_store_wait_group_read() {
    static_assert(PRIOR == 0, "");
    run_all(bulk_stores());
}
inline void tma_store_wait_complete() { run_all(bulk_stores()); }
