// scale = max |x| / 448 (int8: 127) over a group, at least 2^-126; code = x / scale, rounded to nearest
//
// Adds loads of 16 bytes to quantize.cu. Each number is read once and waits in registers for its scale.
// Groups of 128 columns: a block takes a tile of 128 columns, whose groups are its rows, or the whole tile. Rows: as in
// rms_norm/registers.cu; rows that the threads of a block cannot hold are read twice.
#include "common/codes.cuh"
#include "common/rows.cuh"

constexpr int TILE_THREADS = 256, COLUMNS = 128;

// Stores the codes of the first `count` numbers of a pack. ALIGNED: of all LANES, at a multiple of LANES bytes.
template <typename T, bool ALIGNED>
__device__ __forceinline__ void store_codes(uint8_t* to, const uint4& words, Codes kind, float inverse, int count) {
    constexpr int LANES = 16 / sizeof(T);
    Pack<uint8_t, LANES> pack;
    kind.write_singly(pack.at, [&](int lane) { return element<T>(words, lane) * inverse; });
    if constexpr (ALIGNED) {
        *reinterpret_cast<Pack<uint8_t, LANES>*>(to) = pack;
    } else {
#pragma unroll
        for (int lane = 0; lane < LANES; ++lane) {
            if (lane < count) to[lane] = pack[lane];
        }
    }
}

// The largest |x| of a thread's part of a row.
template <typename R>
__device__ __forceinline__ float largest_of(const R& part, float before = 0.0f) {
    unsigned size = __float_as_uint(before);
    part.each([&](float v) { size = max(size, magnitude_of(v)); });
    return __uint_as_float(size);
}

// Stores the codes of a part of a row.
template <typename T, int PACKS, bool PACKED>
__device__ __forceinline__ void store_part(const Registers<T, PACKS, PACKED>& part, uint8_t* codes, Codes kind, int n,
                                           float inverse) {
    constexpr int LANES = 16 / sizeof(T);
#pragma unroll
    for (int pack = 0; pack < PACKS; ++pack) {
        if constexpr (PACKED) {
            const int i = part.index(pack, 0);
            if (i < n) store_codes<T, true>(codes + i, part.v[pack], kind, inverse, LANES);
        } else {
            uint8_t found[LANES];
            kind.write_singly(found, [&](int lane) { return element<T>(part.v[pack], lane) * inverse; });
#pragma unroll
            for (int lane = 0; lane < LANES; ++lane) {
                const int i = part.index(pack, lane);
                if (i < n) codes[i] = found[lane];
            }
        }
    }
}

// Rows that a warp or a block holds.
template <typename T, int PACKS, bool PACKED>
__global__ void __launch_bounds__(MAX_THREADS)
    quantize_rows(const T* __restrict__ x, uint8_t* __restrict__ codes, float* __restrict__ scales, Codes kind, int64_t m,
                  int64_t n, int64_t stride_m, int64_t stride_n) {
    __shared__ float scratch[WARP];
    const int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
    if (row >= m) return;  // true for all lanes of a warp
    Registers<T, PACKS, PACKED> part;
    part.load({x + row * stride_m, int(n), stride_n}, 0.0f);
    const float scale = kind.scale(over_block(largest_of(part), Largest(), scratch));
    if (threadIdx.x == 0) scales[row] = scale;
    part.stay_packed();
    store_part(part, codes + row * n, kind, int(n), 1.0f / scale);
}

// Longer rows, one block per row.
template <typename T, int PACKS, bool PACKED>
__global__ void __launch_bounds__(MAX_THREADS)
    quantize_long_rows(const T* __restrict__ x, uint8_t* __restrict__ codes, float* __restrict__ scales, Codes kind, int64_t n,
                       int64_t stride_m, int64_t stride_n) {
    __shared__ float scratch[WARP];
    Registers<T, PACKS, PACKED> part;
    const int64_t step = int64_t(PACKS) * blockDim.x * part.LANES;
    x += blockIdx.x * stride_m;
    codes += blockIdx.x * n;
    float largest = 0.0f;
    for (int64_t start = 0; start < n; start += step) {
        part.load({x + start * stride_n, int(min(n - start, step)), stride_n}, 0.0f);
        largest = largest_of(part, largest);
    }
    const float scale = kind.scale(over_block(largest, Largest(), scratch)), inverse = 1.0f / scale;
    if (threadIdx.x == 0) scales[blockIdx.x] = scale;
    for (int64_t start = 0; start < n; start += step) {
        const int rest = int(min(n - start, step));
        part.load({x + start * stride_n, rest, stride_n}, 0.0f);
        store_part(part, codes + start, kind, rest, inverse);
    }
}

