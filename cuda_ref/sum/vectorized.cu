// out[i] = sum over j of x[i, j], out[j] = sum over i of x[i, j], or the sum of all
//
// Few outputs have many blocks each: each block writes the sum of its part, in float32, and a second launch of the same
// kernel adds the parts. The order of all additions is fixed, unlike with atomics.
//
// Rows: a block adds a run of a row. A thread adds packs of 16 bytes, with UNROLL of them in flight; then the warp adds
// by shuffles, then the block.
// Columns: a thread adds a pack of neighbouring columns down the rows. The warps of a block take turns at the rows, and
// their sums are added in shared memory.
#include "common/rows.cuh"

constexpr int UNROLL = 4;          // loads in flight in each thread; more would leave room for fewer threads
constexpr int COLUMN_WARPS = 8;    // warps of a block that sums columns
constexpr int MAX_ROW_THREADS = 512;
constexpr int SM_THREADS = 2048;   // threads per multiprocessor: all are used

// The elements of one load: a pack, or one element if rows are not aligned.
template <typename T, bool PACKED>
struct Load {
    static constexpr int LANES = PACKED ? 16 / sizeof(T) : 1;
    uint4 words;  // an element uses only the first bytes

    __device__ __forceinline__ Load() : words(make_uint4(0, 0, 0, 0)) {}  // zeros of every type
    __device__ __forceinline__ void from(const T* x) {
        if constexpr (PACKED) {
            words = *reinterpret_cast<const uint4*>(x);
        } else {
            memcpy(&words, x, sizeof(T));
        }
    }
    __device__ __forceinline__ float operator[](int lane) const { return element<T>(words, lane); }
};

// Block (part, row) adds `stretch` elements of a row. out: (rows, parts). With several threadIdx.y, each warp has its
// own row.
template <typename T, typename Out, bool PACKED>
__global__ void __launch_bounds__(MAX_ROW_THREADS, SM_THREADS / MAX_ROW_THREADS)
    sum_rows(const T* __restrict__ x, Out* __restrict__ out, int64_t m, int64_t n, int64_t stride_m, int64_t stride_n,
             int64_t stretch) {
    constexpr int LANES = Load<T, PACKED>::LANES;
    __shared__ float scratch[WARP];
    const int64_t row = (int64_t(blockIdx.z) * gridDim.y + blockIdx.y) * blockDim.y + threadIdx.y;
    if (row >= m) return;  // true for all lanes of a warp
    const int64_t begin = blockIdx.x * stretch, step = int64_t(blockDim.x) * (PACKED ? LANES : stride_n);
    const unsigned count = unsigned((min(n - begin, stretch) + LANES - 1) / LANES);
    x += row * stride_m + (begin + int64_t(threadIdx.x) * LANES) * (PACKED ? 1 : stride_n);

    float sum = 0.0f;
    for (unsigned at = threadIdx.x; at < count; at += UNROLL * blockDim.x, x += UNROLL * step) {
        Load<T, PACKED> v[UNROLL];
#pragma unroll
        for (int k = 0; k < UNROLL; ++k) {
            if (at + k * blockDim.x < count) v[k].from(x + k * step);
        }
#pragma unroll
        for (int k = 0; k < UNROLL; ++k) {
            float of_lanes[LANES];  // added in pairs, so that fewer additions wait for each other
#pragma unroll
            for (int lane = 0; lane < LANES; ++lane) of_lanes[lane] = v[k][lane];
#pragma unroll
            for (int half = LANES / 2; half > 0; half /= 2) {
#pragma unroll
                for (int lane = 0; lane < half; ++lane) of_lanes[lane] += of_lanes[lane + half];
            }
            sum += of_lanes[0];
        }
    }
    sum = over_block(sum, Addition(), scratch);
    if (threadIdx.x == 0) out[row * gridDim.x + blockIdx.x] = from_float<Out>(sum);
}

// Block (group, part) adds the columns of WARP packs over every parts-th group of COLUMN_WARPS rows. out: (parts, n).
template <typename T, typename Out, bool PACKED>
__global__ void __launch_bounds__(WARP* COLUMN_WARPS, SM_THREADS / (WARP * COLUMN_WARPS))
    sum_columns(const T* __restrict__ x, Out* __restrict__ out, int64_t m, int64_t n, int64_t stride_m,
                int64_t stride_n) {
    constexpr int LANES = Load<T, PACKED>::LANES;
    __shared__ float of_warps[COLUMN_WARPS][WARP * LANES];
    const int64_t column = (int64_t(blockIdx.x) * WARP + threadIdx.x) * LANES;
    const T* from = x + column * (PACKED ? 1 : stride_n);
    const int64_t step = int64_t(gridDim.y) * COLUMN_WARPS;

    float sum[LANES] = {};
    if (column < n) {
        for (int64_t row = int64_t(blockIdx.y) * COLUMN_WARPS + threadIdx.y; row < m; row += UNROLL * step) {
            Load<T, PACKED> v[UNROLL];
#pragma unroll
            for (int k = 0; k < UNROLL; ++k) {
                if (row + k * step < m) v[k].from(from + (row + k * step) * stride_m);
            }
#pragma unroll
            for (int k = 0; k < UNROLL; ++k) {
#pragma unroll
                for (int lane = 0; lane < LANES; ++lane) sum[lane] += v[k][lane];
            }
        }
    }
#pragma unroll
    for (int lane = 0; lane < LANES; ++lane) of_warps[threadIdx.y][lane * WARP + threadIdx.x] = sum[lane];
    __syncthreads();
    // Element e of a row of of_warps is lane e / WARP of the pack of thread e % WARP.
    for (int e = threadIdx.y * WARP + threadIdx.x; e < WARP * LANES; e += COLUMN_WARPS * WARP) {
        float total = 0.0f;
        for (int warp = 0; warp < COLUMN_WARPS; ++warp) total += of_warps[warp][e];
        const int64_t at = (int64_t(blockIdx.x) * WARP + e % WARP) * LANES + e / WARP;
        if (at < n) out[blockIdx.y * n + at] = from_float<Out>(total);
    }
}

