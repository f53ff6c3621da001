// out[m, n] = sum over k of a[m, k] * b[k, n] with float32 accuracy, on Hopper's bfloat16 tensor cores
//
// requires: sm_90a
//
// A float32 has 24 significant bits, a bfloat16 has 8: every number is written as the sum of three, exactly, and
//   a b = a1 b1 + (a1 b2 + a2 b1) + (a1 b3 + a2 b2 + a3 b1)
// without what is below 2^-24 of it. Six products of bfloat16 take 6/16 of the time of one on the CUDA cores.
//
// A first kernel splits both operands, each row of a and column of b scaled by a power of two that takes its largest
// element to [1, 2): it keeps the parts of small numbers above the subnormal range, and sums below infinity. It reads
// any strides and writes what the second one likes to read: rows of k, in which the three parts of 16 k, the k of one
// wgmma, lie side by side:
//   bytes     0        32       64       96       128      160      192
//   row       1st k0   2nd k0   3rd k0   1st k16  2nd k16  3rd k16  1st k32 ...
// Lines of 128 bytes, of which three hold 64 k, go through a ring of slots in shared memory: what is multiplied next
// arrives next, and a slot is free again after a few products.
//
// The second kernel is built as matmul_wgmma.cu: one thread that copies, a ring guarded by mbarriers, warpgroups that
// multiply 64 rows each, clusters of two that share b, blocks that stay. As each part is used in two products on
// average, tiles of 128 x 128 do. They leave registers for three sums of each output.
//
// Precision. Tensor cores add in float32, but truncate, always towards zero, which over a long K would exceed what
// rounding to nearest does. So they add only 64 of the leading products at a time, from zero, and `acc` takes these
// sums in additions that round, while the tensor cores have other products. Those are summed apart, all K of them: they
// are 2^-8 of the leading ones, and so is what their truncation does.
// Measured gain: see docs/ladder.md
//
// Source: bf16x3 of Henry, Tang and Heinecke, "Leveraging the bfloat16 artificial intelligence datatype for
// higher-precision computations", ARITH 2019; additions outside the tensor cores after Ootomo and Yokota, "Recovering
// single precision accuracy from tensor cores", IJHPCA 36, 2022; instructions: PTX ISA, as matmul_wgmma.cu.
#include "hopper.cuh"
#include "tiles.cuh"

constexpr int PARTS = 3, GROUP_K = 16;      // k of one wgmma
constexpr int STEP_K = 64, LINES = 3;       // k of which the leading products are added from zero, and their lines
constexpr int LINE_BYTES = 128, LINE = 64;  // bfloat16 in a line
constexpr int BOX_BYTES = 64 * LINE_BYTES;
constexpr int WARPGROUP = 128;
constexpr int BLOCK_N = 128, SUMS = BLOCK_N / 2;  // of a thread
static_assert(STEP_K * PARTS == LINES * LINE, "a step is whole lines");

// The rows of a, or the columns of b.
struct Rows {
    const float* at;
    int64_t count, stride, k_stride;
};

constexpr int SPLIT_ROWS = 16, SPLIT_K = 128;  // of a tile
constexpr int SPLIT_THREADS = SPLIT_ROWS * 16;
constexpr int EACH = SPLIT_ROWS * SPLIT_K / SPLIT_THREADS;  // elements of a tile that one thread loads, or splits

// 2^exponent, for exponents of normal numbers.
__device__ __forceinline__ float power_of_two(int exponent) { return __int_as_float((exponent + 127) << 23); }