// A tile of 128 columns. Neighbouring threads hold neighbouring packs of a row, and each thread PACKS rows. WHOLE: the
// tile has 128 rows and is one group; otherwise each row of it is one.
template <typename T, int PACKS, bool WHOLE, bool PACKED>
__global__ void __launch_bounds__(TILE_THREADS)
    quantize_tiles(const T* __restrict__ x, uint8_t* __restrict__ codes, float* __restrict__ scales, Codes kind, int64_t m,
                   int64_t n, int64_t stride_m, int64_t stride_n) {
    constexpr int LANES = 16 / sizeof(T), OF_ROW = COLUMNS / LANES, STEP = TILE_THREADS / OF_ROW;
    __shared__ float scratch[WARP];
    const int64_t across = ceil_div<int64_t>(n, COLUMNS), left = blockIdx.x % across * COLUMNS;
    const int64_t top = blockIdx.x / across * (STEP * PACKS) + threadIdx.x / OF_ROW;
    const int64_t column = left + threadIdx.x % OF_ROW * LANES;
    const int count = int(max(int64_t(0), min(int64_t(LANES), n - column)));

    uint4 packs[PACKS];
#pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        const int64_t row = top + i * STEP;
        const T* from = x + row * stride_m + column * stride_n;
        Pack<T, LANES> pack;
        if (PACKED && row < m && count > 0) {
            packs[i] = *reinterpret_cast<const uint4*>(from);
            continue;
        }
#pragma unroll
        for (int lane = 0; lane < LANES; ++lane) {
            pack[lane] = !PACKED && row < m && lane < count ? from[lane * stride_n] : from_float<T>(0.0f);
        }
        memcpy(&packs[i], &pack, sizeof(pack));
    }
    float largest[PACKS], inverse = 0.0f;
#pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        unsigned size = 0;
#pragma unroll
        for (int lane = 0; lane < LANES; ++lane) size = max(size, magnitude_of(element<T>(packs[i], lane)));
        largest[i] = __uint_as_float(size);
    }
    if constexpr (WHOLE) {
#pragma unroll
        for (int i = 1; i < PACKS; ++i) largest[0] = Largest()(largest[0], largest[i]);
        const float scale = kind.scale(over_block(largest[0], Largest(), scratch));
        if (threadIdx.x == 0) scales[blockIdx.x] = scale;
        inverse = 1.0f / scale;
    }
#pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        const int64_t row = top + i * STEP;
        if constexpr (!WHOLE) {
#pragma unroll
            for (int distance = OF_ROW / 2; distance > 0; distance /= 2) {
                largest[i] = Largest()(largest[i], __shfl_xor_sync(0xffffffffu, largest[i], distance));
            }
            const float scale = kind.scale(largest[i]);
            if (row < m && threadIdx.x % OF_ROW == 0) scales[row * across + blockIdx.x % across] = scale;
            inverse = 1.0f / scale;
        }
        if (row < m && count > 0) store_codes<T, PACKED>(codes + row * n + column, packs[i], kind, inverse, count);
    }
}

template <typename T>
void launch_rows(const T* x, uint8_t* codes, float* scales, Codes kind, int64_t m, int64_t n, int64_t stride_m, int64_t stride_n,
                 cudaStream_t stream, LaunchRecord* record) {
    const Division division = divide_rows(x, m, n, stride_m, stride_n);
    const dim3 grid = division.grid(m), block = division.block;
    record->set(grid, block);
    by_division(division, [&](auto packs, auto packed) {
        if (division.held) {
            const auto kernel = quantize_rows<T, packs(), packed()>;
            kernel<<<grid, block, 0, stream>>>(x, codes, scales, kind, m, n, stride_m, stride_n);
            return;
        }
        const auto kernel = quantize_long_rows<T, BLOCK_PACKS, packed()>;
        kernel<<<grid, block, 0, stream>>>(x, codes, scales, kind, n, stride_m, stride_n);
    });
}

template <typename T>
void launch_tiles(const T* x, uint8_t* codes, float* scales, Codes kind, int64_t m, int64_t n, int64_t stride_m, int64_t stride_n,
                  bool whole, cudaStream_t stream, LaunchRecord* record) {
    constexpr int LANES = 16 / sizeof(T), STEP = TILE_THREADS / (COLUMNS / LANES);
    constexpr int ALL = COLUMNS / STEP, SOME = 4;  // packs per thread: of a whole tile, or enough loads in flight
    const bool packed = divide_rows(x, m, n, stride_m, stride_n).packed;
    const int64_t height = STEP * (whole ? ALL : SOME);
    const dim3 grid(unsigned(ceil_div(m, height) * ceil_div<int64_t>(n, COLUMNS)));
    record->set(grid, TILE_THREADS);
    const auto launch = [&](auto kernel) {
        kernel<<<grid, TILE_THREADS, 0, stream>>>(x, codes, scales, kind, m, n, stride_m, stride_n);
    };
    if (whole) {
        packed ? launch(quantize_tiles<T, ALL, true, true>) : launch(quantize_tiles<T, ALL, true, false>);
    } else {
        packed ? launch(quantize_tiles<T, SOME, false, true>)
               : launch(quantize_tiles<T, SOME, false, false>);
    }
}

// rows: of a group. tiles: whether a group has 128 columns; otherwise it is a row.
extern "C" int quantize_registers(const void* x, void* codes, void* scales, int64_t m, int64_t n, int64_t stride_m,
                                  int64_t stride_n, int64_t rows, int64_t tiles, int64_t int8, int64_t dtype,
                                  cudaStream_t stream, LaunchRecord* record) {
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const T* from = static_cast<const T*>(x);
        uint8_t* to = static_cast<uint8_t*>(codes);
        float* beside = static_cast<float*>(scales);
        const Codes kind = {int8 != 0};
        if (tiles) {
            launch_tiles<T>(from, to, beside, kind, m, n, stride_m, stride_n, rows > 1, stream, record);
        } else {
            launch_rows<T>(from, to, beside, kind, m, n, stride_m, stride_n, stream, record);
        }
    });
}
