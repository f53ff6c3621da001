// out[m, n] = sum over groups g of scale[n, g] * (sum over k in g of x[m, k] * (code[n, k] - zero[n, g])), for at most
// 16 rows
//
// requires: sm_90
//
// few.cuh copies the operands and adds the sums.
//
// A warp multiplies 32 rows of the weights by all rows of x, with mma.sync: 16 rows of the weights are its rows, 8 rows
// of x its columns. The sum may take its k in any order that is the same in both operands. So lane q of four takes 32
// neighbouring codes of a group, 16 bytes: a word of 8 gives 4 pairs (k, k + 4), each by one logical operation and one
// multiplication with addition, and every second one by a shift; 16 bytes of x give the same pairs.
//
// Precision: code less zero is exact, in units of a power of two; the sum of a group is multiplied by its scale in
// float32, and the sum of all by the unit.
#include "common/mma.cuh"
#include "int4_matmul/few.cuh"

constexpr int WARP_ROWS = 32;  // rows of weights of a warp

// The row, of eight, that lanes 4 i to 4 i + 3 read. In this order eight lanes that read 16 bytes of x, and 16 lanes
// that read 8 bytes of codes, cover all banks.
__device__ __forceinline__ int row_of(int i) { return i % 4 * 2 + ((i ^ i / 2 ^ i / 4) & 1); }

// A lane's place: its row of eight, and the offsets in a stage of its codes and of its x.
template <typename C>
struct Place {
    int row, codes, x;

    // For the rows of the weights from first_row on.
    __device__ __forceinline__ explicit Place(int first_row) : row(row_of(threadIdx.x % 32 / 4)) {
        const int q = threadIdx.x % 4;
        // Lanes 2 and 3 of four take words in the order 2, 3, 0, 1: their x is then in other banks.
        codes = (first_row + row) * ROW_BYTES + (q ^ row) * 16 + q / 2 * 8;
        x = C::CODE_BYTES + q / 2 * C::X_BYTES + row * ROW_BYTES + ((q % 2 * 4 + q / 2 * 2) ^ row) * 16;
    }
};

// acc[i][j] += the products of a group, for rows 16 i to 16 i + 15 of the weights of a warp and 8 j to 8 j + 7 of x.
// scales: those of row `lane`, packed. half: that of the box.
template <typename T, typename C>
__device__ __forceinline__ void multiply(float (&acc)[2][C::TILES][4], const char* box, const Place<C>& place,
                                         uint32_t scales, int half) {
    float sums[2][C::TILES][4] = {};
    Pair<T> zeros[4];
    float scale[4];
    uint32_t words[4][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const uint32_t both = __shfl_sync(0xffffffffu, scales, place.row + 8 * i);
        const uint16_t bits = uint16_t(both);
        T of_row;
        memcpy(&of_row, &bits, 2);
        scale[i] = to_float(of_row), zeros[i] = minus_zeros<T>(__byte_perm(both, both, 0x3232));
#pragma unroll
        for (int part = 0; part < 2; ++part) {
            const char* const from = box + (place.codes ^ (half * 64 + part * 8)) + 8 * i * ROW_BYTES;
            const uint2 found = *reinterpret_cast<const uint2*>(from);
            words[i][part * 2] = found.x, words[i][part * 2 + 1] = found.y;
        }
    }
#pragma unroll
    for (int step = 0; step < 4; ++step) {
        uint32_t weights[2][2][4];  // of 16 rows each, for pairs 0 and 1, and for pairs 2 and 3
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
#pragma unroll
                for (int row = 0; row < 2; ++row) {
                    const uint32_t codes = words[2 * i + row][step] >> 8 * half;
                    weights[i][half][row] = code_units<T, false>(codes, zeros[2 * i + row]);
                    weights[i][half][row + 2] = code_units<T, true>(codes, zeros[2 * i + row]);
                }
            }
        }
        const char* const x = box + ((place.x + half * 2 * C::X_BYTES) ^ step * 16);
#pragma unroll
        for (int j = 0; j < C::TILES; ++j) {
            const uint4 of_x = *reinterpret_cast<const uint4*>(x + j * 8 * ROW_BYTES);
            const uint32_t pairs[4] = {__byte_perm(of_x.x, of_x.z, 0x5410), __byte_perm(of_x.x, of_x.z, 0x7632),
                                       __byte_perm(of_x.y, of_x.w, 0x5410), __byte_perm(of_x.y, of_x.w, 0x7632)};
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                mma<T>(sums[i][j], weights[i][0], pairs[0], pairs[1]);
                mma<T>(sums[i][j], weights[i][1], pairs[2], pairs[3]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < C::TILES; ++j) {
#pragma unroll
            for (int c = 0; c < 4; ++c) acc[i][j][c] += sums[i][j][c] * scale[2 * i + c / 2];
        }
    }
}

