// out[m, n] = sum over k of a[m, k] * b[k, n], 16 bits, for many rows, few terms and few columns: memory-bound. Rows of
// a follow each other without gaps, from a multiple of 16 bytes on; b has any strides.
//
// A multiprocessor runs one block, which computes successive rows. The block copies b to shared memory once. Each warp
// computes 8, 16 or 32 rows at a time and has its own ring of asynchronous copies: no warp waits for another. Rows of a
// are copied as they lie in memory, in 16-byte chunks from the last multiple of 16 bytes before each row. ldmatrix
// reads rows of a multiple of 8 terms; other rows are read as pairs or single elements.
//
// If a block has fewer tiles than warps, and several groups of columns, warps share the columns of a tile.
//
// Tiles of out are contiguous too. Sums are rounded into shared memory in the layout of out, and stored 16 bytes at a
// time.
//
// Precision: products of 16 bits are exact, sums float32 in the order of k, rounded once.
#include "common/mma.cuh"
#include "common/tiles.cuh"
#include "common/unaligned.cuh"

constexpr int STAGES = 4, THREADS = 512;
constexpr int SHARED_BYTES = 227 * 1024;

struct Narrow {
    const uint16_t* a;
    const uint16_t* b;
    int64_t stride_bk, stride_bn;
    int M, N, K;
    int rows, tile_rows;  // rows of a block, a multiple of 8; rows of a tile, which may be 8
    int warps, sharing;  // warps that have tiles; warps that share a tile
    int piece, pieces, groups;  // terms of a stage, a multiple of 16; stages of a row; groups of columns
    int chunks, pitch, stages;  // most chunks of a row in a stage, bytes from row to row, stages of a warp
    int b_pitch;
    FastDivisor by_chunks, by_pieces, by_b_inner, by_out_chunks;

    __host__ __device__ int terms() const { return ceil_div(K, 16) * 16; }  // terms of b, padded with zeros
    __host__ __device__ bool b_along_k() const { return stride_bk == 1 && (stride_bn != 1 || N == 1); }
    // Items of load_b along its inner dimension.
    __host__ __device__ int b_inner() const { return b_along_k() || stride_bn != 1 ? N : ceil_div(N, CHUNK); }
    // A row with an even number of chunks is followed by one chunk of padding, which avoids bank conflicts.
    __host__ __device__ int out_padding() const { return N % 16 == 0 ? 1 : 0; }
    __host__ __device__ int out_pitch() const { return N * 2 + out_padding() * 16; }
    __host__ __device__ int b_bytes() const { return terms() * b_pitch; }
};

