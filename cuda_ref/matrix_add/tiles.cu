// out[m, n] = a[m, n] + b[m, n], for any strides of a and b; out is row-major
//
// A warp's access is fast when its 32 lanes touch consecutive bytes. Which dimension is contiguous depends on the
// operand, so there are four kernels:
//
//   add_dense         a and b are contiguous like out: a vector addition, see vector_add/vectorized.cu.
//   add_rows          a and b are row-major. A thread adds a 16-byte pack of a row.
//   add_transposing   b is column-major (x.T of a row-major x), and a may be. A thread reads a square of LANES x LANES
//                     elements (4 x 4 of float32, 8 x 8 of 16 bits) as packs along the columns of b and transposes it
//                     in registers. The packs, now along rows, pass through a tile of TILE x TILE elements in shared
//                     memory to the threads that write these rows.
//   add_strided       anything else, one element per access; column-major operands pass through a tile here too.
//
// Bank conflicts. Shared memory has 32 banks of 4 bytes. A warp accesses 16-byte packs in four phases of 8 lanes. A
// phase has no conflict if its packs are in 8 different groups of 4 banks. One pack of padding after every LANES rows
// of the tile ensures this in both directions: neighbouring lanes are LANES rows, and so 1 pack (mod 8), apart when
// they write, and 1 pack apart when they read.
//
// The y dimension of a grid is limited to 65535, so the kernels step through the rows: `m += gridDim.y * ...`.
//
// Tiles and padding: G. Ruetsch, P. Micikevicius, "Optimizing Matrix Transpose in CUDA", NVIDIA, 2009.
#include <algorithm>
#include <utility>

#include "common/common.cuh"

constexpr int BLOCK = 768, BLOCK_SMALL = 256;  // threads; add_dense uses BLOCK for LARGE matrices
constexpr int64_t LARGE = 1 << 20;              // packs
constexpr int TILE = 64;                        // add_transposing: rows and columns of a block's tile
constexpr int TILE_STRIDED = 32;                // add_strided: rows and columns of a tile; the lanes of a warp
constexpr int THREAD_ROWS = 8;                  // add_strided: rows of threads in a block
constexpr int64_t MAX_GRID_Y = 65535;

template <typename T>
constexpr int LANES = 16 / sizeof(T);  // elements in a pack

template <typename T>
__device__ __forceinline__ T add(T x, T y) {
    return from_float<T>(to_float(x) + to_float(y));
}

// Loads pack c of a row, or of a column, that starts at `line`.
template <typename T>
__device__ __forceinline__ uint4 load_pack(const T* line, int64_t c) {
    return reinterpret_cast<const uint4*>(line)[c];
}

template <typename T>
__device__ __forceinline__ void store_pack(T* line, int64_t c, uint4 pack) {
    reinterpret_cast<uint4*>(line)[c] = pack;
}

// Contiguous and aligned, n = M N. Thread i adds pack i; the threads after the last pack add the remaining elements.
template <typename T>
__global__ void __launch_bounds__(BLOCK)
    add_dense(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ out, int64_t packs, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < packs) {
        store_pack(out, i, elementwise<T>(add<T>, load_pack(a, i), load_pack(b, i)));
    } else if (const int64_t at = packs * LANES<T> + (i - packs); at < n) {
        out[at] = add(a[at], b[at]);
    }
}

// Row-major, every row at a multiple of 16 bytes. A thread adds pack c of the rows m, m + gridDim.y * blockDim.y, ...
// Blocks are wide for wide matrices and tall for narrow ones.
template <typename T>
__global__ void __launch_bounds__(BLOCK_SMALL)
    add_rows(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ out, int64_t M, int64_t N,
             int64_t stride_am, int64_t stride_bm) {
    const int64_t c = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (c >= N / LANES<T>) return;
    for (int64_t m = int64_t(blockIdx.y) * blockDim.y + threadIdx.y; m < M; m += int64_t(gridDim.y) * blockDim.y) {
        const uint4 x = load_pack(a + m * stride_am, c), y = load_pack(b + m * stride_bm, c);
        store_pack(out + m * N, c, elementwise<T>(add<T>, x, y));
    }
}

