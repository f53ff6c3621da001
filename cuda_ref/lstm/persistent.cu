// A layer of LSTM cells in one kernel: the recurrent weights stay in registers over all time steps, and blocks exchange
// h through the L2 cache. `inputs` are the products x W_ih^T of all steps, computed before.
//
// A block has 8 or 16 hidden units, each with four rows of w_hh. All blocks must run at the same time, since each waits
// for the others in every step: the launch is cooperative, and fails if they do not fit. The blocks of an emulated
// device run one after the other; there every step is a separate launch, and no block waits.
#include "lstm/steps.cuh"
#include "common/mma.cuh"

constexpr int MOST = 1024, MOST_ROWS[] = {1024, 512};  // largest H; rows per block, without and with tensor cores

// Small batches, without tensor cores: one warp per unit, ROWS rows of the batch at a time. A number and its step are
// one word of 64 bits, so a reader sees from the word that the number has arrived. A block writes step t + 1 after it
// has read all of step t. By then all blocks have read step t - 1, whose place step t + 1 takes.
template <typename T, int ROWS>
__global__ void __launch_bounds__(THREADS) lstm_words(const Layer layer, int begin, int end) {
    constexpr int WIDTH = MOST, QUADS = WIDTH / 128;
    __shared__ __align__(16) float rows[2][ROWS][WIDTH];
    extern __shared__ float cells[];  // [batch][WARPS]
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, H = layer.size, B = layer.batch;
    const int unit = blockIdx.x * WARPS + warp;
    const bool inside = unit < H;
    const T* const w_hh = static_cast<const T*>(layer.w_hh);
    const T* const inputs = static_cast<const T*>(layer.inputs);
    T* const y = static_cast<T*>(layer.y);

    Pack<T, 4> weights[GATES][QUADS];
    float bias[GATES] = {};
#pragma unroll
    for (int g = 0; g < GATES; ++g) {
        if (inside) bias[g] = to_float(static_cast<const T*>(layer.bias)[g * H + unit]);
#pragma unroll
        for (int j = 0; j < QUADS; ++j) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int k = j * 128 + lane * 4 + i;
                weights[g][j][i] = inside && k < H ? w_hh[(int64_t(g) * H + unit) * H + k] : from_float<T>(0.0f);
            }
        }
    }
    for (int b = lane; b < B && inside; b += 32) {
        cells[b * WARPS + warp] = begin == 0 ? to_float(static_cast<const T*>(layer.c0)[int64_t(b) * H + unit])
                                             : layer.cells[int64_t(b) * H + unit];
    }
    for (int i = threadIdx.x; i < 2 * ROWS * WIDTH; i += THREADS) (&rows[0][0][0])[i] = 0.0f;
    __syncthreads();

    int buffer = 0;
    for (int t = begin; t < end; ++t) {
        const uint64_t* const read = layer.words + int64_t(t % 2) * B * layer.pitch;
        uint64_t* const write = layer.words + int64_t((t + 1) % 2) * B * layer.pitch;
        for (int first = 0; first < B; first += ROWS, buffer ^= 1) {
            // Lane r computes row r.
            const int b = first + lane;
            const bool mine = lane < ROWS && b < B && inside;
            float z[GATES] = {};
            if (mine) {
#pragma unroll
                for (int g = 0; g < GATES; ++g) {
                    z[g] = bias[g] + to_float(inputs[((int64_t(t) * B + b) * GATES + g) * H + unit]);
                }
            }
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                if (first + r >= B) break;
                if (t == 0) {
                    const T* const h0 = static_cast<const T*>(layer.h0) + int64_t(first + r) * H;
                    for (int k = threadIdx.x; k < H; k += THREADS) rows[buffer][r][k] = to_float(h0[k]);
                    continue;
                }
                constexpr int LOADS = (WIDTH / 2 + THREADS - 1) / THREADS;
                ulonglong2 x[LOADS];
                const uint64_t* const from = read + int64_t(first + r) * layer.pitch;
                const auto arrived = [&](uint64_t word, int k) { return k >= H || unsigned(word >> 32) == t; };
#pragma unroll
                for (int i = 0; i < LOADS; ++i) {
                    const int k = 2 * (threadIdx.x + i * THREADS);
                    if (k < H) x[i] = read_words(from + k);
                }
#pragma unroll
                for (int i = 0; i < LOADS; ++i) {
                    const int k = 2 * (threadIdx.x + i * THREADS);
                    if (k >= H) continue;
                    while (!arrived(x[i].x, k) || !arrived(x[i].y, k + 1)) x[i] = read_words(from + k);
                    rows[buffer][r][k] = __uint_as_float(unsigned(x[i].x));
                    if (k + 1 < H) rows[buffer][r][k + 1] = __uint_as_float(unsigned(x[i].y));
                }
            }
            __syncthreads();  // two buffers: late threads read the other one

            float sums[ROWS][GATES] = {};
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
#pragma unroll
                for (int j = 0; j < QUADS; ++j) {
                    const float* const at = &rows[buffer][r][j * 128 + lane * 4];
                    const Pack<float, 4> h = *reinterpret_cast<const Pack<float, 4>*>(at);
#pragma unroll
                    for (int g = 0; g < GATES; ++g) {
#pragma unroll
                        for (int i = 0; i < 4; ++i) sums[r][g] += to_float(weights[g][j][i]) * h[i];
                    }
                }
            }
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
#pragma unroll
                for (int g = 0; g < GATES; ++g) {
#pragma unroll
                    for (int apart = 16; apart > 0; apart /= 2) {
                        sums[r][g] += __shfl_xor_sync(0xffffffffu, sums[r][g], apart);
                    }
                    if (lane == r) z[g] += sums[r][g];
                }
            }
            if (mine) {
                const T h = from_float<T>(cell(z, cells[b * WARPS + warp]));
                write_word(write + int64_t(b) * layer.pitch + unit, to_float(h), t + 1);
                y[(int64_t(t) * B + b) * H + unit] = h;
            }
        }
    }
    __syncwarp();
    for (int b = lane; b < B && inside; b += 32) {
        const int64_t at = int64_t(b) * H + unit;
        layer.cells[at] = cells[b * WARPS + warp];
        if (end < layer.steps) continue;
        static_cast<T*>(layer.c)[at] = from_float<T>(cells[b * WARPS + warp]);
        static_cast<T*>(layer.h)[at] = y[(int64_t(end - 1) * B + b) * H + unit];
    }
}

