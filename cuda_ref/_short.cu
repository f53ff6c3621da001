// out[m, n] = sum over k of a[m, k] * b[k, n], 16 bits, any strides, for products that are over before a tile is loaded
//
// 2^log_lanes neighbouring threads share an element of out: each adds up every 2^log_lanes-th term, TERMS of which are
// in flight, and shuffles add their sums in a fixed order. There is no shared memory, no barrier and little code: what
// counts is how many accesses of memory follow each other, instructions included.
//
// If sums are short and outputs are many, a thread computes a grid of elements: it loads 2 ROWS factors for ROWS^2
// products. Neighbouring threads have neighbouring columns.
//
// Precision: products of 16 bits are exact, sums float32, rounded once.
#include "tiles.cuh"
#include "unaligned.cuh"

constexpr int THREADS = 128, TERMS = 8;

struct ShortOperand {
    const uint16_t* data;
    int64_t stride, stride_k;
};

template <typename T>
__device__ __forceinline__ float as_float(uint32_t bits) {
    const uint16_t half = uint16_t(bits);
    T x;
    memcpy(&x, &half, 2);
    return to_float(x);
}

template <typename T>
__global__ void __launch_bounds__(THREADS) matmul_short(const ShortOperand a, const ShortOperand b,
                                                        T* __restrict__ out, int count, const FastDivisor columns,
                                                        int N, int K, int log_lanes) {
    const int thread = int(blockIdx.x) * THREADS + threadIdx.x, lane = thread & ((1 << log_lanes) - 1);
    const int index = thread >> log_lanes, element = min(index, count - 1);
    const int m = columns.quotient(element), n = element - m * N;
    const uint16_t* const row = a.data + m * a.stride;
    const uint16_t* const column = b.data + n * b.stride;
    float sum = 0;
#pragma unroll 1
    for (int first = lane; first < K; first += TERMS << log_lanes) {
        uint32_t left[TERMS], right[TERMS];
#pragma unroll
        for (int i = 0; i < TERMS; ++i) {
            const int64_t k = min(first + (i << log_lanes), K - 1);
            left[i] = load_now(row + k * a.stride_k);
            right[i] = load_now(column + k * b.stride_k);
        }
#pragma unroll
        for (int i = 0; i < TERMS; ++i) {
            if (first + (i << log_lanes) < K) sum = fmaf(as_float<T>(left[i]), as_float<T>(right[i]), sum);
        }
    }
    for (int apart = 1 << log_lanes >> 1; apart > 0; apart >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
    if (lane == 0 && index < count) out[index] = from_float<T>(sum);
}

// 2^log_across threads of a warp are beside each other, and the others below them. A thread's rows and columns are as far
// apart as the warp has threads below and beside each other.
template <typename T, int ROWS, int TERMS>
__global__ void __launch_bounds__(THREADS) matmul_short_grid(const ShortOperand a, const ShortOperand b,
                                                             T* __restrict__ out, int warps, const FastDivisor columns,
                                                             int across, int M, int N, int K, int log_across) {
    const int thread = int(blockIdx.x) * THREADS + threadIdx.x, warp = thread / 32, lane = thread % 32;
    if (warp >= warps) return;
    const int beside = 1 << log_across, below = 32 >> log_across, y = columns.quotient(warp), x = warp - y * across;
    const int m0 = y * ROWS * below + (lane >> log_across), n0 = x * ROWS * beside + (lane & (beside - 1));
    const uint16_t* row[ROWS];
    const uint16_t* column[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        row[i] = a.data + min(m0 + i * below, M - 1) * a.stride;
        column[i] = b.data + min(n0 + i * beside, N - 1) * b.stride;
    }
    float sums[ROWS][ROWS] = {};
#pragma unroll 1
    for (int first = 0; first < K; first += TERMS) {
        uint32_t left[TERMS][ROWS], right[TERMS][ROWS];
#pragma unroll
        for (int t = 0; t < TERMS; ++t) {
            const int64_t k = min(first + t, K - 1);
#pragma unroll
            for (int i = 0; i < ROWS; ++i) {
                left[t][i] = load_now(row[i] + k * a.stride_k);
                right[t][i] = load_now(column[i] + k * b.stride_k);
            }
        }
#pragma unroll
        for (int t = 0; t < TERMS; ++t) {
            if (first + t >= K) continue;
#pragma unroll
            for (int i = 0; i < ROWS; ++i) {
#pragma unroll
                for (int j = 0; j < ROWS; ++j) {
                    sums[i][j] = fmaf(as_float<T>(left[t][i]), as_float<T>(right[t][j]), sums[i][j]);
                }
            }
        }
    }
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
#pragma unroll
        for (int j = 0; j < ROWS; ++j) {
            const int m = m0 + i * below, n = n0 + j * beside;
            if (m < M && n < N) out[int64_t(m) * N + n] = from_float<T>(sums[i][j]);
        }
    }
}

// As matmul_short. `rows`: of a thread's grid, 4 or 8.
extern "C" int matmul_short_grid(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K,
                                 int64_t stride_am, int64_t stride_ak, int64_t stride_bk, int64_t stride_bn,
                                 int64_t rows, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const ShortOperand left{static_cast<const uint16_t*>(a), stride_am, stride_ak};
    const ShortOperand right{static_cast<const uint16_t*>(b), stride_bn, stride_bk};
    int log_across = 0;
    while (log_across < 5 && rows << log_across < N) ++log_across;
    const int across = int(ceil_div<int64_t>(N, rows << log_across));
    const int warps = across * int(ceil_div<int64_t>(M, rows * (32 >> log_across)));
    const dim3 grid(unsigned(ceil_div(warps, THREADS / 32)));
    record->set(grid, THREADS);
    const auto run = [&](auto zero) {
        using T = decltype(zero);
        const auto kernel = rows == 4 ? matmul_short_grid<T, 4, 4> : matmul_short_grid<T, 8, 2>;
        kernel<<<grid, THREADS, 0, stream>>>(left, right, static_cast<T*>(out), warps, FastDivisor(uint32_t(across)),
                                             across, int(M), int(N), int(K), log_across);
        return cudaGetLastError();
    };
    switch (dtype) {
        case FLOAT16: return run(__half());
        case BFLOAT16: return run(__nv_bfloat16());
        default: return cudaErrorInvalidValue;
    }
}

// The elements of out, times 2^log_lanes (at most 32), are fewer than 2^31.
extern "C" int matmul_short(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K,
                            int64_t stride_am, int64_t stride_ak, int64_t stride_bk, int64_t stride_bn,
                            int64_t log_lanes, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const ShortOperand left{static_cast<const uint16_t*>(a), stride_am, stride_ak};
    const ShortOperand right{static_cast<const uint16_t*>(b), stride_bn, stride_bk};
    const int count = int(M * N);
    const dim3 grid(unsigned(ceil_div<int64_t>(M * N << log_lanes, THREADS)));
    record->set(grid, THREADS);
    const auto run = [&](auto zero) {
        using T = decltype(zero);
        matmul_short<T><<<grid, THREADS, 0, stream>>>(left, right, static_cast<T*>(out), count,
                                                      FastDivisor(uint32_t(N)), int(N), int(K), int(log_lanes));
        return cudaGetLastError();
    };
    switch (dtype) {
        case FLOAT16: return run(__half());
        case BFLOAT16: return run(__nv_bfloat16());
        default: return cudaErrorInvalidValue;
    }
}
