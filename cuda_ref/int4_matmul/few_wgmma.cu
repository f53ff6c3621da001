// out[m, n] = sum over groups g of scale[n, g] * (sum over k in g of x[m, k] * (code[n, k] - zero[n, g])), for at most
// 32 rows
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

// The sums of a warp, a quarter of its warpgroup's; its functions are those that few.cuh describes.
template <typename T, typename C>
struct Product {
    float acc[4 * C::TILES];
    int first_row, row[2];  // a thread's rows in the tile; the second one repeats the warp's last if it has none

    __device__ __forceinline__ explicit Product(int first) : first_row(first) {
        const int r = threadIdx.x % 32 / 4;
        row[0] = first + r, row[1] = first + min(r + 8, C::WARP_ROWS - 1);
    }
    __device__ __forceinline__ static int scale_row(int lane) { return min(lane % 16, C::WARP_ROWS - 1); }
    __device__ __forceinline__ void start() {
#pragma unroll
        for (int i = 0; i < 4 * C::TILES; ++i) acc[i] = 0;
    }
    __device__ __forceinline__ void add_group(const char* box, uint32_t address, uint32_t scales, int half) {
        float sums[4 * C::TILES], scale[2];
        Pair<T> zeros[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const uint32_t both = __shfl_sync(0xffffffffu, scales, row[i] - first_row);
            const uint16_t bits = uint16_t(both);
            T of_row;
            memcpy(&of_row, &bits, 2);
            scale[i] = to_float(of_row), zeros[i] = minus_zeros<T>(__byte_perm(both, both, 0x3232));
        }
        uint32_t weights[2][8];  // the fragments of this and of the previous 32 k
#pragma unroll
        for (int part = 0; part < 4; ++part) {
            uint32_t(&current)[8] = weights[part % 2];
            if (part > 1) {
                wgmma_wait_group<1>();
                warpgroup_fence_operand(current);
            }
            unpack(current, box, half * 4 + part, zeros);
            warpgroup_fence_operand(current);
            const uint64_t x = wgmma_descriptor(address + C::CODE_BYTES + (half * 2 + part / 2) * C::X_BYTES, 0);
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                wgmma<T, false>(sums, current + k * 4, x + (part % 2 * 2 + k) * K_MAJOR_STEP, part + k > 0);
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
            const int m = i / 4 * 8 + q * 2 + i % 2;
            if (i % 4 < 2 || row[1] == row[0] + 8) sums[m * C::PITCH + row[i % 4 / 2]] = acc[i];
        }
    }

private:
    // The fragments of 32 k from the 16 bytes `chunk` of a box.
    __device__ __forceinline__ void unpack(uint32_t (&weights)[8], const char* box, int chunk,
                                           const Pair<T> (&zeros)[2]) const {
        const uint32_t byte = threadIdx.x % 4 * 0x1111;  // selects it for all bytes of a word
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const uint4 codes =
                *reinterpret_cast<const uint4*>(box + row[i] * ROW_BYTES + (chunk ^ row[i] % 8) * 16);
            const uint32_t words[] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                weights[j / 2 * 4 + j % 2 * 2 + i] = units_of_byte<T>(__byte_perm(words[j], 0, byte), zeros[i]);
            }
        }
    }
};

template <typename T, typename C>
__global__ void __launch_bounds__(C::THREADS, 1)
    int4_few_wgmma(const __grid_constant__ Maps maps, const __grid_constant__ Given<T> given, T* __restrict__ out) {
    few_rows<T, C, Product<T, C>>(maps, given, out);
}

// ROWS rows of the weights in a tile, computed by four warpgroups. With this padding the sums that a warp writes lie in
// all banks.
template <int ROWS, int K_WARPS, int TILES>
using Config = FewConfig<ROWS, ROWS * K_WARPS / 16, K_WARPS, TILES, 4>;

// Arguments as for int4_few. rows: of the weights in a tile, 64, 128, 224 or 256.
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
            if (rows == 64) return with(Config<64, 4, TILES>());
            if (rows == 128) return with(Config<128, 2, TILES>());
            return rows == 224 ? with(Config<224, 1, TILES>()) : with(Config<256, 1, TILES>());
        };
        if (M <= 8) return with_rows(std::integral_constant<int, 1>());
        return M <= 16 ? with_rows(std::integral_constant<int, 2>()) : with_rows(std::integral_constant<int, 4>());
    };
    return dtype == BFLOAT16 ? run(__nv_bfloat16()) : run(__half());
}
