// Attention over a cache in pages: adds tensor cores and a division of the keys to paged_attention.cu.
//
// A block reads a part of the keys of one sequence and key head, for 16 rows: the queries of all query heads of this key
// head, where row r is query r / G of head r % G. A second kernel adds the parts. Rings, products and sums are those of
// attention/decode.cu.
//
// A warp takes 16 keys at a time. Lane i finds the place of key i one step before its copy begins, so that the copy does
// not wait for the table; the lanes that copy the key get it by a shuffle. Any page size does.
//
// Keys and values in float8 become float16 in registers (float8.cuh). scale_k multiplies the scores, scale_v the sums.
//
// The number of parts follows from the length of the table: the host does not know the lengths. A part beyond a
// sequence's keys has no weight.
//
// Sources: "Flash-Decoding for long-context inference" (Dao, Haziza, Massa, Sizov, 2023); "Efficient Memory Management
// for Large Language Model Serving with PagedAttention" (Kwon et al., 2023).
#include "paged_attention/float8.cuh"

struct Cache {  // rows are contiguous, and begin at multiples of 16 bytes
    unsigned page, slot;  // strides in units of 16 bytes
    int64_t head;         // in elements
};

struct Paged {
    int H, H_kv, S_q, page, part, parts;  // slots of a page, keys per part, number of parts
    int64_t q_batch, q_row, q_head, table_batch, table_page, lengths;
    Cache k, v;
    float scale;  // includes log2(e)
};

// A key's places in the caches of its head, in units of 16 bytes.
struct Place {
    unsigned k, v;
};

// sums (rows of the output, parts, D): acc of each part. statistics (rows of the output, parts, 2): m and l of each
// part. S: type of keys and values. The scales are those of Float8; otherwise they are not read.
template <typename T, typename S, int D>
__global__ void __launch_bounds__(WARPS * 32, Ring<S, D>::RESIDENT)
    paged_decode(const T* __restrict__ q, const S* __restrict__ k, const S* __restrict__ v,
                 const int* __restrict__ table, const int* __restrict__ lengths, const float* __restrict__ scale_k,
                 const float* __restrict__ scale_v, T* __restrict__ out, float* __restrict__ sums,
                 float2* __restrict__ statistics, const Paged x) {
    using R = Ring<S, D>;
    constexpr bool SCALED = std::is_same_v<S, Float8>;
    extern __shared__ float4 shared[];
    const int warp = __shfl_sync(ALL, threadIdx.x / 32, 0);  // warp-uniform for the compiler
    const int lane = threadIdx.x % 32, G = x.H / x.H_kv, count = x.S_q * G;
    const int tiles = ceil_div(count, ROWS), row0 = blockIdx.x % tiles * ROWS;
    const int part = blockIdx.x / tiles % x.parts, head = blockIdx.x / tiles / x.parts;
    const int b = head / x.H_kv, h_kv = head % x.H_kv, length = lengths[b * x.lengths];
    k += h_kv * x.k.head;
    v += h_kv * x.v.head;
    table += b * x.table_batch;
    const int begin = part * x.part, end = min(begin + x.part, length);
    const int common = max(length - x.S_q + 1, 0);  // all rows see the keys before this one

    Rows<D> rows = {};
    uint32_t fragments[D / 16][4] = {};
    float scale[2] = {x.scale, x.scale};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int row = row0 + lane / 4 + 8 * h, query = row / G;
        rows.m[h] = LOWEST;
        rows.last[h] = query + length - x.S_q;
        const T* const from = q + b * x.q_batch + (h_kv * G + row % G) * x.q_head + query * x.q_row;
        if constexpr (SCALED) {
            scale[h] *= fabsf(*scale_k) * load_query<D>(fragments, h, row < count ? from : nullptr, *scale_k < 0.0f);
        } else if (row < count) {
#pragma unroll
            for (int i = 0; i < D / 16; ++i) {
                memcpy(&fragments[i][h], from + 16 * i + 2 * (lane % 4), 4);
                memcpy(&fragments[i][2 + h], from + 16 * i + 2 * (lane % 4) + 8, 4);
            }
        }
    }

    const auto first_of = [&](int step) { return begin + (step * WARPS + warp) * KEYS; };
    const auto find = [&](int step) {
        const int key = first_of(step) + lane % KEYS;
        if (key >= end) return Place{0, 0};
        const unsigned page = table[key / x.page * x.table_page], slot = key % x.page;
        return Place{page * x.k.page + slot * x.k.slot, page * x.v.page + slot * x.v.slot};
    };
    char* const ring = reinterpret_cast<char*>(shared) + warp * R::STAGES * 2 * R::TILE;
    Place place = find(0);
    const auto load = [&](int step) {
        char* const to = ring + step % R::STAGES * 2 * R::TILE;
        if (first_of(step) < end) {
            const auto row_of = [&](const S* from, unsigned at) {
                return [=](int row, bool) { return from + int64_t(__shfl_sync(ALL, at, row)) * (16 / sizeof(S)); };
            };
            copy_rows<R>(to, row_of(k, place.k), first_of(step), end);
            copy_rows<R>(to + R::TILE, row_of(v, place.v), first_of(step), end);
        }
        __pipeline_commit();
        place = find(step + 1);
    };
    for (int step = 0; step < R::STAGES - 1; ++step) load(step);
    for (int step = 0; first_of(step) < end; ++step) {
        load(step + R::STAGES - 1);
        __pipeline_wait_prior(R::STAGES - 1);
        __syncwarp();  // the copies of all lanes have arrived
        const char* const stage = ring + step % R::STAGES * 2 * R::TILE;
        add_keys<S, D>(rows, fragments, stage, stage + R::TILE, first_of(step), end, common, scale);
        __syncwarp();  // all lanes have read the stage
    }

    const float scale_of_values = SCALED ? *scale_v : 1.0f;
    add_warps<D>(rows, shared, count - row0, [&](int r, int i, float m, float l, float acc) {
        const int row = row0 + r, query = row / G, d = Products<S, D>::column(i);
        const int64_t at = (int64_t(b) * x.S_q + query) * x.H + h_kv * G + row % G;
        if (x.parts == 1) {
            out[at * D + d] = from_float<T>(query + length - x.S_q < 0 ? 0.0f : acc / l * scale_of_values);
        } else {
            sums[(at * x.parts + part) * D + d] = acc * scale_of_values;
            if (d == 0) statistics[at * x.parts + part] = make_float2(m, l);
        }
    });
}

