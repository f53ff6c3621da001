// out[b, h, i] = sum over j of softmax_j(scale q[b, h, i] . k[b, h_kv, j]) v[b, h_kv, j] for a few queries: decoding
//
// Every key is read once and used by few queries, so memory bandwidth is the limit. A block reads a part of the keys of
// one key head, for 16 rows: the queries of all query heads of this key head, where row r is query r / G of head r % G.
// A second kernel adds the parts.
//
// The warps of a block take 16 keys each in turn. Each warp has its own ring of stages, filled by cp.async, so the loop
// has no barrier. mma.sync multiplies 16 rows by 16 keys; the registers of the scores then hold the weights of the
// second product. Each warp keeps, for its keys, the largest score m, the sum of weights l and the sum of weighted
// values acc. At the end they are combined over the warps, and by the second kernel over the parts, both in a fixed
// order: l and acc are scaled by exp2(their m - the largest m).
//
// Under a causal mask the last S_q - 1 keys are hidden from some rows. Their values are multiplied without tensor
// cores, which cannot leave a key out: 0 times NaN is NaN.
//
// Source: "Flash-Decoding for long-context inference" (Dao, Haziza, Massa, Sizov, 2023).
#include <cuda_pipeline.h>

#include "common/mma.cuh"

constexpr int WARPS = 4, ROWS = 16, KEYS = 16;  // rows per block; keys per step of a warp
constexpr int MOST_PARTS = 1024;                // most parts that the second kernel adds, as in decode.py
constexpr float LOWEST = -3.4028234663852886e38f;  // first maximum: unlike -inf, it can be subtracted from -inf
constexpr unsigned ALL = 0xffffffffu;

struct Strides {  // in elements; rows are contiguous, and begin at multiples of 16 bytes
    int64_t batch, head, row;
};

struct Decoding {
    int H, H_kv, S_q, S_k, part, parts;  // keys per part, number of parts
    Strides q, k, v;
    float scale;  // includes log2(e)
    bool causal;
};

template <int D>
struct Ring {
    static constexpr int PITCH = 2 * D + 16;  // bytes from row to row; lets ldmatrix read without bank conflicts
    static constexpr int TILE = KEYS * PITCH, STAGES = D == 64 ? 6 : 3;
    static constexpr int RESIDENT = D == 256 ? 1 : 2;  // blocks per multiprocessor
    static constexpr int BYTES = WARPS * STAGES * 2 * TILE;
    static_assert(BYTES >= WARPS * ROWS * (D + 2) * 4, "the sums of the warps fit too");
};

// Starts the copy of rows [first, end) of a matrix, at most KEYS, to shared memory; zeros below them. Called by one
// warp.
template <typename T, int D>
__device__ __forceinline__ void copy_rows(char* to, const T* from, int64_t stride, int first, int end) {
    constexpr int CHUNKS = D / 8;
#pragma unroll 8
    for (int i = threadIdx.x % 32; i < KEYS * CHUNKS; i += 32) {
        const int row = i / CHUNKS, chunk = i % CHUNKS;
        char* const at = to + row * Ring<D>::PITCH + chunk * 16;
        const bool inside = first + row < end;
        __pipeline_memcpy_async(at, from + (inside ? first + row : 0) * stride + chunk * 8, 16, inside ? 0 : 16);
    }
}

template <typename T>
__device__ __forceinline__ uint32_t pair(float low, float high) {
    const Pack<T, 2> both = {{from_float<T>(low), from_float<T>(high)}};
    uint32_t bits;
    memcpy(&bits, &both, 4);
    return bits;
}

