// out[m, n] = sum over groups g of scale[n, g] * (sum over k in g of x[m, k] * (code[n, k] - zero[n, g])), for at most
// 32 rows
//
// requires: sm_90
//
// Bound by reading the weights: each is read once, 16 bytes (32 codes) of a row by a thread, and the next groups are
// loaded while one is multiplied.
//
// A warp multiplies 32 rows of the weights by all rows of x, with mma.sync: 16 rows of the weights are its rows, 8 rows
// of x its columns. The sum may take its k in any order that is the same in both operands. So lane q of four takes the
// 32 codes that it has loaded: a word of 8 gives 4 pairs (k, k + 4), each by a shift, one logical operation and a
// subtraction, and 16 bytes of x give the same pairs.
//
// k is divided among the blocks of a cluster, and its groups in turn among four warps of a block. Their sums are added
// in a fixed order through the shared memory of the cluster.
//
// Precision: code less zero is an integer, and exact; the sum of a group is multiplied by its scale in float32.
#include "common/launch.cuh"
#include "common/mma.cuh"
#include "int4_matmul/codes.cuh"

constexpr int ROWS = 64, K_WARPS = 4, THREADS = 256;  // rows of weights of a block; 2 warps for these times K_WARPS
constexpr int AHEAD = 2;                              // groups that a warp loads ahead
constexpr int PITCH = ROWS + 4;                       // floats from one row of sums to the next

// x and weight with contiguous rows at multiples of 16 bytes. Beyond K, the last 16 bytes of a row are zeros.
template <typename T>
struct Operands {
    const T* x;
    const uint8_t* weight;
    int64_t x_row, weight_row;
    Groups<T> groups;
    int M, N, K;
};

// A thread's part of a group: 32 codes of each of the rows n + lane / 4 + {0, 8, 16, 24}.
template <typename T>
struct Codes {
    uint4 codes[4];
    T scale[4];
    uint8_t zero[4];

    __device__ __forceinline__ void load(const Operands<T>& given, int n, int group) {
        const int k = group * GROUP + threadIdx.x % 4 * 32;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = min(n + int(threadIdx.x) % 32 / 4 + 8 * i, given.N - 1);
            const uint8_t* const from = given.weight + row * given.weight_row + k / 2;
            codes[i] = k < given.K ? __ldcs(reinterpret_cast<const uint4*>(from)) : uint4{};
            scale[i] = given.groups.scale_of(row, group);
            zero[i] = uint8_t(given.groups.zero_of(row, group));
        }
    }
};

// Word i of four.
__device__ __forceinline__ uint32_t word(const uint4& x, int i) {
    return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
}

// acc[i][j] += the products of a group, for rows n + 16 i to n + 16 i + 15 of the weights and 8 j to 8 j + 7 of x.
template <typename T, int TILES>
__device__ __forceinline__ void multiply(float (&acc)[2][TILES][4], const Operands<T>& given, const Codes<T>& now,
                                         int group) {
    float sums[2][TILES][4] = {};
    uint32_t zeros[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) zeros[i] = zero_pair<T>(now.zero[i]);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
        const int k = group * GROUP + threadIdx.x % 4 * 32 + step * 8;
        uint32_t x[TILES][4];  // pairs of elements k + i and k + i + 4
#pragma unroll
        for (int j = 0; j < TILES; ++j) {
            const int m = j * 8 + threadIdx.x % 32 / 4;
            const T* const from = given.x + m * given.x_row + k;
            const uint4 row = m < given.M && k < given.K ? __ldg(reinterpret_cast<const uint4*>(from)) : uint4{};
            x[j][0] = __byte_perm(row.x, row.z, 0x5410), x[j][1] = __byte_perm(row.x, row.z, 0x7632);
            x[j][2] = __byte_perm(row.y, row.w, 0x5410), x[j][3] = __byte_perm(row.y, row.w, 0x7632);
        }
#pragma unroll
        for (int half = 0; half < 4; half += 2) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const uint32_t upper = word(now.codes[2 * i], step), lower = word(now.codes[2 * i + 1], step);
                const uint32_t weights[4] = {less_zero<T>(upper >> 4 * half, zeros[2 * i]),
                                             less_zero<T>(lower >> 4 * half, zeros[2 * i + 1]),
                                             less_zero<T>(upper >> (4 * half + 4), zeros[2 * i]),
                                             less_zero<T>(lower >> (4 * half + 4), zeros[2 * i + 1])};
#pragma unroll
                for (int j = 0; j < TILES; ++j) mma<T>(sums[i][j], weights, x[j][half], x[j][half + 1]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const float scale[] = {to_float(now.scale[2 * i]), to_float(now.scale[2 * i + 1])};
#pragma unroll
        for (int j = 0; j < TILES; ++j) {
#pragma unroll
            for (int c = 0; c < 4; ++c) acc[i][j][c] += sums[i][j][c] * scale[c / 2];
        }
    }
}

