// r[i, j] = x[i, j] + residual[i, j], y[i, j] = r[i, j] * weight[j] / sqrt(mean over k of r[i, k]^2 + eps), long rows
//
// A block stays on the device, takes every gridDim.x-th row, and holds r of one row in shared memory. In one pass it
// writes y of a row and adds the next, so that it reads and writes at all times but for the sum of the squares.
// registers.cu reads, waits for the sum, and writes: a row of 128 KiB fills a multiprocessor, which then has nothing
// else to do.
#include "common/rows.cuh"

constexpr int THREADS = 1024;
constexpr int AT_ONCE = 2;  // packs of x and of the residual that a thread has on the way

// The rows of all matrices, in packs of 16 bytes; strides in packs.
struct LongRows {
    const uint4 *x, *residual, *weight;
    uint4 *y, *r;
    int64_t m, x_m, residual_m;
    int packs;
};

// WRITE: y of `row`, whose sums are in shared memory. ADD: the sums of `next`; returns their squares.
// A thread has the same packs in each row, so that no other thread reads its sums.
template <typename T, bool WRITE, bool ADD>
__device__ __forceinline__ float one_pass(const LongRows& rows, uint4* sums, int64_t row, int64_t next, float scale) {
    const auto plus = [](T a, T b) { return from_float<T>(to_float(a) + to_float(b)); };
    const auto normed = [&](T v, T w) { return from_float<T>(to_float(v) * scale * to_float(w)); };
    float squares = 0.0f;
    for (int first = threadIdx.x; first < rows.packs; first += AT_ONCE * THREADS) {
        uint4 x[AT_ONCE], residual[AT_ONCE], weight[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            const int pack = first + i * THREADS;
            if (pack >= rows.packs) break;
            if (ADD) x[i] = rows.x[next * rows.x_m + pack];
            if (ADD) residual[i] = rows.residual[next * rows.residual_m + pack];
            if (WRITE) weight[i] = rows.weight[pack];
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            const int pack = first + i * THREADS;
            if (pack >= rows.packs) break;
            if (WRITE) rows.y[row * rows.packs + pack] = elementwise<T>(normed, sums[pack], weight[i]);
            if (ADD) {
                const uint4 sum = elementwise<T>(plus, x[i], residual[i]);
                sums[pack] = rows.r[next * rows.packs + pack] = sum;
#pragma unroll
                for (int lane = 0; lane < 16 / sizeof(T); ++lane) {
                    squares += element<T>(sum, lane) * element<T>(sum, lane);
                }
            }
        }
    }
    return squares;
}

template <typename T>
__global__ void __launch_bounds__(THREADS) add_rms_norm_rows_in_turn(const LongRows rows, int64_t n, float eps) {
    __shared__ float scratch[2][WARP];
    extern __shared__ uint4 sums[];
    int64_t row = blockIdx.x;
    float squares = one_pass<T, false, true>(rows, sums, row, row, 0.0f);
    for (int turn = 0; row < rows.m; row += gridDim.x, turn ^= 1) {
        const float scale = rsqrtf(over_block(squares, Addition(), scratch[turn]) / n + eps);
        const int64_t next = row + gridDim.x;
        squares = next < rows.m ? one_pass<T, true, true>(rows, sums, row, next, scale)
                                : one_pass<T, true, false>(rows, sums, row, next, scale);
    }
}

// Returns cudaErrorNotSupported if a row needs more shared memory than a block has.
extern "C" int add_rms_norm_persistent(const void* x, const void* residual, const void* weight, void* y, void* r,
                                       int64_t m, int64_t n, int64_t x_m, int64_t residual_m, float eps,
                                       int64_t blocks, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    cudaError_t error = cudaSuccess;
    const cudaError_t launched = by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int64_t LANES = 16 / sizeof(T);
        const auto kernel = add_rms_norm_rows_in_turn<T>;
        const size_t bytes = size_t(n) * sizeof(T), most = most_shared_bytes() - 2 * WARP * sizeof(float);
        if (bytes > most) {
            error = cudaErrorNotSupported;
            return;
        }
        // The limit belongs to the kernel: a lower one could make the launch of another thread fail.
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(most));
        const LongRows rows = {static_cast<const uint4*>(x), static_cast<const uint4*>(residual),
                               static_cast<const uint4*>(weight), static_cast<uint4*>(y), static_cast<uint4*>(r), m,
                               x_m / LANES, residual_m / LANES, int(n / LANES)};
        const dim3 grid{unsigned(blocks)};
        record->set(grid, THREADS, bytes);
        kernel<<<grid, THREADS, bytes, stream>>>(rows, n, eps);
    });
    return error != cudaSuccess ? error : launched;
}