__device__ __forceinline__ float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(ALL, x, 1));
    return fmaxf(x, __shfl_xor_sync(ALL, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
    x += __shfl_xor_sync(ALL, x, 1);
    return x + __shfl_xor_sync(ALL, x, 2);
}

// A lane's state for rows g and g + 8, with g = lane / 4: sums of columns 8 i + 2 (lane % 4) and the next one.
template <int D>
struct Rows {
    float m[2], l[2], acc[D / 8][4];
    int last[2];  // the last key that the row sees
};

// Adds the KEYS keys from `first` on, which are in shared memory. All rows see the keys before `common`.
template <typename T, int D>
__device__ __forceinline__ void add_keys(Rows<D>& rows, const uint32_t (&q)[D / 16][4], const char* k, const char* v,
                                         int first, int end, int common, float scale) {
    const int lane = threadIdx.x % 32, quad = lane % 4, low = lane / 8 % 2, high = lane / 16;
    float s[2][4] = {};  // rows g and g + 8, keys 8 n + 2 quad and the next one
#pragma unroll
    for (int i = 0; i < D / 16; ++i) {
        uint32_t x[4];
        ldmatrix_x4<false>(x, k + (high * 8 + lane % 8) * Ring<D>::PITCH + (i * 16 + low * 8) * 2);
        mma<T>(s[0], q[i], x[0], x[1]);
        mma<T>(s[1], q[i], x[2], x[3]);
    }
    if (first + KEYS > min(common, end)) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const int key = first + 8 * n + 2 * quad + j % 2;
                if (key >= end || key > rows.last[j / 2]) s[n][j] = -INFINITY;
            }
        }
    }
    float alpha[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const float largest = fmaxf(fmaxf(s[0][2 * h], s[0][2 * h + 1]), fmaxf(s[1][2 * h], s[1][2 * h + 1]));
        const float m = fmaxf(rows.m[h], quad_max(largest) * scale);
        alpha[h] = exp2f(rows.m[h] - m);
        rows.m[h] = m;
#pragma unroll
        for (int n = 0; n < 2; ++n) {
#pragma unroll
            for (int j = 2 * h; j < 2 * h + 2; ++j) s[n][j] = exp2f(fmaf(s[n][j], scale, -m));
        }
        rows.l[h] = fmaf(rows.l[h], alpha[h], (s[0][2 * h] + s[0][2 * h + 1]) + (s[1][2 * h] + s[1][2 * h + 1]));
    }
#pragma unroll
    for (int i = 0; i < D / 8; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) rows.acc[i][j] *= alpha[j / 2];
    }
    if (common < end && first + KEYS > common) {  // a key may be hidden from some rows
        for (int key = 0; key < min(KEYS, end - first); ++key) {
            const int from = lane / 4 * 4 + key % 8 / 2;
            float p[2];
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const float even = key < 8 ? s[0][2 * h] : s[1][2 * h];
                const float odd = key < 8 ? s[0][2 * h + 1] : s[1][2 * h + 1];
                p[h] = __shfl_sync(ALL, key % 2 ? odd : even, from);
            }
            const T* const row = reinterpret_cast<const T*>(v + key * Ring<D>::PITCH) + 2 * quad;
#pragma unroll
            for (int i = 0; i < D / 8; ++i) {
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    if (first + key <= rows.last[j / 2]) {
                        rows.acc[i][j] = fmaf(p[j / 2], to_float(row[8 * i + j % 2]), rows.acc[i][j]);
                    }
                }
            }
        }
        return;
    }
    const uint32_t p[4] = {pair<T>(s[0][0], s[0][1]), pair<T>(s[0][2], s[0][3]), pair<T>(s[1][0], s[1][1]),
                           pair<T>(s[1][2], s[1][3])};
#pragma unroll
    for (int i = 0; i < D / 16; ++i) {
        uint32_t x[4];
        ldmatrix_x4<true>(x, v + (low * 8 + lane % 8) * Ring<D>::PITCH + (i * 16 + high * 8) * 2);
        mma<T>(rows.acc[2 * i], p, x[0], x[1]);
        mma<T>(rows.acc[2 * i + 1], p, x[2], x[3]);
    }
}

