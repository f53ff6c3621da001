// y = silu(a) b; scale = max |y| / 448 (int8: 127) over a group, at least 2^-126; code = y / scale, rounded to nearest
//
// Adds loads of 16 bytes to silu_mul_quantize.cu. Each number of a and b is read once; its product waits in registers, as
// a float32, for the scale of its group. A block takes a row, or a tile of 128 x 128, whose groups are its rows or the
// whole tile.
#include "common/codes.cuh"
#include "common/rows.cuh"
#include "common/sigmoid.cuh"

constexpr int SIDE = 128;  // columns of a group or a tile, and rows of a tile
constexpr int PACKS = 4;   // of a and of b per thread: enough loads in flight

// Packs of a and b of one thread, and the products of their numbers.
template <typename T>
struct Products {
    static constexpr int LANES = 16 / sizeof(T);
    uint4 a[PACKS], b[PACKS];
    float y[PACKS][LANES];

    // Loads without a condition, so that all loads of a thread are on the way at the same time. Beyond the edges of a
    // group the caller loads another pack of it, which does not change its largest number.
    __device__ __forceinline__ void load(int pack, const T* from_a, const T* from_b) {
        a[pack] = *reinterpret_cast<const uint4*>(from_a);
        b[pack] = *reinterpret_cast<const uint4*>(from_b);
    }

    // Computes the products of a pack. Returns the largest |y| as bits.
    __device__ __forceinline__ unsigned multiply(int pack) {
        unsigned size = 0;
#pragma unroll
        for (int lane = 0; lane < LANES; ++lane) {
            const float x = element<T>(a[pack], lane);
            y[pack][lane] = x * sigmoid_near(x) * element<T>(b[pack], lane);
            size = max(size, magnitude_of(y[pack][lane]));
        }
        return size;
    }

    __device__ __forceinline__ void store(int pack, uint8_t* to, Codes kind, float inverse) const {
        Pack<uint8_t, LANES> codes;
        kind.write(codes.at, inverse, [&](int lane) { return y[pack][lane]; });
        *reinterpret_cast<Pack<uint8_t, LANES>*>(to) = codes;
    }
};

// A block per row, or a warp per short row.
template <typename T>
__global__ void __launch_bounds__(MAX_THREADS)
    silu_mul_quantize_rows(const T* __restrict__ a, const T* __restrict__ b, uint8_t* __restrict__ codes,
                           float* __restrict__ scales, Codes kind, int64_t m, int64_t n, int64_t a_m, int64_t b_m) {
    __shared__ float scratch[WARP];
    const int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
    if (row >= m) return;  // true for all lanes of a warp
    Products<T> products;
    const auto column = [](int pack) { return Registers<T, PACKS, true>::index(pack, 0); };
#pragma unroll
    for (int pack = 0; pack < PACKS; ++pack) {
        const int j = column(pack) < n ? column(pack) : 0;
        products.load(pack, a + row * a_m + j, b + row * b_m + j);
    }
    unsigned size = 0;
#pragma unroll
    for (int pack = 0; pack < PACKS; ++pack) size = max(size, products.multiply(pack));
    const float scale = kind.scale(over_block(__uint_as_float(size), Largest(), scratch)), inverse = 1.0f / scale;
    if (threadIdx.x == 0) scales[row] = scale;
#pragma unroll
    for (int pack = 0; pack < PACKS; ++pack) {
        if (column(pack) < n) products.store(pack, codes + row * n + column(pack), kind, inverse);
    }
}

// Threads of a tile, each with PACKS packs.
template <typename T>
constexpr int TILE_THREADS = SIDE * SIDE * int(sizeof(T)) / 16 / PACKS;

