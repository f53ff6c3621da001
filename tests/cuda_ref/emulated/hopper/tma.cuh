// The functions of cuda_ref/hopper/tma.cuh on a CPU, as far as the kernels that are emulated need them. Loads are done at
// once, stores when they are waited for.
#pragma once

#include "hopper/mbarrier.cuh"

struct Float8 {
    uint8_t bits;
};

struct CUtensorMap {
    const char* base;
    int64_t sizes[4], strides[4];
    int rows, element_bytes;  // of a box of 128 bytes
};

template <typename T>
constexpr int TENSOR_MAP_TYPE = 0;
constexpr int CU_TENSOR_MAP_DATA_TYPE_FLOAT32 = 0;

template <int RANK>
bool encode_tensor_map(CUtensorMap* map, int, int element_bytes, const void* base, const int64_t (&sizes)[RANK],
                       const int64_t (&strides)[RANK - 1], const int (&box_outer)[RANK - 1]) {
    *map = {static_cast<const char*>(base), {1, 1, 1, 1}, {1}, box_outer[0], element_bytes};
    for (int i = 0; i < RANK; ++i) map->sizes[i] = sizes[i];
    for (int i = 1; i < RANK; ++i) map->strides[i] = strides[i - 1];
    return true;
}

inline bool encode_tensor_map(CUtensorMap* map, int type, int element_bytes, const void* base, int64_t inner,
                              int64_t outer, int64_t stride, int box_outer) {
    return encode_tensor_map<2>(map, type, element_bytes, base, {inner, outer}, {stride}, {box_outer});
}

struct MatrixOperand {
    const void* data;
    bool mn_major;
    int64_t rows, stride;
};
template <typename T>
bool encode_operand_map(CUtensorMap* map, const MatrixOperand& x, int64_t K, int box_rows,
                        int box_k = ROW_BYTES / int(sizeof(T))) {
    return encode_tensor_map(map, 0, sizeof(T), x.data, x.mn_major ? x.rows : K, x.mn_major ? K : x.rows, x.stride,
                             x.mn_major ? box_k : box_rows);
}

// Offset of an element in bytes; -1 if it lies outside.
inline int64_t map_offset(const CUtensorMap* map, const int64_t (&at)[4]) {
    int64_t offset = 0;
    for (int i = 0; i < 4; ++i) {
        if (at[i] < 0 || at[i] >= map->sizes[i]) return -1;
        offset += at[i] * map->strides[i];
    }
    return map->element_bytes * offset;
}

inline void tma_prefetch_descriptor(const CUtensorMap*) {}
inline void tma_load(uint32_t to, const CUtensorMap* map, int x, int y, int z, int w, uint32_t barrier) {
    const int bytes = map->element_bytes;
    for (int row = 0; row < map->rows; ++row) {
        for (int column = 0; column < ROW_BYTES / bytes; ++column) {
            const int64_t offset = map_offset(map, {x + column, y + row, z, w});
            uint64_t element = 0;
            if (offset >= 0) memcpy(&element, map->base + offset, bytes);
            memcpy(swizzled(to + row * ROW_BYTES + column * bytes), &element, bytes);
        }
    }
    mbarrier_count(barrier, 0, -map->rows * ROW_BYTES);
}
inline void tma_load(uint32_t to, const CUtensorMap* map, int x, int y, int z, uint32_t barrier) {
    tma_load(to, map, x, y, z, 0, barrier);
}
inline void tma_load(uint32_t to, const CUtensorMap* map, int x, int y, uint32_t barrier) {
    tma_load(to, map, x, y, 0, 0, barrier);
}
inline void tma_load_multicast(uint32_t, const CUtensorMap*, int, int, uint32_t, uint16_t) {
    stop("written for one block");
}

inline void tma_load_multicast(uint32_t, const CUtensorMap*, int, int, int, uint32_t, uint16_t) {
    stop("clusters are not emulated");
}

template <typename T, bool MN_MAJOR, int ROWS, typename Load>
void load_operand(uint32_t to, int row, int k, Load load) {
    if (!MN_MAJOR) return load(to, k, row);
    for (int i = 0; i < ROWS; i += 64) load(to + i * ROW_BYTES, row + i, k);
}

inline void bulk_load(uint32_t to, const void* from, int bytes, uint32_t barrier) {
    memcpy(shared_pointer(to), from, bytes);
    mbarrier_count(barrier, 0, -bytes);
}

struct Stores {
    Deferred open;
    std::vector<Deferred> groups;
};
inline Stores& bulk_stores() {
    static Stores stores[1024];
    return stores[threadIdx.x];
}
inline void bulk_store(float* to, uint32_t from, int bytes) {
    bulk_stores().open.push_back([=] { memcpy(to, shared_pointer(from), bytes); });
}
inline void bulk_add(float* to, uint32_t from, int bytes) {
    bulk_stores().open.push_back([=] {
        const float* const x = reinterpret_cast<const float*>(shared_pointer(from));
        for (int i = 0; i < bytes / 4; ++i) to[i] += x[i];
    });
}
inline void tma_store(const CUtensorMap* map, uint32_t from, int x, int y, int z, int w) {
    bulk_stores().open.push_back([=] {
        const int bytes = map->element_bytes;
        for (int row = 0; row < map->rows; ++row) {
            for (int column = 0; column < ROW_BYTES / bytes; ++column) {
                const int64_t offset = map_offset(map, {x + column, y + row, z, w});
                const char* const element = swizzled(from + row * ROW_BYTES + column * bytes);
                if (offset >= 0) memcpy(const_cast<char*>(map->base) + offset, element, bytes);
            }
        }
    });
}
inline void tma_store(const CUtensorMap* map, uint32_t from, int x, int y) { tma_store(map, from, x, y, 0, 0); }
inline void tma_store_commit_group() {
    bulk_stores().groups.push_back(bulk_stores().open);
    bulk_stores().open.clear();
}
template <int PRIOR>
void tma_store_wait_group_read() {
    auto& groups = bulk_stores().groups;
    while (int(groups.size()) > PRIOR) {
        run_all(groups.front());
        groups.erase(groups.begin());
    }
}
inline void tma_store_wait_complete() { tma_store_wait_group_read<0>(); }
