// out[n, p, q, k] = sum over r, s, c of x[n, p stride + r - padding, q stride + s - padding, c] * weight[k, r, s, c],
// 16 bits, as an implicit product of matrices
//
// Adds tiles to conv2d.cu: a block computes a tile of pixels by outputs. Rows of the left operand are output pixels; a
// step of the sum takes up to 64 channels of one tap. The left matrix, R S times as large as x, is never stored:
// threads compute the address of each row at a tap, and copy it to shared memory (cp.async), or zeros in the padding.
// Tensor cores multiply by mma.sync while the copies of the next two steps are in flight.
//
// Each thread computes addresses for all rows that it copies. In wgmma.cu TMA does that.
//
// Precision: products of 16 bits are exact, sums float32, rounded once.
//
// Source: implicit GEMM as in cuDNN (Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning", 2014).
#include "common/mma_tiles.cuh"
#include "common/tiles.cuh"

constexpr int GROUP_M = 8;

struct Pixels {  // images, as in hopper/tma.cuh: strides in elements
    const char* data;
    int channels, width, height;
    int64_t pitch_x, pitch_y, pitch_image;
    int stride_x, stride_y, padding_x, padding_y;
};

struct Taps {
    const char* data;
    int R, S, K;
    int64_t pitch_k, pitch_tap;
};

struct Output {
    int P, Q, pixels;
};

struct Row {  // a row of the tile: its address at tap (0, 0), which may lie in the padding
    int64_t offset;
    int x, y;
};

__device__ __forceinline__ Row row_of(const Pixels& x, const Output& out, int pixel) {
    const int line = pixel / out.Q, image = line / out.P;
    const int at_x = (pixel - line * out.Q) * x.stride_x - x.padding_x;
    const int at_y = pixel < out.pixels ? (line - image * out.P) * x.stride_y - x.padding_y : x.height;
    return {image * x.pitch_image + at_y * x.pitch_y + at_x * x.pitch_x, at_x, at_y};
}

// Copies `left` elements, at most 8, followed by zeros.
__device__ __forceinline__ void copy_chunk(char* to, const char* from, const char* somewhere, int left) {
    copy_async(to, left <= 0 ? somewhere : from, left <= 0 ? 0 : left >= CHUNK ? 16 : 2 * left);
}

template <typename T, typename C>
__global__ void __launch_bounds__(C::THREADS)
    conv2d_mma(const Pixels x, const Taps weight, const Output out_shape, const GroupedTileScheduler<GROUP_M> tiles,
               T* __restrict__ out) {
    using A = TileRows<C::BLOCK_M, C::BLOCK_K, false>;
    using B = TileRows<C::BLOCK_N, C::BLOCK_K, false>;
    constexpr int STAGE_BYTES = A::BYTES + B::BYTES;
    extern __shared__ __align__(16) char shared[];
    Row* const rows = reinterpret_cast<Row*>(shared);
    char* const stages = shared + C::BLOCK_M * sizeof(Row);
    const TileCoordinate tile = tiles[blockIdx.x];
    const int m = tile.m * C::BLOCK_M, n = tile.n * C::BLOCK_N;
    for (int i = threadIdx.x; i < C::BLOCK_M; i += C::THREADS) rows[i] = row_of(x, out_shape, m + i);
    __syncthreads();

    const int blocks = ceil_div(x.channels, C::BLOCK_K), steps = weight.R * weight.S * blocks;
    int r = 0, s = 0, channel = 0, stage = 0;  // position of the next copy
    auto copy = [&](int step) {
        if (step < steps) {
            char* const a = stages + stage * STAGE_BYTES;
            const int64_t of_tap = r * x.pitch_y + s * x.pitch_x + channel;
            for (int i = threadIdx.x; i < A::ROWS * A::CHUNKS; i += C::THREADS) {
                const int row = i / A::CHUNKS, c = i % A::CHUNKS * CHUNK;
                const Row at = rows[row];
                const bool inside = unsigned(at.x + s) < unsigned(x.width) && unsigned(at.y + r) < unsigned(x.height);
                copy_chunk(a + row * A::PITCH + c * 2, x.data + (at.offset + of_tap + c) * 2, x.data,
                           inside ? x.channels - channel - c : 0);
            }
            const int64_t of_weights = (r * weight.S + s) * weight.pitch_tap + channel;
            for (int i = threadIdx.x; i < B::ROWS * B::CHUNKS; i += C::THREADS) {
                const int row = i / B::CHUNKS, c = i % B::CHUNKS * CHUNK;
                copy_chunk(a + A::BYTES + row * B::PITCH + c * 2,
                           weight.data + ((n + row) * weight.pitch_k + of_weights + c) * 2, weight.data,
                           n + row < weight.K ? x.channels - channel - c : 0);
            }
            if ((channel += C::BLOCK_K) >= x.channels) {
                channel = 0;
                if (++s == weight.S) s = 0, ++r;
            }
            if (++stage == C::STAGES) stage = 0;
        }
        __pipeline_commit();
    };
    for (int step = 0; step < C::STAGES - 1; ++step) copy(step);
    float sums[C::TILES_M][C::TILES_N][4] = {};
    for (int step = 0; step < steps; ++step) {
        const char* const a = stages + step % C::STAGES * STAGE_BYTES;
        __pipeline_wait_prior(C::STAGES - 2);
        __syncthreads();  // this stage has arrived, and all threads have read the previous one
        copy(step + C::STAGES - 1);
        multiply<T, false, false, C>(sums, a, a + A::BYTES);
    }
    __pipeline_wait_prior(0);
    __syncthreads();  // all threads have read the last stages
    write_sums<C>(reinterpret_cast<float*>(stages), sums);
    __syncthreads();
    store_tile<T, C>(out, reinterpret_cast<const float*>(stages), 0, 1, m, n, out_shape.pixels, weight.K);
}