// One block adds the parts of one row. A thread has one column.
template <typename T, int D>
__global__ void paged_decode_add(const float* __restrict__ sums, const float2* __restrict__ statistics,
                                 const int* __restrict__ lengths, T* __restrict__ out, const Paged x) {
    const int64_t row = blockIdx.x, first = row * x.parts;
    const int query = int(row / x.H % x.S_q), length = lengths[row / x.H / x.S_q * x.lengths];
    const bool blind = query + length - x.S_q < 0;
    out[row * D + threadIdx.x] = from_float<T>(add_parts<D>(sums + first * D, statistics + first, x.parts, blind));
}

struct Arguments {
    const void *q, *k, *v, *table, *lengths, *scale_k, *scale_v;
    void *out, *sums, *statistics;
};

template <typename T, typename S, int D>
cudaError_t launch(const Arguments& given, int64_t B, const Paged& x, cudaStream_t stream, LaunchRecord* record) {
    constexpr int BYTES = Ring<S, D>::BYTES;
    const int tiles = ceil_div(x.S_q * (x.H / x.H_kv), ROWS);
    const dim3 grid(unsigned(B * x.H_kv * x.parts * tiles)), block(WARPS * 32);
    const int* const lengths = static_cast<const int*>(given.lengths);
    float* const sums = static_cast<float*>(given.sums);
    float2* const statistics = static_cast<float2*>(given.statistics);
    T* const out = static_cast<T*>(given.out);
    record->set(grid, block, BYTES);
    cudaFuncSetAttribute(paged_decode<T, S, D>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
    paged_decode<T, S, D><<<grid, block, BYTES, stream>>>(
        static_cast<const T*>(given.q), static_cast<const S*>(given.k), static_cast<const S*>(given.v),
        static_cast<const int*>(given.table), lengths, static_cast<const float*>(given.scale_k),
        static_cast<const float*>(given.scale_v), out, sums, statistics, x);
    const cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess || x.parts == 1) return error;
    const dim3 rows(unsigned(B * x.H * x.S_q)), columns(D);
    record->set(rows, columns);
    paged_decode_add<T, D><<<rows, columns, 0, stream>>>(sums, statistics, lengths, out, x);
    return cudaGetLastError();
}

template <typename T, typename S>
cudaError_t launch_head(int64_t D, const Arguments& given, int64_t B, const Paged& x, cudaStream_t stream,
                        LaunchRecord* record) {
    switch (D) {
        case 64: return launch<T, S, 64>(given, B, x, stream, record);
        case 128: return launch<T, S, 128>(given, B, x, stream, record);
        case 256: return launch<T, S, 256>(given, B, x, stream, record);
        default: return cudaErrorInvalidValue;
    }
}

// Strides are in elements. part: keys per part, a multiple of 64. float8: keys and values are float8; otherwise the
// scales are not read.
extern "C" int paged_decode(const void* q, const void* k, const void* v, const void* table, const void* lengths,
                            const void* scale_k, const void* scale_v, void* out, void* sums, void* statistics,
                            int64_t float8, int64_t B, int64_t S_q, int64_t H, int64_t H_kv, int64_t page, int64_t D,
                            int64_t q_batch, int64_t q_row, int64_t q_head, int64_t k_page, int64_t k_slot,
                            int64_t k_head, int64_t v_page, int64_t v_slot, int64_t v_head, int64_t table_batch,
                            int64_t table_page, int64_t stride_lengths, int64_t part, int64_t parts,
                            double scale_log2, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const Arguments given{q, k, v, table, lengths, scale_k, scale_v, out, sums, statistics};
    const int unit = float8 ? 16 : 8;  // elements of 16 bytes
    const Paged x{int(H), int(H_kv), int(S_q), int(page), int(part), int(parts), q_batch, q_row, q_head, table_batch,
                  table_page, stride_lengths, {unsigned(k_page / unit), unsigned(k_slot / unit), k_head},
                  {unsigned(v_page / unit), unsigned(v_slot / unit), v_head}, float(scale_log2)};
    const auto run = [&](auto zero) {
        using T = decltype(zero);
        return float8 ? launch_head<T, Float8>(D, given, B, x, stream, record)
                      : launch_head<T, T>(D, given, B, x, stream, record);
    };
    switch (dtype) {
        case FLOAT16: return run(__half());
        case BFLOAT16: return run(__nv_bfloat16());
        default: return cudaErrorInvalidValue;
    }
}