// Larger batches of 16-bit numbers, on tensor cores. A warp has 32 BLOCKS columns of the block's weights and multiplies
// TILE rows of h by them; the sums of the warps are added in shared memory. h is read from y, 16 bytes per lane: the
// elements of a lane belong to two products along k, in an order that is the same for both operands. They are copied by
// cp.async, since registers would hold only a quarter of them: all reads of a tile wait for the L2 cache at once.
//
// A warp waits until the blocks that compute its columns of h have finished the previous step.
constexpr int UNITS = 16, TILE = 32;  // units per block; rows of the batch at a time
// Floats in shared memory: the sums of all warps, then the elements of h of a tile (as many bytes).
constexpr int SUMS = WARPS * TILE * UNITS * GATES;
template <int BLOCKS>
constexpr int CHUNKS = BLOCKS * TILE / 8 * THREADS * 4;

template <typename T, int BLOCKS>
__global__ void __launch_bounds__(THREADS) lstm_mma(const Layer layer, int begin, int end) {
    constexpr int DEPTH = 32 * BLOCKS, MS = TILE / 16, NS = UNITS / 8;
    constexpr int OUTPUTS = TILE * UNITS / THREADS, APART = THREADS / UNITS;  // rows per thread, and their distance
    extern __shared__ __align__(16) float shared[];
    float4* const partial = reinterpret_cast<float4*>(shared);  // [WARPS][TILE][UNITS], the four gates together
    // Elements of h in flight: a thread reads only data that it has copied itself.
    uint4* const chunks = reinterpret_cast<uint4*>(shared + SUMS) + threadIdx.x;
    float* const cells = shared + SUMS + CHUNKS<BLOCKS>;  // [rows][UNITS]
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    const int H = layer.size, B = layer.batch, first_unit = blockIdx.x * UNITS;
    const int row_begin = blockIdx.y * layer.rows, row_end = min(row_begin + layer.rows, B);
    const int own = threadIdx.x % UNITS, unit = first_unit + own, own_row = threadIdx.x / UNITS;
    const T* const w_hh = static_cast<const T*>(layer.w_hh);
    const T* const inputs = static_cast<const T*>(layer.inputs);
    T* const y = static_cast<T*>(layer.y);
    unsigned* const flags = layer.flags + blockIdx.y * gridDim.x;

    uint4 weights[BLOCKS][NS][GATES];
#pragma unroll
    for (int j = 0; j < BLOCKS; ++j) {
#pragma unroll
        for (int n = 0; n < NS; ++n) {
#pragma unroll
            for (int gate = 0; gate < GATES; ++gate) {
                const int k = warp * DEPTH + j * 32 + q * 8, row = first_unit + n * 8 + g;
                weights[j][n][gate] = make_uint4(0, 0, 0, 0);
                if (k < H && row < H) {
                    weights[j][n][gate] =
                        *reinterpret_cast<const uint4*>(w_hh + (int64_t(gate) * H + row) * H + k);
                }
            }
        }
    }
    for (int b = row_begin + own_row; b < row_end && unit < H; b += APART) {
        const int64_t at = int64_t(b) * H + unit;
        cells[(b - row_begin) * UNITS + own] =
            begin == 0 ? to_float(static_cast<const T*>(layer.c0)[at]) : layer.cells[at];
    }
    float bias[GATES] = {};
    if (unit < H) {
        for (int gate = 0; gate < GATES; ++gate) {
            bias[gate] = to_float(static_cast<const T*>(layer.bias)[gate * H + unit]);
        }
    }
    T next[OUTPUTS][GATES];  // inputs of a thread, loaded one tile ahead
    const auto load_inputs = [&](int t, int row) {
#pragma unroll
        for (int o = 0; o < OUTPUTS; ++o) {
            const int b = row + own_row + o * APART;
            const int64_t at = (int64_t(t) * B + b) * GATES * H + unit;
#pragma unroll
            for (int gate = 0; gate < GATES; ++gate) {
                if (b < row_end && unit < H) next[o][gate] = inputs[at + gate * H];
            }
        }
    };
    load_inputs(begin, row_begin);

    for (int t = begin; t < end; ++t) {
        const T* const h = t == 0 ? static_cast<const T*>(layer.h0) : y + int64_t(t - 1) * B * H;
        const int source = warp * DEPTH / UNITS + lane;
        if (t > 0 && lane < DEPTH / UNITS && source < int(gridDim.x)) {
            while (read_flag(flags + source) < unsigned(t)) {
            }
        }
        __syncwarp();
        for (int row = row_begin; row < row_end; row += TILE) {
            float sums[MS][NS][GATES][4] = {};
#pragma unroll
            for (int j = 0; j < BLOCKS; ++j) {
                const int k = warp * DEPTH + j * 32 + q * 8;
#pragma unroll
                for (int i = 0; i < 2 * MS; ++i) {
                    const int b = row + i * 8 + g;
                    const bool inside = b < row_end && k < H;
                    copy_async(reinterpret_cast<char*>(chunks + (j * 2 * MS + i) * THREADS),
                               reinterpret_cast<const char*>(inside ? h + int64_t(b) * H + k : h), inside ? 16 : 0);
                }
                __pipeline_commit();
            }
#pragma unroll
            for (int j = 0; j < BLOCKS; ++j) {
                __pipeline_wait_prior(BLOCKS - 1 - j);
#pragma unroll
                for (int m = 0; m < MS; ++m) {
                    const uint4* const at = chunks + (j * MS + m) * 2 * THREADS;
                    const uint4 upper = at[0], lower = at[THREADS];
                    const uint32_t left[2][4] = {{upper.x, lower.x, upper.y, lower.y},
                                                 {upper.z, lower.z, upper.w, lower.w}};
#pragma unroll
                    for (int n = 0; n < NS; ++n) {
#pragma unroll
                        for (int gate = 0; gate < GATES; ++gate) {
                            mma<T>(sums[m][n][gate], left[0], weights[j][n][gate].x, weights[j][n][gate].y);
                            mma<T>(sums[m][n][gate], left[1], weights[j][n][gate].z, weights[j][n][gate].w);
                        }
                    }
                }
            }
            // Odd rows swap the two units of a lane: eight lanes then write to all banks.
#pragma unroll
            for (int m = 0; m < MS; ++m) {
#pragma unroll
                for (int n = 0; n < NS; ++n) {
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        const int half = i / 2, r = m * 16 + half * 8 + g;
                        const bool odd = (g + i) % 2;
                        const float(&of)[GATES][4] = sums[m][n];
                        partial[(warp * TILE + r) * UNITS + n * 8 + 2 * q + odd] = {
                            odd ? of[0][2 * half + 1] : of[0][2 * half], odd ? of[1][2 * half + 1] : of[1][2 * half],
                            odd ? of[2][2 * half + 1] : of[2][2 * half], odd ? of[3][2 * half + 1] : of[3][2 * half]};
                    }
                }
            }
            __syncthreads();
            float z[OUTPUTS][GATES];
#pragma unroll
            for (int o = 0; o < OUTPUTS; ++o) {
#pragma unroll
                for (int gate = 0; gate < GATES; ++gate) z[o][gate] = bias[gate] + to_float(next[o][gate]);
            }
            if (row + TILE < row_end) {
                load_inputs(t, row + TILE);
            } else if (t + 1 < end) {
                load_inputs(t + 1, row_begin);
            }
#pragma unroll
            for (int o = 0; o < OUTPUTS; ++o) {
                const int r = own_row + o * APART, b = row + r;
#pragma unroll
                for (int w = 0; w < WARPS; ++w) {
                    const float4 four = partial[(w * TILE + r) * UNITS + own];
                    z[o][0] += four.x, z[o][1] += four.y, z[o][2] += four.z, z[o][3] += four.w;
                }
                if (b < row_end && unit < H) {
                    const float out = cell(z[o], cells[(b - row_begin) * UNITS + own]);
                    y[(int64_t(t) * B + b) * H + unit] = from_float<T>(out);
                }
            }
            __syncthreads();  // the sums have been read, and y has been written
        }
        if (threadIdx.x == 0) write_flag(flags + blockIdx.x, t + 1);
    }
    for (int b = row_begin + own_row; b < row_end && unit < H; b += APART) {
        const int64_t at = int64_t(b) * H + unit;
        const float c = cells[(b - row_begin) * UNITS + own];
        layer.cells[at] = c;
        if (end < layer.steps) continue;
        static_cast<T*>(layer.c)[at] = from_float<T>(c);
        static_cast<T*>(layer.h)[at] = y[(int64_t(end - 1) * B + b) * H + unit];
    }
}