// sums (rows of the output, parts, D): acc of each part. statistics (rows of the output, parts, 2): m and l of each
// part.
template <typename T, int D>
__global__ void __launch_bounds__(WARPS * 32, Ring<D>::RESIDENT)
    attention_decode(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v, T* __restrict__ out,
                     float* __restrict__ sums, float2* __restrict__ statistics, const Decoding x) {
    using R = Ring<D>;
    extern __shared__ float4 shared[];
    const int warp = __shfl_sync(ALL, threadIdx.x / 32, 0);  // warp-uniform for the compiler
    const int lane = threadIdx.x % 32, G = x.H / x.H_kv, count = x.S_q * G;
    const int tiles = ceil_div(count, ROWS), row0 = blockIdx.x % tiles * ROWS;
    const int part = blockIdx.x / tiles % x.parts, head = blockIdx.x / tiles / x.parts;
    const int b = head / x.H_kv, h_kv = head % x.H_kv;
    k += b * x.k.batch + h_kv * x.k.head;
    v += b * x.v.batch + h_kv * x.v.head;
    const int begin = part * x.part, end = min(begin + x.part, x.S_k);
    const int common = x.causal ? max(x.S_k - x.S_q + 1, 0) : x.S_k;

    Rows<D> rows = {};
    uint32_t fragments[D / 16][4] = {};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int row = row0 + lane / 4 + 8 * h, query = row / G;
        rows.m[h] = LOWEST;
        rows.last[h] = x.causal ? query + x.S_k - x.S_q : x.S_k - 1;
        if (row < count) {
            const T* const from = q + b * x.q.batch + (h_kv * G + row % G) * x.q.head + query * x.q.row;
#pragma unroll
            for (int i = 0; i < D / 16; ++i) {
                memcpy(&fragments[i][h], from + 16 * i + 2 * (lane % 4), 4);
                memcpy(&fragments[i][2 + h], from + 16 * i + 2 * (lane % 4) + 8, 4);
            }
        }
    }

    char* const ring = reinterpret_cast<char*>(shared) + warp * R::STAGES * 2 * R::TILE;
    const auto load = [&](int step) {
        const int first = begin + (step * WARPS + warp) * KEYS;
        char* const to = ring + step % R::STAGES * 2 * R::TILE;
        if (first < end) {
            copy_rows<T, D>(to, k, x.k.row, first, end);
            copy_rows<T, D>(to + R::TILE, v, x.v.row, first, end);
        }
        __pipeline_commit();
    };
    for (int step = 0; step < R::STAGES - 1; ++step) load(step);
    for (int step = 0; begin + (step * WARPS + warp) * KEYS < end; ++step) {
        load(step + R::STAGES - 1);
        __pipeline_wait_prior(R::STAGES - 1);
        __syncwarp();  // the copies of all lanes have arrived
        const char* const stage = ring + step % R::STAGES * 2 * R::TILE;
        add_keys<T, D>(rows, fragments, stage, stage + R::TILE, begin + (step * WARPS + warp) * KEYS, end, common,
                       x.scale);
        __syncwarp();  // all lanes have read the stage
    }
    __pipeline_wait_prior(0);
    __syncthreads();  // the sums of the warps reuse the memory of the rings

    float* const all = reinterpret_cast<float*>(shared);              // [WARPS][ROWS][D]
    float2* const of_warps = reinterpret_cast<float2*>(all + WARPS * ROWS * D);  // [WARPS][ROWS]: m and l
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int row = lane / 4 + 8 * h;
        const float l = quad_sum(rows.l[h]);
        if (lane % 4 == 0) of_warps[warp * ROWS + row] = make_float2(rows.m[h], l);
        float* const to = all + (warp * ROWS + row) * D + 2 * (lane % 4);
#pragma unroll
        for (int i = 0; i < D / 8; ++i) {
            to[8 * i] = rows.acc[i][2 * h];
            to[8 * i + 1] = rows.acc[i][2 * h + 1];
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < ROWS * D; i += WARPS * 32) {
        const int r = i / D, d = i % D, row = row0 + r, query = row / G;
        if (row >= count) break;
        float m = LOWEST, l = 0.0f, acc = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) m = fmaxf(m, of_warps[w * ROWS + r].x);
#pragma unroll
        for (int w = 0; w < WARPS; ++w) {
            const float weight = exp2f(of_warps[w * ROWS + r].x - m);
            l = fmaf(weight, of_warps[w * ROWS + r].y, l);
            acc = fmaf(weight, all[(w * ROWS + r) * D + d], acc);
        }
        const int64_t at = (int64_t(b) * x.H + h_kv * G + row % G) * x.S_q + query;
        if (x.parts == 1) {
            const bool blind = x.causal && query + x.S_k - x.S_q < 0;
            out[at * D + d] = from_float<T>(blind ? 0.0f : acc / l);
        } else {
            sums[(at * x.parts + part) * D + d] = acc;
            if (d == 0) statistics[at * x.parts + part] = make_float2(m, l);
        }
    }
}