// One block splits SPLIT_ROWS rows. It reads them twice: for the largest element, and again from the end, where the
// caches still have them. `scales` get what the scaling took away, as two factors, since 2^-149 x 2^-149 is no float32.
// An infinity is not scaled, and the lower parts of infinities and NaN are zero. What is beyond K, up to a multiple of
// 16, becomes zero.
__global__ void __launch_bounds__(SPLIT_THREADS, 4)
    split_rows(Rows a, Rows b, int64_t K, __nv_bfloat16* __restrict__ parts, float2* __restrict__ scales) {
    __shared__ uint32_t largest[SPLIT_ROWS];
    alignas(16) __shared__ float tile[SPLIT_ROWS][SPLIT_K + 4];
    const int64_t a_blocks = ceil_div<int64_t>(a.count, SPLIT_ROWS);
    const bool is_b = blockIdx.x >= a_blocks;
    const Rows rows = is_b ? b : a;
    const int64_t first = (blockIdx.x - (is_b ? a_blocks : 0)) * SPLIT_ROWS, out = is_b ? a.count : 0;
    const int64_t groups = ceil_div<int64_t>(K, GROUP_K);
    const int high = threadIdx.x / 16, low = threadIdx.x % 16;

    // Threads with successive numbers load along the dimension that is denser in memory.
    const bool along = rows.k_stride <= rows.stride;
    const int row = along ? high : low, k_first = along ? low : high;
    const bool inside = first + row < rows.count;
    const float* const x = rows.at + (first + row) * rows.stride;
    auto load = [&](float(&to)[EACH], int64_t k) {
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            const int64_t at = k + k_first + i * 16;
            to[i] = inside && at < K ? x[at * rows.k_stride] : 0.0f;
        }
    };

    float loaded[EACH], most = 0.0f;
    if (threadIdx.x < SPLIT_ROWS) largest[threadIdx.x] = 0;
#pragma unroll 2
    for (int64_t k = 0; k < K; k += SPLIT_K) {
        load(loaded, k);
#pragma unroll
        for (int i = 0; i < EACH; ++i) most = fabsf(loaded[i]) < INFINITY ? fmaxf(most, fabsf(loaded[i])) : most;
    }
    int64_t k = (K - 1) / SPLIT_K * SPLIT_K;
    load(loaded, k);
    __syncthreads();
    atomicMax(&largest[row], __float_as_uint(most));  // numbers that are not negative are ordered as their bits are
    __syncthreads();

    // From here on a thread has eight successive k of row `high`.
    const float size = __uint_as_float(largest[high]);
    const int exponent = size > 0.0f ? ilogbf(size) : 0, half = -exponent >> 1;
    const float down = power_of_two(half), down_more = power_of_two(-exponent - half);
    const bool mine = first + high < rows.count;
    if (mine && low == 0) {
        scales[out + first + high] = make_float2(power_of_two(exponent >> 1), power_of_two(exponent - (exponent >> 1)));
    }
    __nv_bfloat16* const to = parts + (out + first + high) * groups * (PARTS * GROUP_K);
    for (; k >= 0; k -= SPLIT_K) {
#pragma unroll
        for (int i = 0; i < EACH; ++i) tile[row][k_first + i * 16] = loaded[i];
        __syncthreads();
        if (k > 0) load(loaded, k - SPLIT_K);
        Pack<__nv_bfloat16, EACH> part[PARTS];
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            const float scaled = tile[high][low * EACH + i] * down * down_more;
            part[0][i] = from_float<__nv_bfloat16>(scaled);
            const float rest = fabsf(scaled) < INFINITY ? scaled - to_float(part[0][i]) : 0.0f;
            part[1][i] = from_float<__nv_bfloat16>(rest);
            part[2][i] = from_float<__nv_bfloat16>(rest - to_float(part[1][i]));
        }
        const int64_t at = k + low * EACH, group = at / GROUP_K;
        if (mine && group < groups) {
#pragma unroll
            for (int p = 0; p < PARTS; ++p) {
                __nv_bfloat16* const place = to + (group * PARTS + p) * GROUP_K + at % GROUP_K;
                *reinterpret_cast<Pack<__nv_bfloat16, EACH>*>(place) = part[p];
            }
        }
        __syncthreads();
    }
}

