// Tensor cores as nvcuda::wmma: tiles of 16 x 16 x 16 in float16 or bfloat16, sums in float.
//
// The lanes of a warp share a tile: lane l holds 8 neighbours of row l / 2. A GPU distributes it in another way, which
// is not documented, so that a program may only use elements of a fragment that it treats all alike.
// Loads and stores order nothing: another lane's write to shared memory needs a barrier. Their counts are those of
// this distribution, element by element; a GPU loads several at once.
#pragma once

#include "cuda_runtime.h"

namespace nvcuda {
namespace wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };

template <typename Use, int M, int N, int K, typename T, typename Layout = void>
struct fragment {
    static_assert(M == 16 && N == 16 && K == 16, "only tiles of 16 x 16 x 16 are emulated");
    static constexpr int num_elements = 8;
    T x[num_elements];
};

template <typename Fragment, typename T>
static inline void fill_fragment(Fragment& tile, const T& value) {
    for (auto& each : tile.x) each = value;
}

// Calls f(i, offset) for each element i of the running lane.
template <typename F>
static inline void each_element(const void* at, unsigned stride, size_t element_bytes, bool by_columns, F f) {
    using namespace cuda_host;
    if (reinterpret_cast<uintptr_t>(at) % 32 != 0 || stride * element_bytes % 16 != 0)
        fail(cudaErrorMisalignedAddress, "a tile at %p with rows of %zu bytes: multiples of 32 and 16 are needed", at,
             stride * element_bytes);
    const int row = lane() / 2, column = lane() % 2 * 8;
    for (int i = 0; i < 8; i++)
        f(i, by_columns ? size_t(column + i) * stride + row : size_t(row) * stride + column + i);
}

template <typename Use, int M, int N, int K, typename T, typename Layout>
static inline void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& tile, const T* from, unsigned stride) {
    constexpr bool by_columns = __is_same(Layout, col_major);
    each_element(from, stride, sizeof(T), by_columns, [&](int i, size_t at) { tile.x[i] = from[at]; });
}

template <int M, int N, int K, typename T>
static inline void load_matrix_sync(fragment<accumulator, M, N, K, T>& tile, const T* from, unsigned stride,
                                    layout_t layout) {
    each_element(from, stride, sizeof(T), layout == mem_col_major, [&](int i, size_t at) { tile.x[i] = from[at]; });
}

template <int M, int N, int K, typename T>
static inline void store_matrix_sync(T* to, const fragment<accumulator, M, N, K, T>& tile, unsigned stride,
                                     layout_t layout) {
    each_element(to, stride, sizeof(T), layout == mem_col_major, [&](int i, size_t at) { to[at] = tile.x[i]; });
}

// d = a b + c: each lane computes its own elements of d from the tiles of all lanes.
template <int M, int N, int K, typename T, typename LayoutA, typename LayoutB>
static inline void mma_sync(fragment<accumulator, M, N, K, float>& d,
                            const fragment<matrix_a, M, N, K, T, LayoutA>& a,
                            const fragment<matrix_b, M, N, K, T, LayoutB>& b,
                            const fragment<accumulator, M, N, K, float>& c, int line = __builtin_LINE()) {
    struct Held {
        T x[8];
    };
    Held own, left[2], right[32];
    memcpy(&own, a.x, sizeof own);
    const Held* tiles = cuda_host::gather(own, line);
    memcpy(left, tiles + cuda_host::lane() / 2 * 2, sizeof left);
    memcpy(&own, b.x, sizeof own);
    tiles = cuda_host::gather(own, line);
    memcpy(right, tiles, sizeof right);
    for (int i = 0; i < 8; i++) {
        float sum = c.x[i];
        for (int k = 0; k < 16; k++) {
            const float left_k = left[k / 8].x[k % 8];
            const float right_k = right[2 * k + cuda_host::lane() % 2].x[i];
            sum = fmaf(left_k, right_k, sum);
        }
        d.x[i] = sum;
    }
}

}  // namespace wmma
}  // namespace nvcuda
