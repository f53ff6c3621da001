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
#include "attention/decoding.cuh"

struct Strides {  // in elements; rows are contiguous, and begin at multiples of 16 bytes
    int64_t batch, head, row;
};

struct Decoding {
    int H, H_kv, S_q, S_k, part, parts;  // keys per part, number of parts
    Strides q, k, v;
    float scale;  // includes log2(e)
    bool causal;
};

// sums (rows of the output, parts, D): acc of each part. statistics (rows of the output, parts, 2): m and l of each
// part.
template <typename T, int D>
__global__ void __launch_bounds__(WARPS * 32, Ring<T, D>::RESIDENT)
    attention_decode(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v, T* __restrict__ out,
                     float* __restrict__ sums, float2* __restrict__ statistics, const Decoding x) {
    using R = Ring<T, D>;
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
            const auto k_at = [&](int row, bool inside) { return k + (inside ? first + row : 0) * x.k.row; };
            const auto v_at = [&](int row, bool inside) { return v + (inside ? first + row : 0) * x.v.row; };
            copy_rows<R>(to, k_at, first, end);
            copy_rows<R>(to + R::TILE, v_at, first, end);
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
                       {x.scale, x.scale});
        __syncwarp();  // all lanes have read the stage
    }
    add_warps<D>(rows, shared, count - row0, [&](int r, int d, float m, float l, float acc) {
        const int row = row0 + r, query = row / G;
        const int64_t at = (int64_t(b) * x.H + h_kv * G + row % G) * x.S_q + query;
        if (x.parts == 1) {
            const bool blind = x.causal && query + x.S_k - x.S_q < 0;
            out[at * D + d] = from_float<T>(blind ? 0.0f : acc / l);
        } else {
            sums[(at * x.parts + part) * D + d] = acc;
            if (d == 0) statistics[at * x.parts + part] = make_float2(m, l);
        }
    });
}

// One block adds the parts of one row. A thread has one column.
template <typename T, int D>
__global__ void attention_decode_add(const float* __restrict__ sums, const float2* __restrict__ statistics,
                                     T* __restrict__ out, const Decoding x) {
    const int64_t row = blockIdx.x, first = row * x.parts;
    const bool blind = x.causal && int(row % x.S_q) + x.S_k - x.S_q < 0;
    out[row * D + threadIdx.x] = from_float<T>(add_parts<D>(sums + first * D, statistics + first, x.parts, blind));
}

template <typename T, int D>
cudaError_t launch(const void* q, const void* k, const void* v, void* out, float* sums, float* statistics, int64_t B,
                   const Decoding& x, cudaStream_t stream, LaunchRecord* record) {
    const int tiles = ceil_div(x.S_q * (x.H / x.H_kv), ROWS);
    const dim3 grid(unsigned(B * x.H_kv * x.parts * tiles)), block(WARPS * 32);
    record->set(grid, block, Ring<T, D>::BYTES);
    cudaFuncSetAttribute(attention_decode<T, D>, cudaFuncAttributeMaxDynamicSharedMemorySize, Ring<T, D>::BYTES);
    attention_decode<T, D><<<grid, block, Ring<T, D>::BYTES, stream>>>(
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
