// out[m, n] = sum over groups g of scale[n, g] * (sum over k in g of x[m, k] * (code[n, k] - zero[n, g])), for at most
// 64 rows
//
// requires: sm_90a
//
// few.cuh copies the operands and adds the sums.
//
// As in wgmma.cu, the rows of the weights are the rows of the product, from registers, and the rows of x its columns,
// from shared memory. So a weight is unpacked once, no thread loads x, and a group of k takes eight asynchronous
// products instead of the 64 of mma.sync in few.cu.
//
// A thread's fragment has the pairs (2q, 2q + 1) and (2q + 8, 2q + 9) of each 16 k of two rows: a byte of codes each.
//
// Precision: code less zero is exact, in units of a power of two; the sum of a group is multiplied by its scale in
// float32, and the sum of all by the unit.
#include "attention/wgmma_steps.cuh"
#include "int4_matmul/few.cuh"

// The codes in bits 0 to 3 and 20 to 23, less the zero points, in units: exact.
template <typename T>
__device__ __forceinline__ uint32_t units_of_byte(uint32_t twice, Pair<T> minus_zero) {
    constexpr uint32_t POWERS = (LOW_POWER<T> & 0xffffu) | (HIGH_POWER<T> & 0xffff0000u);
    const Pair<T> units = __hfma2(pair_of<T>(twice & 0x00f0000fu), pair_of<T>(POWERS), minus_zero);
    uint32_t result;
    memcpy(&result, &units, 4);
    return result;
}

// The sums of a warp, a quarter of its warpgroup's; its functions are those that few.cuh describes. A warp has up to 16
// rows of the weights.
template <typename T, typename C>
struct Product {
    // A group of k is unpacked in PARTS parts of STEPS products, as large as registers allow.
    static constexpr int PARTS = C::TILES > 2 ? 4 : 2, STEPS = GROUP / 16 / PARTS;

    float acc[4 * C::TILES];
    int row;        // a thread's first row in the tile; the other one is 8 further
    bool has_both;  // whether the warp has the other row; if not, the thread takes the warp's last one again

    __device__ __forceinline__ explicit Product(int first)
        : row(first + threadIdx.x % 32 / 4), has_both(threadIdx.x % 32 / 4 + 8 < C::WARP_ROWS) {}
    __device__ __forceinline__ static int scale_row(int lane) { return min(lane, C::WARP_ROWS - 1); }
    __device__ __forceinline__ void start() {
#pragma unroll
        for (int i = 0; i < 4 * C::TILES; ++i) acc[i] = 0;
    }
    // The distance to a thread's other row.
    __device__ __forceinline__ int second() const {
        return has_both ? 8 : C::WARP_ROWS - 1 - int(threadIdx.x % 32 / 4);
    }
    __device__ __forceinline__ void add_group(const char* memory, uint32_t shared, int box, uint32_t scales, int half) {
        float sums[4 * C::TILES], scale[2];
        Pair<T> zeros[2];
        int codes[2];  // offsets of the group's codes, which an exclusive or with 16 i moves by i chunks of 16 bytes
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const uint32_t both = __shfl_sync(0xffffffffu, scales, threadIdx.x % 32 / 4 + i * second());
            const uint16_t bits = uint16_t(both);
            T of_row;
            memcpy(&of_row, &bits, 2);
            scale[i] = to_float(of_row), zeros[i] = minus_zeros<T>(__byte_perm(both, both, 0x3232));
            const int r = row + i * second();
            codes[i] = box + r * ROW_BYTES + (r % 8 ^ half * 4) * 16;
        }
        uint32_t weights[2][4 * STEPS];  // the fragments of this and of the previous part
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            auto& current = weights[part % 2];
            if (part > 1) {
                wgmma_wait_group<1>();
                warpgroup_fence_operand(current);
            }
            unpack(current, memory, codes, part * STEPS / 2, zeros);
            warpgroup_fence_operand(current);
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < STEPS; ++k) {
                const int step = part * STEPS + k;
                const uint32_t x = shared + box + C::CODE_BYTES + (half * 2 + step / 4) * C::X_BYTES;
                wgmma<T, false>(sums, current + k * 4, wgmma_descriptor(x, 0) + step % 4 * K_MAJOR_STEP, step > 0);
            }
            wgmma_commit_group();
        }
        wgmma_wait_group<0>();
        warpgroup_fence_operand(sums);
        warpgroup_fence_operand(weights[0]);
        warpgroup_fence_operand(weights[1]);