template <typename T, typename C>
cudaError_t launch(const Pixels& x, const Taps& weight, const Output& shape, void* out, cudaStream_t stream,
                   LaunchRecord* record) {
    constexpr int STAGE_BYTES =
        TileRows<C::BLOCK_M, C::BLOCK_K, false>::BYTES + TileRows<C::BLOCK_N, C::BLOCK_K, false>::BYTES;
    constexpr int RING_BYTES = C::STAGES * STAGE_BYTES > C::SUM_BYTES ? C::STAGES * STAGE_BYTES : C::SUM_BYTES;
    constexpr int SHARED_BYTES = C::BLOCK_M * int(sizeof(Row)) + RING_BYTES;
    const GroupedTileScheduler<GROUP_M> tiles(ceil_div(shape.pixels, C::BLOCK_M), ceil_div(weight.K, C::BLOCK_N));
    const dim3 grid(unsigned(tiles.count())), block(C::THREADS);
    record->set(grid, block, SHARED_BYTES);
    cudaFuncSetAttribute(conv2d_mma<T, C>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
    conv2d_mma<T, C><<<grid, block, SHARED_BYTES, stream>>>(x, weight, shape, tiles, static_cast<T*>(out));
    return cudaGetLastError();
}

// Arguments as in wgmma.cu, without the tile: x (images, height, width, channels), weight (K, R S, channels).
extern "C" int conv2d_mma(const void* x, const void* weight, void* out, int64_t images, int64_t height, int64_t width,
                          int64_t channels, int64_t pitch_image, int64_t pitch_y, int64_t pitch_x, int64_t K,
                          int64_t R, int64_t S, int64_t pitch_k, int64_t pitch_tap, int64_t P, int64_t Q,
                          int64_t stride_y, int64_t stride_x, int64_t padding_y, int64_t padding_x, int64_t dtype,
                          cudaStream_t stream, LaunchRecord* record) {
    const Pixels pixels = {static_cast<const char*>(x), int(channels), int(width), int(height),
                           pitch_x, pitch_y, pitch_image,
                           int(stride_x), int(stride_y), int(padding_x), int(padding_y)};
    const Taps taps = {static_cast<const char*>(weight), int(R), int(S), int(K), pitch_k, pitch_tap};
    const Output shape = {int(P), int(Q), int(images * P * Q)};
    const auto run = [&](auto zero) {
        using T = decltype(zero);
#ifdef __CUDACC__
        if (K > 64) return launch<T, MmaConfig<128, 128, 64, 2, 4, 3>>(pixels, taps, shape, out, stream, record);
        return launch<T, MmaConfig<128, 64, 64, 2, 2, 3>>(pixels, taps, shape, out, stream, record);
#else  // one tile is enough on the CPU
        return launch<T, MmaConfig<32, 32, 64, 2, 2, 3>>(pixels, taps, shape, out, stream, record);
#endif
    };
    switch (dtype) {
        case FLOAT16: return run(__half());
        case BFLOAT16: return run(__nv_bfloat16());
        default: return cudaErrorInvalidValue;
    }
}