// Copies b to shared memory as rows of k, with zeros from K on. A thread has B_LOADS loads in flight.
template <int B_LOADS>
__device__ __forceinline__ void load_b(char* to, const Narrow& x) {
    const int terms = x.terms(), inner = x.b_inner();
    const auto at = [&](int k, int n) { return reinterpret_cast<uint16_t*>(to + k * x.b_pitch) + n; };
    const auto from = [&](int k, int n) { return x.b + k * x.stride_bk + n * x.stride_bn; };
    const bool along_k = x.b_along_k();
    if (!along_k && x.stride_bn != 1) {  // element by element
        for (int first = threadIdx.x; first < terms * x.N; first += THREADS * B_LOADS) {
            uint32_t values[B_LOADS];
#pragma unroll
            for (int i = 0; i < B_LOADS; ++i) {
                const int index = first + i * THREADS, k = x.by_b_inner.quotient(index);
                values[i] = load_now(from(min(k, x.K - 1), index - k * inner));
                if (k >= x.K) values[i] = 0;
            }
#pragma unroll
            for (int i = 0; i < B_LOADS; ++i) {
                const int index = first + i * THREADS, k = x.by_b_inner.quotient(index);
                if (k < terms) *at(k, index - k * inner) = uint16_t(values[i]);
            }
        }
        return;
    }
    const uint16_t* const end = from(x.K - 1, x.N - 1) + 1;
    const int count = (along_k ? terms / CHUNK : terms) * inner;
    for (int first = threadIdx.x; first < count; first += THREADS * B_LOADS) {
        Neighbours loaded[B_LOADS];
        const auto place = [&](int i, int& k, int& n) {  // sets k and n; returns the number of neighbours that exist
            const int index = min(first + i * THREADS, count - 1), outer = x.by_b_inner.quotient(index);
            k = along_k ? outer * CHUNK : outer;
            n = along_k ? index - outer * inner : (index - outer * inner) * CHUNK;
            return along_k ? x.K - k : k < x.K ? x.N - n : 0;
        };
        int k, n;
#pragma unroll
        for (int i = 0; i < B_LOADS; ++i) {
            const int exist = place(i, k, n);
            loaded[i] = Neighbours(from(k, n), exist, end, x.a);  // `a` is a valid address of 16 bytes
        }
#pragma unroll
        for (int i = 0; i < B_LOADS; ++i) {
            if (first + i * THREADS >= count) break;
            const int exist = place(i, k, n);
            if (exist > 0 && !loaded[i].loaded) {  // near the end of b, where a wide load is not possible
#pragma unroll 1
                for (int j = 0; j < min(exist, CHUNK); ++j) {
                    *(along_k ? at(k + j, n) : at(k, n + j)) = uint16_t(load_now(from(k, n) + j));
                }
                if (!along_k) continue;
#pragma unroll 1
                for (int j = exist; j < CHUNK; ++j) *at(k + j, n) = 0;
                continue;
            }
            const uint4 chunk = loaded[i].value();
            if (!along_k) {
                memcpy(at(k, n), &chunk, 16);
                continue;
            }
            const uint32_t words[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
            for (int j = 0; j < CHUNK; ++j) *at(k + j, n) = uint16_t(words[j / 2] >> j % 2 * 16);
        }
    }
}

// Copies a warp's `rows` rows from m on, terms from k on: all 16-byte chunks that contain them, up to the end of a.
template <bool ALIGNED>
__device__ __forceinline__ void copy_rows(char* to, const Narrow& x, int m, int rows, int k) {
    const int terms = min(x.piece, x.K - k);
    const uint16_t* const first = x.a + int64_t(m) * x.K + k;
    const uint16_t* const end = x.a + int64_t(x.M) * x.K;
#pragma unroll(ALIGNED ? 4 : 2)
    for (int i = threadIdx.x % 32; i < rows * x.chunks; i += 32) {
        const int row = x.by_chunks.quotient(i), place = (i - row * x.chunks) * CHUNK;
        const int offset = ALIGNED ? 0 : row * x.K % CHUNK;
        if (place >= offset + terms) continue;
        const uint16_t* const from = first + (row * x.K - offset + place);
        char* const at = to + row * x.pitch + place * 2;
        if (ALIGNED || from + CHUNK <= end) {
            copy_async(at, reinterpret_cast<const char*>(from), 16);
        } else {
#pragma unroll 1
            for (int j = 0; from + j < end; ++j) reinterpret_cast<uint16_t*>(at)[j] = from[j];
        }
    }
}

// Loads the fragment of a for 16 rows and 16 terms. `at`: the lane's ldmatrix address if ALIGNED, otherwise its first
// element. `below`: bytes to the row eight rows below; 0 if there is none.
template <bool ALIGNED>
__device__ __forceinline__ void load_a(uint32_t (&a)[4], const char* at, int below, bool pairs) {
    if constexpr (ALIGNED) {
        ldmatrix_x4<false>(a, at);
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const char* const from = at + i % 2 * below + i / 2 * 16;
            if (pairs) {
                a[i] = *reinterpret_cast<const uint32_t*>(from);
            } else {
                const uint16_t* const two = reinterpret_cast<const uint16_t*>(from);
                a[i] = two[0] | uint32_t(two[1]) << 16;
            }
        }
    }
}

// Mask of the bits of two terms: ones for the first `count`.
__device__ __forceinline__ uint32_t terms_mask(int count) { return count >= 2 ? ~0u : count == 1 ? 0xffffu : 0u; }

// sums += `terms` terms of rows of a, times NT * 8 columns of b. `a`: see load_a; `b`: address of ldmatrix, transposed.
template <typename T, bool ALIGNED, int MT, int NT>
__device__ __forceinline__ void multiply(float (&sums)[MT][NT][4], const char* a, const char* b, const Narrow& x,
                                         int terms, uint32_t low, uint32_t high) {
    const bool pairs = x.K % 2 == 0;
    const int below = x.tile_rows == 8 ? 0 : 8 * x.pitch;
#pragma unroll(NT == 1 ? 4 : NT == 4 ? 2 : 1)
    for (int k = 0; k < terms; k += 16) {
        const bool whole = k + 16 <= terms;
        const uint32_t masks[2] = {whole ? ~0u : low, whole ? ~0u : high};
        uint32_t left[MT][4], right[(NT + 1) / 2][4];
#pragma unroll
        for (int i = 0; i < MT; ++i) load_a<ALIGNED>(left[i], a + i * 16 * x.pitch + k * 2, below, pairs);
#pragma unroll
        for (int j = 0; j < (NT + 1) / 2; ++j) ldmatrix_x4<true>(right[j], b + k * x.b_pitch + j * 32);
#pragma unroll
        for (int i = 0; i < MT; ++i) {
#pragma unroll
            for (int h = 0; h < 4; ++h) left[i][h] &= masks[h / 2];
#pragma unroll
            for (int j = 0; j < NT; ++j) {
                mma<T>(sums[i][j], left[i], right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1]);
            }
        }
    }
}