template <typename T>
cudaError_t launch_words(const Layer& layer, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(ceil_div(layer.size, WARPS));
    const int bytes = layer.batch * WARPS * int(sizeof(float));
    const auto kernel = layer.batch == 1 ? lstm_words<T, 1> : lstm_words<T, 4>;
    cudaMemsetAsync(layer.words, 0, size_t(16) * layer.batch * layer.pitch, stream);
    return launch_steps(kernel, layer, grid, bytes, MOST_ROWS[0] * WARPS * int(sizeof(float)), stream, record);
}

template <typename T, int BLOCKS>
cudaError_t launch_mma(const Layer& layer, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(ceil_div(layer.size, UNITS), ceil_div(layer.batch, layer.rows));
    const auto bytes = [](int rows) { return (SUMS + CHUNKS<BLOCKS> + rows * UNITS) * int(sizeof(float)); };
    cudaMemsetAsync(layer.flags, 0, sizeof(unsigned) * grid.x * grid.y, stream);
    return launch_steps(lstm_mma<T, BLOCKS>, layer, grid, bytes(layer.rows), bytes(MOST_ROWS[1]), stream, record);
}

// inputs (T, B, 4H). With tensor cores a group of blocks computes `rows` rows of the batch; 0: without tensor cores.
extern "C" int lstm_persistent(const void* inputs, const void* w_hh, const void* bias, const void* h0, const void* c0,
                               void* y, void* h, void* c, void* cells, void* exchange, int64_t steps, int64_t batch,
                               int64_t size, int64_t pitch, int64_t rows, int64_t dtype, cudaStream_t stream,
                               LaunchRecord* record) {
    if (size > MOST || (rows > 0 ? rows : batch) > MOST_ROWS[rows > 0]) return cudaErrorInvalidValue;
    const Layer layer = {inputs, w_hh, bias, h0, c0, y, h, c, static_cast<float*>(cells),
                         static_cast<uint64_t*>(exchange), static_cast<unsigned*>(exchange), int(steps), int(batch),
                         int(size), int(pitch), int(rows)};
    const auto by_size = [&](auto zero) {
        using T = decltype(zero);
        if constexpr (sizeof(T) == 2) {
#ifdef __CUDACC__  // one variant is enough on the CPU
            if (rows > 0 && size <= 512) return launch_mma<T, 2>(layer, stream, record);
#endif
            if (rows > 0) return launch_mma<T, 4>(layer, stream, record);
        }
        return launch_words<T>(layer, stream, record);
    };
    cudaError_t error = cudaErrorInvalidValue;
    const cudaError_t other = by_dtype(dtype, [&](auto zero) { error = by_size(zero); });
    return other != cudaSuccess ? other : error;
}