// One block adds the parts of one row, in order, and divides by the sum of weights. A thread has one column.
template <typename T, int D>
__global__ void attention_decode_add(const float* __restrict__ sums, const float2* __restrict__ statistics,
                                     T* __restrict__ out, const Decoding x) {
    __shared__ float weights[MOST_PARTS], l_of_parts[MOST_PARTS];
    const int64_t row = blockIdx.x;
    statistics += row * x.parts;
    sums += row * x.parts * D + threadIdx.x;
    for (int i = threadIdx.x; i < x.parts; i += D) {
        const float2 of_part = statistics[i];
        weights[i] = of_part.x;
        l_of_parts[i] = of_part.y;
    }
    __syncthreads();
    float m = LOWEST, l = 0.0f, acc = 0.0f;
    for (int i = 0; i < x.parts; ++i) m = fmaxf(m, weights[i]);
    __syncthreads();  // all threads have read the maxima
    for (int i = threadIdx.x; i < x.parts; i += D) weights[i] = exp2f(weights[i] - m);
    __syncthreads();
#pragma unroll 8
    for (int i = 0; i < x.parts; ++i) {
        l = fmaf(weights[i], l_of_parts[i], l);
        acc = fmaf(weights[i], sums[int64_t(i) * D], acc);
    }
    const bool blind = x.causal && int(row % x.S_q) + x.S_k - x.S_q < 0;
    out[row * D + threadIdx.x] = from_float<T>(blind ? 0.0f : acc / l);
}

template <typename T, int D>
cudaError_t launch(const void* q, const void* k, const void* v, void* out, float* sums, float* statistics, int64_t B,
                   const Decoding& x, cudaStream_t stream, LaunchRecord* record) {
    const int tiles = ceil_div(x.S_q * (x.H / x.H_kv), ROWS);
    const dim3 grid(unsigned(B * x.H_kv * x.parts * tiles)), block(WARPS * 32);
    record->set(grid, block, Ring<D>::BYTES);
    cudaFuncSetAttribute(attention_decode<T, D>, cudaFuncAttributeMaxDynamicSharedMemorySize, Ring<D>::BYTES);
    attention_decode<T, D><<<grid, block, Ring<D>::BYTES, stream>>>(
        static_cast<const T*>(q), static_cast<const T*>(k), static_cast<const T*>(v), static_cast<T*>(out), sums,
        reinterpret_cast<float2*>(statistics), x);
    const cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess || x.parts == 1) return error;
    const dim3 rows(unsigned(B * x.H * x.S_q)), columns(D);
    record->set(rows, columns);
    attention_decode_add<T, D><<<rows, columns, 0, stream>>>(sums, reinterpret_cast<const float2*>(statistics),
                                                             static_cast<T*>(out), x);
    return cudaGetLastError();
}

template <typename T>
cudaError_t launch_head(int64_t D, const void* q, const void* k, const void* v, void* out, float* sums,
                        float* statistics, int64_t B, const Decoding& x, cudaStream_t stream, LaunchRecord* record) {
    switch (D) {
        case 64: return launch<T, 64>(q, k, v, out, sums, statistics, B, x, stream, record);
        case 128: return launch<T, 128>(q, k, v, out, sums, statistics, B, x, stream, record);
        case 256: return launch<T, 256>(q, k, v, out, sums, statistics, B, x, stream, record);
        default: return cudaErrorInvalidValue;
    }
}

// Strides are in elements. part: keys per part, a multiple of 16.
extern "C" int attention_decode(const void* q, const void* k, const void* v, void* out, void* sums, void* statistics,
                                int64_t B, int64_t H, int64_t H_kv, int64_t S_q, int64_t S_k, int64_t D,
                                int64_t q_batch, int64_t q_head, int64_t q_row, int64_t k_batch, int64_t k_head,
                                int64_t k_row, int64_t v_batch, int64_t v_head, int64_t v_row, int64_t part,
                                int64_t parts, int64_t causal, double scale_log2, int64_t dtype, cudaStream_t stream,
                                LaunchRecord* record) {
    const Decoding x{int(H), int(H_kv), int(S_q), int(S_k), int(part), int(parts), {q_batch, q_head, q_row},
                     {k_batch, k_head, k_row}, {v_batch, v_head, v_row}, float(scale_log2), causal != 0};
    float* const of_parts = static_cast<float*>(sums);
    float* const m_and_l = static_cast<float*>(statistics);
    switch (dtype) {
        case FLOAT16: return launch_head<__half>(D, q, k, v, out, of_parts, m_and_l, B, x, stream, record);
        case BFLOAT16: return launch_head<__nv_bfloat16>(D, q, k, v, out, of_parts, m_and_l, B, x, stream, record);
        default: return cudaErrorInvalidValue;
    }
}