// A block per tile. Neighbouring threads hold neighbouring packs of a row, and each thread PACKS rows. WHOLE: the tile is
// one group; otherwise each row of it is one.
template <typename T, bool WHOLE>
__global__ void __launch_bounds__(TILE_THREADS<T>)
    silu_mul_quantize_tiles(const T* __restrict__ a, const T* __restrict__ b, uint8_t* __restrict__ codes,
                            float* __restrict__ scales, Codes kind, int64_t m, int64_t n, int64_t a_m, int64_t b_m) {
    constexpr int LANES = 16 / sizeof(T), OF_ROW = SIDE / LANES, STEP = TILE_THREADS<T> / OF_ROW;
    __shared__ float scratch[WARP];
    const int64_t across = ceil_div<int64_t>(n, SIDE), tile_m = blockIdx.x / across, tile_n = blockIdx.x % across;
    const int64_t top = tile_m * SIDE + threadIdx.x / OF_ROW, column = tile_n * SIDE + threadIdx.x % OF_ROW * LANES;
    const auto within = [&](int pack) { return top + pack * STEP < m && column < n; };
    Products<T> products;
#pragma unroll
    for (int pack = 0; pack < PACKS; ++pack) {
        const int64_t row = min(top + pack * STEP, m - 1), j = column < n ? column : tile_n * SIDE;
        products.load(pack, a + row * a_m + j, b + row * b_m + j);
    }
    unsigned sizes[PACKS];
#pragma unroll
    for (int pack = 0; pack < PACKS; ++pack) sizes[pack] = products.multiply(pack);
    float inverse = 0.0f;
    if constexpr (WHOLE) {
#pragma unroll
        for (int pack = 1; pack < PACKS; ++pack) sizes[0] = max(sizes[0], sizes[pack]);
        const float scale = kind.scale(over_block(__uint_as_float(sizes[0]), Largest(), scratch));
        if (threadIdx.x == 0) scales[blockIdx.x] = scale;
        inverse = 1.0f / scale;
    }
#pragma unroll
    for (int pack = 0; pack < PACKS; ++pack) {
        const int64_t row = top + pack * STEP;
        if constexpr (!WHOLE) {
#pragma unroll
            for (int distance = OF_ROW / 2; distance > 0; distance /= 2) {
                sizes[pack] = max(sizes[pack], __shfl_xor_sync(0xffffffffu, sizes[pack], distance));
            }
            const float scale = kind.scale(__uint_as_float(sizes[pack]));
            if (row < m && threadIdx.x % OF_ROW == 0) scales[row * across + tile_n] = scale;
            inverse = 1.0f / scale;
        }
        if (within(pack)) products.store(pack, codes + row * n + column, kind, inverse);
    }
}

// Rows of a, b and codes begin and end at multiples of 16 bytes of a and b. rows: of a group. tiles: whether a group has
// 128 columns; otherwise it is a row of at most 64 KiB.
extern "C" int silu_mul_quantize_registers(const void* a, const void* b, void* codes, void* scales, int64_t m, int64_t n,
                                           int64_t a_m, int64_t b_m, int64_t rows, int64_t tiles, int64_t int8,
                                           int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const auto launch = [&](auto kernel, dim3 grid, dim3 block) {
            record->set(grid, block);
            kernel<<<grid, block, 0, stream>>>(static_cast<const T*>(a), static_cast<const T*>(b),
                                               static_cast<uint8_t*>(codes), static_cast<float*>(scales), Codes{int8 != 0},
                                               m, n, a_m, b_m);
        };
        if (tiles) {
            const dim3 grid(unsigned(ceil_div<int64_t>(m, SIDE) * ceil_div<int64_t>(n, SIDE)));
            launch(rows > 1 ? silu_mul_quantize_tiles<T, true> : silu_mul_quantize_tiles<T, false>, grid, TILE_THREADS<T>);
            return;
        }
        const int64_t threads = WARP * ceil_div<int64_t>(n * int64_t(sizeof(T)), 16 * WARP * PACKS);
        const dim3 block(unsigned(threads), threads == WARP ? WARP_ROWS : 1);
        launch(silu_mul_quantize_rows<T>, dim3(unsigned(ceil_div<int64_t>(m, block.y))), block);
    });
}