// Rounds a warp's sums, whose columns begin at n, into rows of out in shared memory.
template <typename T, int MT, int NT>
__device__ __forceinline__ void write_sums(char* to, const Narrow& x, const float (&sums)[MT][NT][4], int n) {
    const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4, pitch = x.out_pitch();
    const bool pairs = x.N % 2 == 0;
#pragma unroll
    for (int j = 0; j < NT; ++j) {
        const int column = n + j * 8 + 2 * q;
        if (column >= x.N) continue;
#pragma unroll
        for (int i = 0; i < MT; ++i) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                if (h == 1 && x.tile_rows == 8) continue;
                T* const at = reinterpret_cast<T*>(to + (i * 16 + h * 8 + g) * pitch) + column;
                const Pack<T, 2> two = {from_float<T>(sums[i][j][2 * h]), from_float<T>(sums[i][j][2 * h + 1])};
                if (pairs) {
                    *reinterpret_cast<Pack<T, 2>*>(at) = two;
                } else {
                    at[0] = two[0];
                    if (column + 1 < x.N) at[1] = two[1];
                }
            }
        }
    }
}

// Stores `rows` rows, whose memory begins at a multiple of 16 bytes. Called by `threads` threads with their numbers.
template <typename T>
__device__ __forceinline__ void store_rows(T* to, const char* from, const Narrow& x, int rows, int thread,
                                           int threads) {
    const int count = rows * x.N, chunks = count / CHUNK, padding = x.out_padding();
#pragma unroll 2
    for (int i = thread; i < chunks; i += threads) {
        const int place = padding == 0 ? i : i + x.by_out_chunks.quotient(i);
        reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[place];
    }
    // Padded rows leave no remainder.
    const int last = chunks * CHUNK + thread;
    if (last < count) to[last] = reinterpret_cast<const T*>(from)[last];
}