// How a block multiplies. CONSUMERS warpgroups have 64 rows each. CLUSTER blocks below each other share b.
// Tiles are visited in bands of BAND rows of tiles.
template <int CONSUMERS_, int SLOTS_, int CLUSTER_, int BAND_>
struct Plan {
    static constexpr int CONSUMERS = CONSUMERS_, BLOCK_M = CONSUMERS * 64, SLOTS = SLOTS_;
    static constexpr int CLUSTER = CLUSTER_, BAND = BAND_;
    // Warps that do not multiply: a warpgroup where registers are to be exchanged with it, else the one that copies.
    static constexpr int THREADS = CONSUMERS * WARPGROUP + (CONSUMERS > 1 ? WARPGROUP : 32);
    static constexpr int A_BYTES = BLOCK_M * LINE_BYTES, SLOT_BYTES = A_BYTES + BLOCK_N * LINE_BYTES;
    static constexpr int BARRIERS = SLOTS * SLOT_BYTES;            // SLOTS full ones, then SLOTS empty ones
    static constexpr int BYTES = 1024 + BARRIERS + 2 * SLOTS * 8;  // 1024 to start on a multiple of that
    static_assert(BYTES <= 227 * 1024 && CONSUMERS <= 2 && SLOTS > LINES, "");
};
using Large = Plan<2, 7, 2, 8>;
using Small = Plan<1, 9, 1, 4>;

struct Maps {
    CUtensorMap a, b;
};

// A slot of the ring, and the parity of the phase that it is in.
template <typename P>
struct Ring {
    int slot = 0;
    uint32_t phase = 0;

    __device__ __forceinline__ void advance() {
        if (++slot == P::SLOTS) slot = 0, phase ^= 1;
    }
};

// Where this block stands in its cluster, from above.
template <typename P>
__device__ __forceinline__ int place() {
    return P::CLUSTER > 1 ? int(cluster_rank()) : 0;
}

// The thread that fetches: fills a slot whenever all that read it, in all blocks that it is filled for, have done so.
template <typename P>
__device__ __forceinline__ void produce(const Maps& maps, const Bands<P::BAND>& tiles, uint32_t shared, int lines) {
    constexpr int SHARE = BLOCK_N / P::CLUSTER;  // rows of b that it fetches
    const int rank = place<P>();
    const uint32_t full = shared + P::BARRIERS, empty = full + P::SLOTS * 8;
    Ring<P> ring;
    for (int index = blockIdx.x / P::CLUSTER; index < tiles.count(); index += gridDim.x / P::CLUSTER) {
        const Tile tile = tiles[index];
        const int m = (tile.m * P::CLUSTER + rank) * P::BLOCK_M, n = tile.n * BLOCK_N + rank * SHARE;
#pragma unroll 1
        for (int line = 0; line < lines; ++line) {
            const uint32_t slot = shared + ring.slot * P::SLOT_BYTES, barrier = full + ring.slot * 8;
            const uint32_t share = slot + P::A_BYTES + rank * SHARE * LINE_BYTES;
            mbarrier_wait(empty + ring.slot * 8, ring.phase ^ 1);
            mbarrier_expect(barrier, P::SLOT_BYTES);
            tma_load(slot, &maps.a, line * LINE, m, barrier);
            if constexpr (P::CLUSTER > 1) {
                tma_load_multicast(share, &maps.b, line * LINE, n, barrier, (1 << P::CLUSTER) - 1);
            } else {
                tma_load(share, &maps.b, line * LINE, n, barrier);
            }
            ring.advance();
        }
    }
    // A block must not be gone while its neighbour may still arrive here: waits until every slot has been given back.
    if constexpr (P::CLUSTER > 1) {
        for (int i = 0; i < P::SLOTS; ++i) {
            mbarrier_wait(empty + ring.slot * 8, ring.phase ^ 1);
            ring.advance();
        }
    }
}

// What a consumer reads of a step: a and b in the three slots that hold its lines.
struct Lines {
    uint64_t a[LINES], b[LINES];
};

// Operand `part`, from 0, of the GROUP'th 16 k.
template <int GROUP>
__device__ __forceinline__ uint64_t operand(const uint64_t (&lines)[LINES], int part) {
    const int index = GROUP * PARTS + part;
    return lines[index / 4] + index % 4 * (GROUP_K * sizeof(__nv_bfloat16) >> 4);
}