template <typename T>
bool are_packed(const T* x, int64_t m, int64_t n, int64_t stride_m, int64_t stride_n) {
    constexpr int64_t LANES = 16 / sizeof(T);
    return is_aligned(x, 16) && n % LANES == 0 && stride_n == 1 && (m == 1 || stride_m % LANES == 0);
}

// Divides a row into at most `parts` parts, and returns their number.
template <typename T, typename Out>
int64_t launch_rows(const T* x, Out* out, int64_t m, int64_t n, int64_t stride_m, int64_t stride_n, int64_t parts,
                    cudaStream_t stream, LaunchRecord* record) {
    const bool packed = are_packed(x, m, n, stride_m, stride_n);
    const int64_t lanes = packed ? 16 / int64_t(sizeof(T)) : 1, stretch = ceil_div(ceil_div(n, parts), lanes) * lanes;
    const int64_t warps = ceil_div<int64_t>(stretch, lanes * UNROLL * WARP), most_warps = MAX_ROW_THREADS / WARP;
    const dim3 block = warps == 1 ? dim3(WARP, most_warps) : dim3(unsigned(min(warps, most_warps) * WARP));
    const int64_t groups = ceil_div<int64_t>(m, block.y), most = 32768;  // limit of a grid's second and third dimension
    parts = ceil_div(n, stretch);
    const dim3 grid(unsigned(parts), unsigned(min(groups, most)), unsigned(ceil_div(groups, most)));
    record->set(grid, block);
    const auto kernel = packed ? sum_rows<T, Out, true> : sum_rows<T, Out, false>;
    kernel<<<grid, block, 0, stream>>>(x, out, m, n, stride_m, stride_n, stretch);
    return parts;
}

template <typename T, typename Out>
void launch_columns(const T* x, Out* out, int64_t m, int64_t n, int64_t stride_m, int64_t stride_n, int64_t parts,
                    cudaStream_t stream, LaunchRecord* record) {
    const bool packed = are_packed(x, m, n, stride_m, stride_n);
    const int64_t lanes = packed ? 16 / int64_t(sizeof(T)) : 1;
    const dim3 grid(unsigned(ceil_div(n, WARP * lanes)), unsigned(parts));
    const dim3 block(WARP, COLUMN_WARPS);
    record->set(grid, block);
    const auto kernel = packed ? sum_columns<T, Out, true> : sum_columns<T, Out, false>;
    kernel<<<grid, block, 0, stream>>>(x, out, m, n, stride_m, stride_n);
}

// axis: 0, 1, or 2 for the sum of all. parts: blocks per column (axis 0), or at most per row. partial: float, memory
// for `parts` numbers per column or row.
extern "C" int sum_vectorized(const void* x, void* partial, void* out, int64_t m, int64_t n, int64_t stride_m,
                              int64_t stride_n, int64_t axis, int64_t parts, int64_t dtype, cudaStream_t stream,
                              LaunchRecord* record) {
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const T* from = static_cast<const T*>(x);
        T* to = static_cast<T*>(out);
        float* between = static_cast<float*>(partial);
        const int64_t one = 1;
        if (axis == 0 && parts == 1) {
            launch_columns(from, to, m, n, stride_m, stride_n, one, stream, record);
        } else if (axis == 0) {
            launch_columns(from, between, m, n, stride_m, stride_n, parts, stream, record);
            if (parts <= COLUMN_WARPS * UNROLL) {  // all loads of a thread are in flight at once
                launch_columns(between, to, parts, n, n, one, one, stream, record);
            } else {  // few columns: one block per column
                launch_rows(between, to, n, parts, one, n, one, stream, record);
            }
        } else if (axis == 1 && parts == 1) {
            launch_rows(from, to, m, n, stride_m, stride_n, one, stream, record);
        } else {
            const int64_t found = launch_rows(from, between, m, n, stride_m, stride_n, parts, stream, record);
            const int64_t sums = axis == 1 ? m : 1, terms = axis == 1 ? found : m * found;
            launch_rows(between, to, sums, terms, terms, one, one, stream, record);
        }
    });
}
