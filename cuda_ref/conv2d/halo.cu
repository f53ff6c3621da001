// out[n, p, q, k] = sum over r, s, c of x[n, p + r - padding, q + s - padding, c] * weight[k, r, s, c] for few
// channels, on Hopper's tensor cores
//
// requires: sm_90a
//
// wgmma.cu reads the pixels of a tile once per tap, nine times for a window of 3 x 3. With 64 channels and 64 outputs a
// product needs so many bytes that the L2 cache limits it. Here a tile of 8 x ROWS pixels is loaded once, together with
// the surrounding pixels that the window reaches (the halo), and all weights stay in shared memory.
//
// Each tap reads the same tile from another address. wgmma reads its right operand in groups of eight rows: eight
// pixels of a row of the image. Tap (r, s) begins r rows of the image and s pixels further. Rows in shared memory are
// 16 pixels apart, so that all groups have the same position in the swizzle. The pixels are the right operand, since
// that may have 256 rows, and the weights the left one: the product is out^T, which is transposed on its way to shared
// memory (stmatrix).
//
// Two consumers work in turn: while one uses the tensor cores, the other stores its tile from the buffer of its halo
// and loads the next halo there. There is no producer.
//
// Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"; turns as in FlashAttention-3 (Shah et al.,
// 2024).
#include <algorithm>

#include "common/launch.cuh"
#include "hopper/mbarrier.cuh"
#include "hopper/wgmma.cuh"

constexpr int CONSUMERS = 2, THREADS = CONSUMERS * WARPGROUP, GROUP = 8, HALO_WIDTH = 16;
constexpr int HALO_ROW_BYTES = HALO_WIDTH * ROW_BYTES, TURN_BARRIER = 1, STORE_BARRIER = 3;

struct HaloMaps {
    CUtensorMap x, weight, out;
};

struct Halo {
    int R, S, padding, tiles, tiles_p, tiles_q;

    __host__ __device__ int weight_bytes() const { return R * S * BOX_BYTES; }
};

struct Tile {
    int image, p, q;
};

template <int ROWS>
__device__ __forceinline__ Tile tile_at(const Halo& halo, int index) {
    const int row = index / halo.tiles_q, image = row / halo.tiles_p;
    return {image, (row - image * halo.tiles_p) * ROWS, (index - row * halo.tiles_q) * GROUP};
}

template <int ROWS>
__device__ __forceinline__ void load_halo(const HaloMaps& maps, const Halo& halo, int index, uint32_t buffer,
                                          uint32_t barrier) {
    const Tile tile = tile_at<ROWS>(halo, index);
    mbarrier_arrive_expect_tx(barrier, (ROWS + halo.R - 1) * HALO_ROW_BYTES);
    tma_load(buffer, &maps.x, 0, tile.q - halo.padding, tile.p - halo.padding, tile.image, barrier);
}

// Rounds the sums of 64 outputs and 8 ROWS pixels, and writes them as rows of pixels, swizzled.
template <typename T, int COUNT>
__device__ __forceinline__ void write_transposed(uint32_t box, const float (&acc)[COUNT], int thread) {
    const int lane = thread % 32, chunk = thread / 32 * 2 + lane / 8 % 2;
    const uint32_t row = box + (lane / 16 * 8 + lane % 8) * ROW_BYTES + (chunk ^ lane % 8) * 16;
#pragma unroll
    for (int j = 0; j < COUNT / 4; j += 2) {
        uint32_t x[4];
#pragma unroll
        for (int matrix = 0; matrix < 4; ++matrix) {
            const float* pair = &acc[(j + matrix / 2) * 4 + matrix % 2 * 2];
            const Pack<T, 2> rounded = {from_float<T>(pair[0]), from_float<T>(pair[1])};
            memcpy(&x[matrix], &rounded, 4);
        }
        stmatrix_x4_transposed(row + j * 8 * ROW_BYTES, x[0], x[1], x[2], x[3]);
    }
}