template <typename T, bool ALIGNED, int MT, int NT>
__global__ void __launch_bounds__(THREADS) matmul_narrow(const Narrow x, T* __restrict__ out) {
    extern __shared__ __align__(16) char shared[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    const int team = warp / x.sharing, teams = x.warps / x.sharing, member = warp - team * x.sharing;
    const int stage_bytes = x.tile_rows * x.pitch;
    char* const ring = shared + x.b_bytes() + warp * x.stages * stage_bytes;
    char* const rounded = shared + x.b_bytes() + x.warps * x.stages * stage_bytes + team * x.tile_rows * x.out_pitch();
    const int begin = int(blockIdx.x) * x.rows, end = min(x.M, begin + x.rows);
    const int turns = ceil_div(ceil_div(end - begin, x.tile_rows), teams) * x.pieces;  // the same for every warp

    struct Turn {
        int m, rows, piece;  // without rows this warp has nothing to do
    };
    const auto turn_of = [&](int n) {
        const int round = x.by_pieces.quotient(n), m = begin + (round * teams + team) * x.tile_rows;
        return Turn{m, warp < x.warps && n < turns ? min(x.tile_rows, end - m) : 0, n - round * x.pieces};
    };
    const auto copy = [&](int n) {
        const Turn next = turn_of(n);
        char* const to = ring + n % STAGES * stage_bytes;
        if (next.rows > 0) copy_rows<ALIGNED>(to, x, next.m, next.rows, next.piece * x.piece);
        __pipeline_commit();
    };
    const auto wait_for_sharers = [&] { x.sharing > 1 ? __syncthreads() : __syncwarp(); };
    const char* const b = shared + lane % 16 * x.b_pitch + (NT > 1 ? lane / 16 * 16 : 0);
    const int a_offset = ALIGNED ? lane % min(16, x.tile_rows) * x.pitch + lane / 16 * 16
                                 : g * x.pitch + (g * x.K % CHUNK + 2 * q) * 2;
    const int rest = x.K % 16;  // terms of the last, partial step
    const uint32_t low = terms_mask(rest - 2 * q), high = terms_mask(rest - 2 * q - 8);
    float sums[MT][NT][4];
#pragma unroll 1
    for (int n = -STAGES; n < turns; ++n) {  // the first turns only copy, so that the code of copies exists once
        const Turn now = turn_of(max(n, 0));
        const bool last = n >= 0 && now.rows > 0 && now.piece == x.pieces - 1;
        if (n >= 0) {
            const int k = now.piece * x.piece;
            __pipeline_wait_prior(STAGES - 1);
            wait_for_sharers();  // this thread reads and overwrites data of other warps
#pragma unroll 1
            for (int group = now.rows > 0 ? member : x.groups; group < x.groups; group += x.sharing) {
                if (now.piece == 0) {
#pragma unroll
                    for (int i = 0; i < MT * NT * 4; ++i) sums[i / (NT * 4)][i / 4 % NT][i % 4] = 0;
                }
                multiply<T, ALIGNED>(sums, ring + n % STAGES * stage_bytes + a_offset,
                                     b + k * x.b_pitch + group * NT * 16, x, min(x.piece, x.K - k), low, high);
                if (last) write_sums<T>(rounded, x, sums, group * NT * 8);
            }
            wait_for_sharers();
        }
        copy(n + STAGES);
        if (last) {
            store_rows(out + int64_t(now.m) * x.N, rounded, x, now.rows, member * 32 + lane, x.sharing * 32);
        }
        if (n == -1) {
            load_b<(MT > 1 ? 3 : 4)>(shared, x);  // as many loads as the registers beside the sums allow
            __syncthreads();
        }
    }
}

template <typename T, bool ALIGNED, int MT, int NT>
cudaError_t launch(const Narrow& x, void* out, cudaStream_t stream, LaunchRecord* record) {
    const int64_t stages = int64_t(x.warps) * x.stages * x.tile_rows * x.pitch;
    const int64_t bytes = x.b_bytes() + stages + x.warps / x.sharing * (x.tile_rows * int64_t(x.out_pitch()));
    if (bytes > SHARED_BYTES) return cudaErrorInvalidValue;
    const dim3 grid(unsigned(ceil_div(x.M, x.rows)));
    record->set(grid, THREADS, size_t(bytes));
    const auto kernel = matmul_narrow<T, ALIGNED, MT, NT>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
    kernel<<<grid, THREADS, size_t(bytes), stream>>>(x, static_cast<T*>(out));
    return cudaGetLastError();
}

// Arguments: see Narrow and _narrow_plan.py. a has at least 8 elements.
extern "C" int matmul_narrow(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K,
                             int64_t stride_bk, int64_t stride_bn, int64_t tile_rows, int64_t tile_columns,
                             int64_t rows, int64_t warps, int64_t sharing, int64_t piece, int64_t stages,
                             int64_t chunks, int64_t pitch, int64_t dtype, cudaStream_t stream,
                             LaunchRecord* record) {
    const int64_t pieces = ceil_div(K, piece), groups = ceil_div(N, tile_columns);
    const int64_t b_chunks = groups * tile_columns / CHUNK | 1;  // odd: ldmatrix has no bank conflicts
    if (groups > 1 && pieces > 1) return cudaErrorInvalidValue;
    Narrow x{static_cast<const uint16_t*>(a), static_cast<const uint16_t*>(b), stride_bk, stride_bn, int(M), int(N),
             int(K), int(rows), int(tile_rows), int(warps), int(sharing), int(piece), int(pieces), int(groups),
             int(chunks), int(pitch), int(stages), int(b_chunks * 16), FastDivisor(uint32_t(chunks)),
             FastDivisor(uint32_t(pieces)), FastDivisor(1), FastDivisor(uint32_t(ceil_div<int64_t>(N, CHUNK)))};
    x.by_b_inner = FastDivisor(uint32_t(x.b_inner()));
    const auto run = [&](auto zero, auto is_aligned) {
        using T = decltype(zero);
        constexpr bool ALIGNED = decltype(is_aligned)::value;
        if (tile_rows == 32) return launch<T, ALIGNED, 2, 8>(x, out, stream, record);
        switch (tile_columns) {
            case 8: return launch<T, ALIGNED, 1, 1>(x, out, stream, record);
            case 32: return launch<T, ALIGNED, 1, 4>(x, out, stream, record);
            case 64: return launch<T, ALIGNED, 1, 8>(x, out, stream, record);
            default: return cudaErrorInvalidValue;
        }
    };
    const auto with = [&](auto zero) {
        return K % CHUNK == 0 ? run(zero, std::true_type()) : run(zero, std::false_type());
    };
    switch (dtype) {
        case FLOAT16: return with(__half());
        case BFLOAT16: return with(__nv_bfloat16());
        default: return cudaErrorInvalidValue;
    }
}