template <int GROUP>
__device__ __forceinline__ void product(float (&sums)[SUMS], const Lines& lines, int a_part, int b_part) {
    wgmma<__nv_bfloat16, false, false>(sums, operand<GROUP>(lines.a, a_part), operand<GROUP>(lines.b, b_part));
}

// The other products of 16 k. ALL_PRODUCTS adds two, of which very short sums show that they are missing.
template <int GROUP, bool ALL_PRODUCTS>
__device__ __forceinline__ void lower_products(float (&lower)[SUMS], const Lines& lines) {
    if constexpr (ALL_PRODUCTS) {
        product<GROUP>(lower, lines, 2, 1);
        product<GROUP>(lower, lines, 1, 2);
    }
    product<GROUP>(lower, lines, 0, 2);
    product<GROUP>(lower, lines, 2, 0);
    product<GROUP>(lower, lines, 1, 1);
    product<GROUP>(lower, lines, 0, 1);
    product<GROUP>(lower, lines, 1, 0);
}

// acc = the sums of the leading products, lower = the sums of the others, scaled as the operands are.
template <bool ALL_PRODUCTS, typename P>
__device__ __forceinline__ void multiply(float (&acc)[SUMS], float (&lower)[SUMS], uint32_t shared, int consumer,
                                         int thread, int steps, Ring<P>& ring) {
    const uint32_t full = shared + P::BARRIERS, own_empty = full + P::SLOTS * 8;
    // Each block that fills a slot is told by one thread that it has been read.
    const bool tells = thread < P::CLUSTER;
    const uint32_t empty = P::CLUSTER > 1 && tells ? cluster_address(own_empty, thread) : own_empty;
    auto release = [&](int slot) {
        if (!tells) return;
        if constexpr (P::CLUSTER > 1) {
            mbarrier_arrive_cluster(empty + slot * 8);
        } else {
            mbarrier_arrive(empty + slot * 8);
        }
    };
    float leading[SUMS] = {};
    int before = -1;  // the slot of the last line of the step before
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        Ring<P> at[LINES];
        Lines lines;
#pragma unroll
        for (int i = 0; i < LINES; ++i) {
            const uint32_t slot = shared + ring.slot * P::SLOT_BYTES;
            lines.a[i] = wgmma_operand(slot + consumer * BOX_BYTES, 0);
            lines.b[i] = wgmma_operand(slot + P::A_BYTES, 0);
            at[i] = ring;
            ring.advance();
        }
        auto wait = [&](int i) {
            mbarrier_wait(full + at[i].slot * 8, at[i].phase);
            wgmma_fence();
        };

        wait(0);
        product<0>(leading, lines, 0, 0);
        lower_products<0, ALL_PRODUCTS>(lower, lines);
        wgmma_commit();
        wgmma_wait<1>();  // the last group of the step before is done
        if (before >= 0) release(before);
        wait(1);
        product<1>(leading, lines, 0, 0);
        lower_products<1, ALL_PRODUCTS>(lower, lines);
        wgmma_commit();
        wait(2);
        product<2>(leading, lines, 0, 0);
        lower_products<2, ALL_PRODUCTS>(lower, lines);
        wgmma_commit();
        wgmma_wait<1>();  // groups 0 and 1 are done, which were all that line 0 has
        release(at[0].slot);
        product<3>(leading, lines, 0, 0);
        wgmma_commit();
        lower_products<3, ALL_PRODUCTS>(lower, lines);
        wgmma_commit();
        wgmma_wait<1>();  // and group 2, and all leading products; the tensor cores go on with the others
        release(at[1].slot);
        wgmma_settle(leading);
#pragma unroll
        for (int i = 0; i < SUMS; ++i) acc[i] += leading[i], leading[i] = 0.0f;
        wgmma_settle(leading);  // are zeros here, not where the next step begins: that would wait for all products
        before = at[2].slot;
    }
    wgmma_wait<0>();
    wgmma_settle(lower);
    release(before);
}