// b is column-major; a is column-major if BOTH, otherwise row-major. Every row of out and of a row-major operand, and
// every column of a column-major one, starts at a multiple of 16 bytes; M and N are multiples of LANES. The 1 in the
// launch bounds gives a thread enough registers for its two squares, without spilling.
template <typename T, bool BOTH>
__global__ void __launch_bounds__((TILE / LANES<T>)*(TILE / LANES<T>), 1)
    add_transposing(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ out, int64_t M, int64_t N,
                    int64_t stride_a, int64_t stride_b) {
    constexpr int L = LANES<T>;
    constexpr int SIDE = TILE / L;                 // threads along a block's edge, packs along a tile's edge
    __shared__ uint4 tile[SIDE][L * SIDE + 1];     // pack c of row r is tile[r / L][r % L * SIDE + c]
    const int tx = threadIdx.x, ty = threadIdx.y;  // the lanes of a warp differ in tx
    for (int64_t tile_m = int64_t(blockIdx.y) * TILE; tile_m < M; tile_m += int64_t(gridDim.y) * TILE) {
        // Reading: pack c_m of the L columns from n on. The lanes of a warp are along m.
        const int64_t n = int64_t(blockIdx.x) * TILE + ty * L, c_m = tile_m / L + tx;
        // Writing: pack c_n of the L rows m + {0, SIDE, ...}. The lanes of a warp are along n.
        const int64_t m = tile_m + ty, c_n = int64_t(blockIdx.x) * SIDE + tx;
        const bool reads = n < N && c_m < M / L;
        uint4 column[L], row[L];
#pragma unroll
        for (int i = 0; i < L; ++i) {
            if (reads) column[i] = load_pack(b + (n + i) * stride_b, c_m);
        }
#pragma unroll
        for (int i = 0; i < L; ++i) {  // a is loaded early because it is needed last
            if (BOTH && reads) row[i] = load_pack(a + (n + i) * stride_a, c_m);
            if (!BOTH && m + i * SIDE < M && c_n < N / L) row[i] = load_pack(a + (m + i * SIDE) * stride_a, c_n);
        }
        if (reads) {
            Pack<T, L> down[L], across[L];
#pragma unroll
            for (int i = 0; i < L; ++i) {
                const uint4 pack = BOTH ? elementwise<T>(add<T>, column[i], row[i]) : column[i];
                memcpy(&down[i], &pack, sizeof(pack));
#pragma unroll
                for (int j = 0; j < L; ++j) across[j][i] = down[i][j];
            }
#pragma unroll
            for (int i = 0; i < L; ++i) memcpy(&tile[tx][i * SIDE + ty], &across[i], sizeof(across[i]));
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < L; ++i) {
            if (m + i * SIDE < M && c_n < N / L) {
                const int r = ty + i * SIDE;
                const uint4 turned = tile[r / L][r % L * SIDE + tx];
                store_pack(out + (m + i * SIDE) * N, c_n, BOTH ? turned : elementwise<T>(add<T>, row[i], turned));
            }
        }
        __syncthreads();  // before the tile is overwritten
    }
}

// Any strides. COLUMNS is the number of operands that are read with the lanes along m: none, b, or both.
template <typename T, int COLUMNS>
__global__ void __launch_bounds__(TILE_STRIDED* THREAD_ROWS)
    add_strided(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ out, int64_t M, int64_t N,
                int64_t stride_am, int64_t stride_an, int64_t stride_bm, int64_t stride_bn) {
    constexpr int STEPS = TILE_STRIDED / THREAD_ROWS;  // elements per thread
    __shared__ T tile[TILE_STRIDED][TILE_STRIDED + 1];  // [n][m]; padded so that a column is in 32 banks
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int64_t tile_n = int64_t(blockIdx.x) * TILE_STRIDED;
    for (int64_t tile_m = int64_t(blockIdx.y) * TILE_STRIDED; tile_m < M; tile_m += int64_t(gridDim.y) * TILE_STRIDED) {
        if (COLUMNS > 0) {
#pragma unroll
            for (int i = 0; i < STEPS; ++i) {
                const int64_t m = tile_m + tx, n = tile_n + ty + i * THREAD_ROWS;
                if (m < M && n < N) {
                    const T y = b[m * stride_bm + n * stride_bn];
                    tile[ty + i * THREAD_ROWS][tx] = COLUMNS == 2 ? add(a[m * stride_am + n * stride_an], y) : y;
                }
            }
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < STEPS; ++i) {
            const int64_t m = tile_m + ty + i * THREAD_ROWS, n = tile_n + tx;
            if (m < M && n < N) {
                const T y = COLUMNS > 0 ? tile[tx][ty + i * THREAD_ROWS] : b[m * stride_bm + n * stride_bn];
                out[m * N + n] = COLUMNS == 2 ? y : add(a[m * stride_am + n * stride_an], y);
            }
        }
        if (COLUMNS > 0) __syncthreads();
    }
}

template <typename T>
struct Operand {
    const T* at;
    int64_t stride_m, stride_n;

    // True if elements along m are closer in memory than along n. A stride of 0 is fast in either layout.
    bool is_columns(int64_t M, int64_t N) const {
        return M > 1 && N > 1 && stride_m != 0 && stride_n != 0 && stride_m < stride_n;
    }
    bool is_contiguous(int64_t M, int64_t N) const { return stride_n == 1 && (M == 1 || stride_m == N); }
};