// Writes the sums of a warp's 32 columns of out, from `column` of the tile on, to rows of sums.
template <typename C>
__device__ __forceinline__ void write_sums(float* sums, const float (&acc)[2][C::TILES][4], int column) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < C::TILES; ++j) {
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                const int n = column + i * 16 + c / 2 * 8 + row_of(lane / 4), m = j * 8 + row_of(lane % 4 * 2 + c % 2);
                sums[m * C::PITCH + n] = acc[i][j][c];
            }
        }
    }
}

// The sums of a warp; its functions are those that few.cuh describes.
template <typename T, typename C>
struct Product {
    float acc[2][C::TILES][4];
    int first_row;
    Place<C> place;

    __device__ __forceinline__ explicit Product(int row) : first_row(row), place(row) {}
    __device__ __forceinline__ static int scale_row(int lane) { return lane; }
    __device__ __forceinline__ void start() {
#pragma unroll
        for (int i = 0; i < 8 * C::TILES; ++i) acc[i / 4 / C::TILES][i / 4 % C::TILES][i % 4] = 0;
    }
    __device__ __forceinline__ void add_group(const char* memory, uint32_t, int box, uint32_t scales, int half) {
        multiply<T, C>(acc, memory + box, place, scales, half);
    }
    __device__ __forceinline__ void write(float* sums) const { write_sums<C>(sums, acc, first_row); }
};

template <typename T, typename C>
__global__ void __launch_bounds__(C::THREADS, 1)
    int4_few(const __grid_constant__ Maps maps, const __grid_constant__ Given<T> given, T* __restrict__ out) {
    few_rows<T, C, Product<T, C>>(maps, given, out);
}

template <int ROWS, int K_WARPS, int TILES>
using Config = FewConfig<ROWS, WARP_ROWS, K_WARPS, TILES, 8, false>;

// Rows of x and weight are contiguous, x_row elements and weight_row bytes apart, at multiples of 16 bytes; other
// strides are in elements. zero: null if there are no zero points. rows: of the weights in a tile, 32, 64, 96, 128, 192
// or 224. Clusters of `parts` blocks (1 to 8) divide k in boxes of 256.
extern "C" int int4_few(const void* x, const uint8_t* weight, const void* scale, const uint8_t* zero, void* out,
                        int64_t M, int64_t N, int64_t K, int64_t x_row, int64_t weight_row, int64_t scale_row,
                        int64_t scale_group, int64_t zero_row, int64_t zero_group, int64_t dtype, int64_t rows,
                        int64_t parts, cudaStream_t stream, LaunchRecord* record) {
    const MatrixOperand left{x, false, M, x_row}, right{weight, false, N, weight_row};
    const auto run = [&](auto of_type) {
        using T = decltype(of_type);
        const Groups<T> groups{static_cast<const T*>(scale), zero, scale_row, scale_group, zero_row, zero_group};
        const Given<T> given{groups, int(M), int(N), int(K)};
        const auto with = [&](auto config) {
            using C = decltype(config);
            return launch_few<T, C>(int4_few<T, C>, left, right, given, out, int(parts), stream, record);
        };
        const auto with_rows = [&](auto tiles) {
            constexpr int TILES = decltype(tiles)::value;
            constexpr int MANY = TILES == 1 ? 2 : 1;  // twice the warps where registers allow it
            if (rows == 32) return with(Config<32, 8, TILES>());
            if (rows == 64) return with(Config<64, 4 * MANY, TILES>());
            if (rows == 96) return with(Config<96, 2 * MANY, TILES>());
            if (rows == 128) return with(Config<128, 2 * MANY, TILES>());
            return rows == 192 ? with(Config<192, MANY, TILES>()) : with(Config<224, MANY, TILES>());
        };
        return M <= 8 ? with_rows(std::integral_constant<int, 1>()) : with_rows(std::integral_constant<int, 2>());
    };
    return dtype == BFLOAT16 ? run(__nv_bfloat16()) : run(__half());
}