#pragma unroll
        for (int i = 0; i < 4 * C::TILES; ++i) acc[i] += sums[i] * scale[i % 4 / 2];
    }
    __device__ __forceinline__ void write(float* sums) const {
        const int q = threadIdx.x % 4;
#pragma unroll
        for (int i = 0; i < 4 * C::TILES; ++i) {
            const int m = i / 4 * 8 + q * 2 + i % 2, n = row + i % 4 / 2 * 8;
            if (i % 4 < 2 || has_both) sums[m * C::PITCH + n] = acc[i];
        }
    }

private:
    // The fragments of a part of a thread's two rows, from the 16 bytes `chunk` of the group on.
    __device__ __forceinline__ static void unpack(uint32_t (&weights)[4 * STEPS], const char* memory,
                                                  const int (&codes)[2], int chunk, const Pair<T> (&zeros)[2]) {
        const uint32_t byte = threadIdx.x % 4 * 0x1111;  // selects it for all bytes of a word
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int j = 0; j < STEPS / 2; ++j) {
                const uint4 found = *reinterpret_cast<const uint4*>(memory + (codes[i] ^ (chunk + j) * 16));
                const uint32_t words[] = {found.x, found.y, found.z, found.w};
#pragma unroll
                for (int word = 0; word < 4; ++word) {
                    weights[j * 8 + word / 2 * 4 + word % 2 * 2 + i] =
                        units_of_byte<T>(__byte_perm(words[word], 0, byte), zeros[i]);
                }
            }
        }
    }
};

template <typename T, typename C>
__global__ void __launch_bounds__(C::THREADS, 1)
    int4_few_wgmma(const __grid_constant__ Maps maps, const __grid_constant__ Given<T> given, T* __restrict__ out) {
    few_rows<T, C, Product<T, C>>(maps, given, out);
}

// ROWS rows of the weights in a tile, 16 or 14 for each warp. With this padding the sums that a warp writes lie in all
// banks. More than 32 rows of x leave registers for half of the warps.
template <int ROWS, int TILES>
struct ConfigOf {
    static constexpr int WARPS = TILES > 4 ? 8 : ROWS == 192 ? 12 : 16, WARP_ROWS = ROWS == 224 ? 14 : 16;
    using Type = FewConfig<ROWS, WARP_ROWS, WARPS * WARP_ROWS / ROWS, TILES, 4, WARPS == 16>;
};
template <int ROWS, int TILES>
using Config = typename ConfigOf<ROWS, TILES>::Type;

// Arguments as for int4_few. rows: of the weights in a tile, 64 or 128; for at most 32 rows of x also 192, 224 or 256.
extern "C" int int4_few_wgmma(const void* x, const uint8_t* weight, const void* scale, const uint8_t* zero, void* out,
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
            return launch_few<T, C>(int4_few_wgmma<T, C>, left, right, given, out, int(parts), stream, record);
        };
        const auto with_rows = [&](auto tiles) {
            constexpr int TILES = decltype(tiles)::value;
            if (rows == 64) return with(Config<64, TILES>());
            if constexpr (TILES <= 4) {
                if (rows == 192) return with(Config<192, TILES>());
                if (rows == 224) return with(Config<224, TILES>());
                if (rows == 256) return with(Config<256, TILES>());
            }
            return with(Config<128, TILES>());
        };
        if (M <= 8) return with_rows(std::integral_constant<int, 1>());
        if (M <= 16) return with_rows(std::integral_constant<int, 2>());
        return M <= 32 ? with_rows(std::integral_constant<int, 4>()) : with_rows(std::integral_constant<int, 8>());
    };
    return dtype == BFLOAT16 ? run(__nv_bfloat16()) : run(__half());
}