// True if all of `count` rows (or columns), `stride` elements apart, start at multiples of 16 bytes.
template <typename T>
bool starts_aligned(const T* at, int64_t count, int64_t stride) {
    return is_aligned(at, 16) && (count == 1 || stride % LANES<T> == 0);
}

template <typename T>
void launch(Operand<T> a, Operand<T> b, T* out, int64_t M, int64_t N, cudaStream_t stream, LaunchRecord* record) {
    if (N == 1) {  // a single column is treated as a row
        std::swap(M, N);
        std::swap(a.stride_m, a.stride_n);
        std::swap(b.stride_m, b.stride_n);
    }
    if (a.is_contiguous(M, N) && b.is_contiguous(M, N) && M * N >= LANES<T> && is_aligned(a.at, 16) &&
        is_aligned(b.at, 16) && is_aligned(out, 16)) {
        const int64_t packs = M * N / LANES<T>;
        const int block = packs >= LARGE ? BLOCK : BLOCK_SMALL;
        const dim3 grid(unsigned(ceil_div<int64_t>(packs + M * N % LANES<T>, block)));
        record->set(grid, block);
        add_dense<T><<<grid, block, 0, stream>>>(a.at, b.at, out, packs, M * N);
        return;
    }
    const bool out_aligned = starts_aligned(out, M, N);
    auto rows_aligned = [&](const Operand<T>& x) { return x.stride_n == 1 && starts_aligned(x.at, M, x.stride_m); };
    auto columns_aligned = [&](const Operand<T>& x) { return x.stride_m == 1 && starts_aligned(x.at, N, x.stride_n); };
    if (N % LANES<T> == 0 && rows_aligned(a) && rows_aligned(b) && out_aligned) {
        const int64_t packs = N / LANES<T>;
        dim3 block(64, BLOCK_SMALL / 64);
        while (block.y > M) block.x *= 2, block.y /= 2;
        while (block.x / 2 >= packs) block.x /= 2, block.y *= 2;
        const int64_t blocks_m = ceil_div<int64_t>(M, block.y);
        const dim3 grid(unsigned(ceil_div<int64_t>(packs, block.x)), unsigned(std::min(blocks_m, MAX_GRID_Y)));
        record->set(grid, block);
        add_rows<T><<<grid, block, 0, stream>>>(a.at, b.at, out, M, N, a.stride_m, b.stride_m);
        return;
    }
    if (a.is_columns(M, N) && !b.is_columns(M, N)) std::swap(a, b);
    const int columns = a.is_columns(M, N) + b.is_columns(M, N);
    const bool a_aligned = columns == 2 ? columns_aligned(a) : rows_aligned(a);
    if (columns > 0 && a_aligned && columns_aligned(b) && out_aligned && M % LANES<T> == 0) {
        const dim3 block(TILE / LANES<T>, TILE / LANES<T>);
        const int64_t tiles_m = ceil_div<int64_t>(M, TILE);
        const dim3 grid(unsigned(ceil_div<int64_t>(N, TILE)), unsigned(std::min(tiles_m, MAX_GRID_Y)));
        record->set(grid, block);
        if (columns == 2) {
            add_transposing<T, true><<<grid, block, 0, stream>>>(a.at, b.at, out, M, N, a.stride_n, b.stride_n);
        } else {
            add_transposing<T, false><<<grid, block, 0, stream>>>(a.at, b.at, out, M, N, a.stride_m, b.stride_n);
        }
        return;
    }
    auto kernel = columns == 0 ? add_strided<T, 0> : columns == 1 ? add_strided<T, 1> : add_strided<T, 2>;
    const dim3 block(TILE_STRIDED, THREAD_ROWS);
    const int64_t tiles_m = ceil_div<int64_t>(M, TILE_STRIDED);
    const dim3 grid(unsigned(ceil_div<int64_t>(N, TILE_STRIDED)), unsigned(std::min(tiles_m, MAX_GRID_Y)));
    record->set(grid, block);
    kernel<<<grid, block, 0, stream>>>(a.at, b.at, out, M, N, a.stride_m, a.stride_n, b.stride_m, b.stride_n);
}

extern "C" int matrix_add_tiles(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t stride_am,
                                int64_t stride_an, int64_t stride_bm, int64_t stride_bn, int64_t dtype,
                                cudaStream_t stream, LaunchRecord* record) {
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const Operand<T> x{static_cast<const T*>(a), stride_am, stride_an};
        const Operand<T> y{static_cast<const T*>(b), stride_bm, stride_bn};
        launch<T>(x, y, static_cast<T*>(out), M, N, stream, record);
    });
}