// Adds the sums, undoes the scaling, and stores 64 rows from (m, n) on.
__device__ __forceinline__ void store(float* __restrict__ out, const float (&acc)[SUMS], const float (&lower)[SUMS],
                                      const float2* __restrict__ a_scales, const float2* __restrict__ b_scales,
                                      int thread, int m, int n, int M, int N) {
    const int row = m + thread / 32 * 16 + thread % 32 / 4, column = n + thread % 4 * 2;
    const float2 a_scale[2] = {a_scales[min(row, M - 1)], a_scales[min(row + 8, M - 1)]};
#pragma unroll
    for (int j = 0; j < BLOCK_N / 8; ++j) {
        const int at = column + j * 8;
        const float2 b_scale[2] = {b_scales[min(at, N - 1)], b_scales[min(at + 1, N - 1)]};
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            float x[2];
#pragma unroll
            for (int c = 0; c < 2; ++c) {
                // With an infinity, inf - inf or inf * 0 among the lower products may have made a NaN. The leading ones
                // know better.
                const float leading = acc[j * 4 + i * 2 + c], sum = leading + lower[j * 4 + i * 2 + c];
                x[c] = sum != sum ? leading : sum;
                x[c] *= a_scale[i].x * b_scale[c].y;
                x[c] *= a_scale[i].y * b_scale[c].x;
            }
            if (row + i * 8 >= M) continue;
            float* const to = out + int64_t(row + i * 8) * N + at;
            if (N % 2 == 0 && at < N) {
                *reinterpret_cast<float2*>(to) = make_float2(x[0], x[1]);
            } else {
                if (at < N) to[0] = x[0];
                if (at + 1 < N) to[1] = x[1];
            }
        }
    }
}

// Two consumers are given registers of the threads that do not multiply: 3 x 168 are divided into 40 and 2 x 232.
template <bool ALL_PRODUCTS, typename P>
__global__ void __launch_bounds__(P::THREADS)
    matmul_parts(const __grid_constant__ Maps maps, const Bands<P::BAND> tiles, const float2* __restrict__ scales,
                 float* __restrict__ out, int M, int N, int K) {
    constexpr int PRODUCER = P::CONSUMERS * WARPGROUP;
    extern __shared__ char raw[];
    const uint32_t start = shared_address(raw), shared = start + (-start & 1023);
    const int consumer = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP, 0), thread = threadIdx.x % WARPGROUP;
    const int steps = ceil_div(K, STEP_K);

    if (threadIdx.x == PRODUCER) {
        tma_prefetch(&maps.a);
        tma_prefetch(&maps.b);
        for (int slot = 0; slot < P::SLOTS; ++slot) {
            mbarrier_init(shared + P::BARRIERS + slot * 8, 1);
            mbarrier_init(shared + P::BARRIERS + (P::SLOTS + slot) * 8, P::CONSUMERS * P::CLUSTER);
        }
        mbarrier_fence_init();
    }
    // Nobody may arrive at barriers, or write to another block, before they are ready there.
    if constexpr (P::CLUSTER > 1) {
        cluster_sync();
    } else {
        __syncthreads();
    }

    if (consumer == P::CONSUMERS) {
        if constexpr (P::CONSUMERS > 1) give_up_registers<40>();
        if (threadIdx.x == PRODUCER) produce<P>(maps, tiles, shared, steps * LINES);
    } else {
        if constexpr (P::CONSUMERS > 1) take_registers<232>();
        const int rank = place<P>();
        Ring<P> ring;
        for (int index = blockIdx.x / P::CLUSTER; index < tiles.count(); index += gridDim.x / P::CLUSTER) {
            const Tile tile = tiles[index];
            int m = (tile.m * P::CLUSTER + rank) * P::BLOCK_M + consumer * 64, n = tile.n * BLOCK_N;
            asm volatile("" : "+r"(m), "+r"(n));  // now, while the first products are waited for
            float acc[SUMS] = {}, lower[SUMS] = {};
            multiply<ALL_PRODUCTS, P>(acc, lower, shared, consumer, thread, steps, ring);
            store(out, acc, lower, scales, scales + M, thread, m, n, M, N);
        }
    }
}