template <typename T, int ROWS>
__global__ void __launch_bounds__(THREADS, 1) conv2d_halo(const __grid_constant__ HaloMaps maps, const Halo halo) {
    extern __shared__ char raw[];
    __shared__ uint64_t barriers[CONSUMERS + 1];
    const uint32_t shared = shared_address(raw + (-shared_address(raw) & (BOX_ALIGNMENT - 1)));
    const int consumer = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP, 0), thread = threadIdx.x % WARPGROUP;
    const uint32_t buffer = shared + halo.weight_bytes() + consumer * (ROWS + halo.R - 1) * HALO_ROW_BYTES;
    const uint32_t full = shared_address(&barriers[consumer]), weights_full = shared_address(&barriers[CONSUMERS]);
    const int first = blockIdx.x * CONSUMERS + consumer, apart = gridDim.x * CONSUMERS;

    if (threadIdx.x == 0) {
        for (auto& barrier : barriers) mbarrier_init(shared_address(&barrier), 1);
        mbarrier_fence_init();
    }
    __syncthreads();
    if (thread == 0) {
        if (consumer == 0) {
            mbarrier_arrive_expect_tx(weights_full, halo.weight_bytes());
            for (int tap = 0; tap < halo.R * halo.S; ++tap) {
                tma_load(shared + tap * BOX_BYTES, &maps.weight, 0, tap, blockIdx.y * 64, weights_full);
            }
        }
        if (first < halo.tiles) load_halo<ROWS>(maps, halo, first, buffer, full);
    }
    mbarrier_wait_parity(weights_full, 0);

    if (consumer == 1) named_barrier_arrive(TURN_BARRIER, THREADS);  // consumer 0 has the first turn
    uint32_t phase = 0;
    for (int index = first; index < halo.tiles; index += apart, phase ^= 1) {
        float acc[ROWS * GROUP / 2] = {};
        mbarrier_wait_parity(full, phase);
        named_barrier_sync(TURN_BARRIER + consumer, THREADS);
        uint64_t a = wgmma_descriptor(shared, 0);
        for (int r = 0; r < halo.R; ++r) {
            uint64_t b = wgmma_descriptor(buffer + r * HALO_ROW_BYTES, 0, HALO_ROW_BYTES);
#pragma unroll 1
            for (int s = 0; s < halo.S; ++s, a += BOX_BYTES >> 4, b += ROW_BYTES >> 4) {
                wgmma_fence();
                wgmma_stage<T, false, false>(acc, a, b);
                wgmma_commit_group();
                wgmma_wait_group<1>();
            }
        }
        wgmma_wait_group<0>();
        warpgroup_fence_operand(acc);
        named_barrier_arrive(TURN_BARRIER + 1 - consumer, THREADS);

        named_barrier_sync(STORE_BARRIER + consumer, WARPGROUP);  // all four warps have read the halo
        write_transposed<T>(buffer, acc, thread);
        fence_proxy_async();
        named_barrier_sync(STORE_BARRIER + consumer, WARPGROUP);
        if (thread == 0) {
            const Tile tile = tile_at<ROWS>(halo, index);
            tma_store(&maps.out, buffer, blockIdx.y * 64, tile.q, tile.p, tile.image);
            tma_store_commit_group();
            tma_store_wait_group_read<0>();
            if (index + apart < halo.tiles) load_halo<ROWS>(maps, halo, index + apart, buffer, full);
        }
    }
}

template <typename T, int ROWS>
cudaError_t launch(const HaloMaps& maps, const Halo& halo, int64_t K, cudaStream_t stream, LaunchRecord* record) {
    const int bytes = BOX_ALIGNMENT + halo.weight_bytes() + CONSUMERS * (ROWS + halo.R - 1) * HALO_ROW_BYTES;
    const int columns = int(ceil_div<int64_t>(K, 64)), pairs = ceil_div(halo.tiles, CONSUMERS);
    const int waves = ceil_div(pairs, std::max(1, multiprocessor_count() / columns));
    return launch_clusters(1, conv2d_halo<T, ROWS>, dim3(ceil_div(pairs, waves), columns), THREADS, bytes, stream,
                           record, maps, halo);
}

// x (N, H, W, C) with C up to 64, channels contiguous, the other strides in elements; weight (K, R S, C); out (N, P, Q,
// K). All strides are multiples of 16 bytes.
extern "C" int conv2d_halo(const void* x, const void* weight, void* out, int64_t N, int64_t H, int64_t W, int64_t C,
                           int64_t pitch_n, int64_t pitch_h, int64_t pitch_w, int64_t K, int64_t R, int64_t S,
                           int64_t pitch_k, int64_t pitch_tap, int64_t P, int64_t Q, int64_t padding, int64_t rows,
                           int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const auto run = [&](auto zero, auto height) {
        using T = decltype(zero);
        constexpr int ROWS = decltype(height)::value;
        const auto type = TENSOR_MAP_TYPE<T>;
        HaloMaps maps;
        if (!encode_tensor_map<4>(&maps.x, type, sizeof(T), x, {C, W, H, N}, {pitch_w, pitch_h, pitch_n},
                                  {HALO_WIDTH, int(ROWS + R - 1), 1}) ||
            !encode_tensor_map<3>(&maps.weight, type, sizeof(T), weight, {C, R * S, K}, {pitch_tap, pitch_k},
                                  {1, 64}) ||
            !encode_tensor_map<4>(&maps.out, type, sizeof(T), out, {K, Q, P, N}, {K, Q * K, P * Q * K},
                                  {GROUP, ROWS, 1})) {
            return cudaErrorInvalidValue;
        }
        const int tiles_p = int(ceil_div<int64_t>(P, ROWS)), tiles_q = int(ceil_div<int64_t>(Q, GROUP));
        const Halo halo = {int(R), int(S), int(padding), int(N) * tiles_p * tiles_q, tiles_p, tiles_q};
        return launch<T, ROWS>(maps, halo, K, stream, record);
    };
    const auto by_rows = [&](auto zero) {
        return rows == 28 ? run(zero, std::integral_constant<int, 28>()) : run(zero, std::integral_constant<int, 32>());
    };
    switch (dtype) {
        case FLOAT16: return by_rows(__half());
        case BFLOAT16: return by_rows(__nv_bfloat16());
        default: return cudaErrorInvalidValue;
    }
}
