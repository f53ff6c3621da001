// Copies one or two matrices to rows that begin at multiples of 16 bytes, as TMA requires
//
// A thread writes 16 bytes at a time. Rows of contiguous 16-bit elements are also read 16 bytes at a time, at any
// address (common/unaligned.cuh), except for chunks that end beyond the matrix; other rows are read element by element.
// If elements of neighbouring rows are neighbours in memory, neighbouring threads read neighbouring rows.
#include "common/tiles.cuh"
#include "common/unaligned.cuh"

constexpr int THREADS = 256, CHUNKS = 4;  // chunks of 16 bytes per thread

struct PitchedCopy {
    const char* from;
    char* to;  // rows are `pitch` times 16 bytes apart; the end of the last written chunk is zeros
    int64_t stride_row, stride_column;  // in elements
    int rows, columns, chunks, pitch, count;  // chunks: written per row; count: over all rows
    bool across;                        // neighbouring threads read neighbouring rows
    FastDivisor inner;                  // divides by the number of neighbours: rows or chunks
};

template <typename E>
__device__ __forceinline__ uint4 gather(const E* from, int64_t stride, int count) {
    constexpr int ELEMENTS = 16 / sizeof(E);
    E elements[ELEMENTS];
#pragma unroll
    for (int i = 0; i < ELEMENTS; ++i) elements[i] = i < count ? from[i * stride] : E(0);
    uint4 chunk;
    memcpy(&chunk, elements, 16);
    return chunk;
}

// Copies THREADS * CHUNKS chunks of a matrix by store(load(from, columns), to, from, columns). A thread does all its
// loads before its first store.
template <typename E, typename Load, typename Store>
__device__ __forceinline__ void copy_chunks(const PitchedCopy& x, int block, Load load, Store store) {
    const int64_t first = int64_t(block) * (THREADS * CHUNKS) + threadIdx.x;
    const int neighbours = x.across ? x.rows : x.chunks;
    decltype(load(static_cast<const E*>(nullptr), 0)) loaded[CHUNKS];
    int place[CHUNKS], columns[CHUNKS];
    const E* from[CHUNKS];
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
        const bool exists = first + i * THREADS < x.count;
        const int index = exists ? int(first) + i * THREADS : 0;
        const int outer = x.inner.quotient(index), inner = index - outer * neighbours;
        const int row = x.across ? inner : outer, chunk = x.across ? outer : inner, column = chunk * (16 / sizeof(E));
        place[i] = row * x.pitch + chunk;
        columns[i] = exists ? x.columns - column : 0;
        from[i] = reinterpret_cast<const E*>(x.from) + row * x.stride_row + column * x.stride_column;
        loaded[i] = load(from[i], columns[i]);
    }
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
        if (columns[i] > 0) store(loaded[i], reinterpret_cast<uint4*>(x.to) + place[i], from[i], columns[i]);
    }
}

template <typename E>
__device__ __forceinline__ void copy_matrix(const PitchedCopy& x, int block) {
    if constexpr (sizeof(E) == 2) {
        const auto begin = reinterpret_cast<const uint16_t*>(x.from);
        const uint16_t* const end = begin + (x.rows - 1) * x.stride_row + x.columns;
        const uint16_t* const aligned = begin + (CHUNK - misalignment(begin)) % CHUNK;
        if (x.stride_column == 1 && aligned + CHUNK <= end) {
            const auto store = [](const Neighbours& loaded, uint4* to, const uint16_t* from, int count) {
                if (loaded.loaded) {
                    *to = loaded.value();
                } else {
#pragma unroll 1
                    for (int i = 0; i < CHUNK; ++i) {
                        reinterpret_cast<uint16_t*>(to)[i] = i < count ? from[i] : uint16_t(0);
                    }
                }
            };
            const auto load = [&](const uint16_t* from, int count) { return Neighbours(from, count, end, aligned); };
            copy_chunks<E>(x, block, load, store);
            return;
        }
    }
    copy_chunks<E>(
        x, block, [&](const E* from, int count) { return gather(from, x.stride_column, count); },
        [](uint4 loaded, uint4* to, const E*, int) { *to = loaded; });
}

template <typename E>
__global__ void __launch_bounds__(THREADS) copy_pitched_kernel(const PitchedCopy a, const PitchedCopy b, int a_blocks) {
    if (int(blockIdx.x) < a_blocks) {
        copy_matrix<E>(a, blockIdx.x);
    } else {
        copy_matrix<E>(b, blockIdx.x - a_blocks);
    }
}

template <typename E>
cudaError_t launch(const PitchedCopy& a, const PitchedCopy& b, cudaStream_t stream, LaunchRecord* record) {
    const int a_blocks = ceil_div(a.count, THREADS * CHUNKS), blocks = a_blocks + ceil_div(b.count, THREADS * CHUNKS);
    record->set(dim3(unsigned(blocks)), THREADS);
    copy_pitched_kernel<E><<<blocks, THREADS, 0, stream>>>(a, b, a_blocks);
    return cudaGetLastError();
}

// Element (row, column) of x is x[row * x_row + column * x_column], in elements. In the copy it is
// x_to[row * x_pitch + column], with a pitch that is a multiple of 16 bytes. A matrix of 0 rows is skipped. A copy has
// at most 2^30 times 16 bytes.
extern "C" int copy_pitched(const void* x, void* x_to, int64_t x_rows, int64_t x_columns, int64_t x_row,
                            int64_t x_column, int64_t x_pitch, const void* y, void* y_to, int64_t y_rows,
                            int64_t y_columns, int64_t y_row, int64_t y_column, int64_t y_pitch, int64_t element_bytes,
                            cudaStream_t stream, LaunchRecord* record) {
    const auto copy = [&](const void* from, void* to, int64_t rows, int64_t columns, int64_t row, int64_t column,
                          int64_t pitch) {
        const int chunks = int(ceil_div<int64_t>(columns * element_bytes, 16));
        const bool across = row == 1 && column != 1;
        const int64_t inner = across ? rows : chunks;
        return PitchedCopy{static_cast<const char*>(from), static_cast<char*>(to), row, column, int(rows), int(columns),
                           chunks, int(pitch * element_bytes / 16), int(rows * chunks), across,
                           FastDivisor(inner > 0 ? inner : 1)};
    };
    const PitchedCopy first = copy(x, x_to, x_rows, x_columns, x_row, x_column, x_pitch);
    const PitchedCopy second = copy(y, y_to, y_rows, y_columns, y_row, y_column, y_pitch);
    switch (element_bytes) {
        case 1: return launch<uint8_t>(first, second, stream, record);
        case 2: return launch<uint16_t>(first, second, stream, record);
        case 4: return launch<uint32_t>(first, second, stream, record);
        default: return cudaErrorInvalidValue;
    }
}