// Tiles of a cluster in out, and how many of them a cluster gets, at most, if the device is full of clusters.
template <typename P>
Bands<P::BAND> tiles_of(int64_t M, int64_t N) {
    return {ceil_div<int64_t>(M, P::BLOCK_M * P::CLUSTER), ceil_div<int64_t>(N, BLOCK_N)};
}
template <typename P>
int64_t rounds(int64_t M, int64_t N, int multiprocessors) {
    return ceil_div<int64_t>(tiles_of<P>(M, N).count(), multiprocessors / P::CLUSTER);
}

template <bool ALL_PRODUCTS, typename P>
cudaError_t launch(const __nv_bfloat16* parts, const float2* scales, float* out, int64_t M, int64_t N, int64_t K,
                   int multiprocessors, cudaStream_t stream, LaunchRecord* record) {
    const int64_t pitch = ceil_div<int64_t>(K, GROUP_K) * (PARTS * GROUP_K);
    const auto map = [&](CUtensorMap* to, const __nv_bfloat16* at, int64_t rows, int box_rows) {
        return tensor_map(to, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, sizeof(*at), at, pitch, rows, pitch, box_rows);
    };
    Maps maps;
    if (!map(&maps.a, parts, M, P::BLOCK_M) || !map(&maps.b, parts + M * pitch, N, BLOCK_N / P::CLUSTER)) {
        return cudaErrorInvalidValue;
    }
    // As few blocks as need no more rounds than all would: the device's power is better spent on them.
    const Bands<P::BAND> tiles = tiles_of<P>(M, N);
    const int64_t clusters = ceil_div<int64_t>(tiles.count(), rounds<P>(M, N, multiprocessors));
    const dim3 grid(unsigned(clusters * P::CLUSTER)), block(P::THREADS);
    record->set(grid, block, P::BYTES);
    return launch_clusters(P::CLUSTER, matmul_parts<ALL_PRODUCTS, P>, grid, block, P::BYTES, stream, maps, tiles,
                           scales, out, M, N, K);
}

template <bool ALL_PRODUCTS>
cudaError_t by_size(const __nv_bfloat16* parts, const float2* scales, float* out, int64_t M, int64_t N, int64_t K,
                    cudaStream_t stream, LaunchRecord* record) {
    int device, multiprocessors;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    // A round of Large has twice the work of one of Small, which moves more for each product.
    if (5 * rounds<Large>(M, N, multiprocessors) <= 3 * rounds<Small>(M, N, multiprocessors)) {
        return launch<ALL_PRODUCTS, Large>(parts, scales, out, M, N, K, multiprocessors, stream, record);
    }
    return launch<ALL_PRODUCTS, Small>(parts, scales, out, M, N, K, multiprocessors, stream, record);
}

// parts is a workspace of M + N rows of 3 K bfloat16, K rounded up to a multiple of 16, and scales one of 2 (M + N).
extern "C" int matmul_split(const float* a, const float* b, float* out, void* parts, void* scales, int64_t M, int64_t N,
                            int64_t K, int64_t a_stride_m, int64_t a_stride_k, int64_t b_stride_k, int64_t b_stride_n,
                            cudaStream_t stream, LaunchRecord* record) {
    auto* const split = static_cast<__nv_bfloat16*>(parts);
    auto* const factors = static_cast<float2*>(scales);
    const int64_t blocks = ceil_div<int64_t>(M, SPLIT_ROWS) + ceil_div<int64_t>(N, SPLIT_ROWS);
    const dim3 grid(static_cast<unsigned>(blocks)), block(SPLIT_THREADS);
    record->set(grid, block);
    split_rows<<<grid, block, 0, stream>>>(Rows{a, M, a_stride_m, a_stride_k}, Rows{b, N, b_stride_n, b_stride_k}, K,
                                           split, factors);
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
    return K <= GROUP_K ? by_size<true>(split, factors, out, M, N, K, stream, record)
                        : by_size<false>(split, factors, out, M, N, K, stream, record);
}