// A cluster computes ROWS columns of out. TILES: tiles of 8 rows of x.
template <typename T, int TILES>
__global__ void __launch_bounds__(THREADS, TILES == 1 ? 2 : 1)
    int4_few(const __grid_constant__ Operands<T> given, T* __restrict__ out) {
    extern __shared__ char raw[];
    float* const shared = reinterpret_cast<float*>(raw);  // [K_WARPS][8 TILES][PITCH]
    const int rank = cta_rank_in_cluster(), blocks = ctas_in_cluster();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, k_warp = warp % K_WARPS;
    const int first = blockIdx.x / blocks * ROWS, row = warp / K_WARPS * 32, groups = ceil_div(given.K, GROUP);
    const int begin = int(int64_t(groups) * rank / blocks), end = int(int64_t(groups) * (rank + 1) / blocks);

    Codes<T> loaded[AHEAD] = {};
    float acc[2][TILES][4] = {};
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
        const int group = begin + k_warp + i * K_WARPS;
        if (group < end) loaded[i].load(given, first + row, group);
    }
#pragma unroll 1
    for (int at = begin + k_warp; at < end; at += AHEAD * K_WARPS) {
#pragma unroll
        for (int i = 0; i < AHEAD; ++i) {
            const int group = at + i * K_WARPS, next = group + AHEAD * K_WARPS;
            if (group >= end) break;
            const Codes<T> now = loaded[i];
            if (next < end) loaded[i].load(given, first + row, next);
            multiply<T, TILES>(acc, given, now, group);
        }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < TILES; ++j) {
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                const int n = row + i * 16 + c / 2 * 8 + lane / 4, m = j * 8 + lane % 4 * 2 + c % 2;
                shared[(k_warp * 8 * TILES + m) * PITCH + n] = acc[i][j][c];
            }
        }
    }
    blocks > 1 ? cluster_sync() : __syncthreads();

    // Groups of four neighbours of a row of out, divided among all threads of the cluster.
    for (int i = rank * THREADS + threadIdx.x; i < given.M * (ROWS / 4); i += blocks * THREADS) {
        const int m = i / (ROWS / 4), column = i % (ROWS / 4) * 4, n = first + column;
        float4 sum = {};
        for (int block = 0; block < blocks; ++block) {
#pragma unroll
            for (int k = 0; k < K_WARPS; ++k) {
                const uint32_t at = shared_address(shared + (k * 8 * TILES + m) * PITCH + column);
                const float4 x = load_shared_cluster(map_shared_rank(at, block));
                sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
            }
        }
        const Pack<T, 4> quad = {from_float<T>(sum.x), from_float<T>(sum.y), from_float<T>(sum.z),
                                 from_float<T>(sum.w)};
        T* const to = out + int64_t(m) * given.N + n;
        if (given.N % 4 == 0 && n < given.N) {
            *reinterpret_cast<Pack<T, 4>*>(to) = quad;
        } else {
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                if (n + c < given.N) to[c] = quad[c];
            }
        }
    }
    if (blocks > 1) cluster_sync();  // a block must not exit while others read its sums
}

template <typename T, int TILES>
cudaError_t launch(const Operands<T>& given, void* out, int64_t parts, cudaStream_t stream, LaunchRecord* record) {
    constexpr int SHARED_BYTES = K_WARPS * 8 * TILES * PITCH * int(sizeof(float));
    const dim3 grid(unsigned(ceil_div(given.N, ROWS) * parts));
    return launch_clusters(int(parts), int4_few<T, TILES>, grid, THREADS, SHARED_BYTES, stream, record, given,
                           static_cast<T*>(out));
}

// Rows of x and weight are contiguous, x_row elements and weight_row bytes apart: see Operands. Other strides are in
// elements. zero: null if there are no zero points. Clusters of `parts` blocks, at most 8, divide k.
extern "C" int int4_few(const void* x, const uint8_t* weight, const void* scale, const uint8_t* zero, void* out,
                        int64_t M, int64_t N, int64_t K, int64_t x_row, int64_t weight_row, int64_t scale_row,
                        int64_t scale_group, int64_t zero_row, int64_t zero_group, int64_t dtype, int64_t parts,
                        cudaStream_t stream, LaunchRecord* record) {
    const auto run = [&](auto of_type) {
        using T = decltype(of_type);
        const Groups<T> groups{static_cast<const T*>(scale), zero, scale_row, scale_group, zero_row, zero_group};
        const Operands<T> given{static_cast<const T*>(x), weight, x_row, weight_row, groups, int(M), int(N), int(K)};
        if (M <= 8) return launch<T, 1>(given, out, parts, stream, record);
        if (M <= 16) return launch<T, 2>(given, out, parts, stream, record);
        return launch<T, 4>(given, out, parts, stream, record);
    };
    return dtype == BFLOAT16 ? run(__nv_bfloat16()) : run(__half());
}
