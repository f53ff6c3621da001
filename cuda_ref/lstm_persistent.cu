// A layer of LSTM cells in one kernel: the recurrent weights stay in registers over all time steps, and blocks exchange
// h through the L2 cache. `inputs` are the products x W_ih^T of all steps, computed before.
//
// A block has UNITS hidden units, that is 32 rows of w_hh. All blocks must run at the same time, since each waits for
// the others in every step: the launch is cooperative, and fails if they do not fit. The blocks of an emulated device
// run one after the other; there every step is a launch of its own, and nobody waits.
#include "lstm.cuh"
#include "mma.cuh"

constexpr int WARPS = 8, THREADS = 32 * WARPS, UNITS = 8, MOST = 1024;

struct Layer {
    const void *inputs, *w_hh, *bias, *h0, *c0;
    void *y, *h, *c;
    float* cells;     // (B, H), between launches
    uint64_t* words;  // (2, B, pitch): h of even and of odd steps, each with the number of its step
    unsigned* flags;  // (groups, blocks of a group): steps that a block has finished
    int steps, batch, size, pitch, rows;  // T, B, H; rows of a group
};

// Reads of what other blocks write while this kernel runs: from the L2 cache, anew each time.
__device__ __forceinline__ ulonglong2 read_words(const uint64_t* from) {
#ifdef __CUDA_ARCH__
    ulonglong2 x;
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(x.x), "=l"(x.y) : "l"(from) : "memory");
    return x;
#else
    return {from[0], from[1]};
#endif
}

__device__ __forceinline__ void write_word(uint64_t* to, float h, unsigned step) {
    const uint64_t word = uint64_t(step) << 32 | __float_as_uint(h);
#ifdef __CUDA_ARCH__
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" : : "l"(to), "l"(word) : "memory");
#else
    *to = word;
#endif
}

__device__ __forceinline__ uint4 read_chunk(const void* from) {
#ifdef __CUDA_ARCH__
    uint4 x;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "l"(from)
                 : "memory");
    return x;
#else
    return *static_cast<const uint4*>(from);
#endif
}

__device__ __forceinline__ unsigned read_flag(const unsigned* from) {
#ifdef __CUDA_ARCH__
    unsigned x;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
    return x;
#else
    return *from;
#endif
}

__device__ __forceinline__ void write_flag(unsigned* to, unsigned step) {
#ifdef __CUDA_ARCH__
    asm volatile("fence.acq_rel.gpu; st.release.gpu.global.u32 [%0], %1;" : : "l"(to), "r"(step) : "memory");
#else
    *to = step;
#endif
}

// Small batches, without tensor cores: a warp has a unit. A number and its step are one word of 64 bits, so that a
// reader needs no other sign that it has arrived. A block writes step t + 1 after it has read all of t, and so after
// all blocks have read t - 1, in whose place it writes. ROWS of the batch at a time.
template <typename T, int QUADS, int ROWS>
__global__ void __launch_bounds__(THREADS) lstm_words(const Layer layer, int begin, int end) {
    constexpr int WIDTH = QUADS * 128;
    __shared__ __align__(16) float rows[2][ROWS][WIDTH];
    extern __shared__ float cells[];  // [batch][UNITS]
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, H = layer.size, B = layer.batch;
    const int unit = blockIdx.x * UNITS + warp;
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
        cells[b * UNITS + warp] = begin == 0 ? to_float(static_cast<const T*>(layer.c0)[int64_t(b) * H + unit])
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
                const auto arrived = [&](uint64_t word, int k) { return k >= H || unsigned(word >> 32) == unsigned(t); };
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
            __syncthreads();  // two buffers: those who are late read the other one

            float sums[ROWS][GATES] = {};
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
#pragma unroll
                for (int j = 0; j < QUADS; ++j) {
                    const Pack<float, 4> h = *reinterpret_cast<const Pack<float, 4>*>(&rows[buffer][r][j * 128 + lane * 4]);
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
                const T h = from_float<T>(cell(z, cells[b * UNITS + warp]));
                write_word(write + int64_t(b) * layer.pitch + unit, to_float(h), t + 1);
                y[(int64_t(t) * B + b) * H + unit] = h;
            }
        }
    }
    __syncwarp();
    for (int b = lane; b < B && inside; b += 32) {
        const int64_t at = int64_t(b) * H + unit;
        layer.cells[at] = cells[b * UNITS + warp];
        if (end < layer.steps) continue;
        static_cast<T*>(layer.c)[at] = from_float<T>(cells[b * UNITS + warp]);
        static_cast<T*>(layer.h)[at] = y[(int64_t(end - 1) * B + b) * H + unit];
    }
}

// Larger batches of 16-bit numbers, on tensor cores. A warp has 32 BLOCKS columns of the block's weights and multiplies
// 64 rows of h by them; the sums of the warps are added in shared memory. h is read from y, 16 bytes a lane: the
// elements of a lane are those of two products along k, in an order that is the same for both operands.
//
// A warp waits until the blocks that compute its columns of h have finished the step before.
constexpr int TILE = 64;  // rows of the batch at a time

template <typename T, int BLOCKS>
__global__ void __launch_bounds__(THREADS) lstm_mma(const Layer layer, int begin, int end) {
    constexpr int DEPTH = 32 * BLOCKS, MS = TILE / 16;
    extern __shared__ __align__(16) float shared[];
    float* const partial = shared;                          // [WARPS][TILE][UNITS][GATES]
    float* const cells = shared + WARPS * TILE * UNITS * GATES;  // [rows][UNITS]
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    const int H = layer.size, B = layer.batch, first_unit = blockIdx.x * UNITS;
    const int row_begin = blockIdx.y * layer.rows, row_end = min(row_begin + layer.rows, B);
    const T* const w_hh = static_cast<const T*>(layer.w_hh);
    const T* const inputs = static_cast<const T*>(layer.inputs);
    T* const y = static_cast<T*>(layer.y);
    unsigned* const flags = layer.flags + blockIdx.y * gridDim.x;

    uint4 weights[BLOCKS][GATES];
#pragma unroll
    for (int j = 0; j < BLOCKS; ++j) {
#pragma unroll
        for (int gate = 0; gate < GATES; ++gate) {
            const int k = warp * DEPTH + j * 32 + q * 8;
            weights[j][gate] = make_uint4(0, 0, 0, 0);
            if (k < H && first_unit + g < H) {
                weights[j][gate] =
                    *reinterpret_cast<const uint4*>(w_hh + (int64_t(gate) * H + first_unit + g) * H + k);
            }
        }
    }
    for (int i = threadIdx.x; i < (row_end - row_begin) * UNITS; i += THREADS) {
        const int64_t at = int64_t(row_begin + i / UNITS) * H + first_unit + i % UNITS;
        if (first_unit + i % UNITS >= H) continue;
        cells[i] = begin == 0 ? to_float(static_cast<const T*>(layer.c0)[at]) : layer.cells[at];
    }
    const int own = threadIdx.x % UNITS, unit = first_unit + own;
    float bias[GATES] = {};
    if (unit < H) {
        for (int gate = 0; gate < GATES; ++gate) {
            bias[gate] = to_float(static_cast<const T*>(layer.bias)[gate * H + unit]);
        }
    }
    __syncthreads();

    constexpr int OUTPUTS = TILE * UNITS / THREADS;  // of a thread, one row in ROWS_APART
    constexpr int ROWS_APART = THREADS / UNITS;
    for (int t = begin; t < end; ++t) {
        const T* const h = t == 0 ? static_cast<const T*>(layer.h0) : y + int64_t(t - 1) * B * H;
        bool ready = t == 0;
        for (int row = row_begin; row < row_end; row += TILE) {
            float z[OUTPUTS][GATES];
#pragma unroll
            for (int o = 0; o < OUTPUTS; ++o) {
                const int b = row + threadIdx.x / UNITS + o * ROWS_APART;
#pragma unroll
                for (int gate = 0; gate < GATES; ++gate) {
                    const bool inside = b < row_end && unit < H;
                    const int64_t at = ((int64_t(t) * B + b) * GATES + gate) * H + unit;
                    z[o][gate] = inside ? bias[gate] + to_float(inputs[at]) : 0.0f;
                }
            }
            if (!ready) {
                const int source = warp * DEPTH / UNITS + lane;
                if (lane < DEPTH / UNITS && source < int(gridDim.x)) {
                    while (read_flag(flags + source) < unsigned(t)) {
                    }
                }
                __syncwarp();
                ready = true;
            }

            float sums[MS][GATES][4] = {};
            uint4 chunks[2][MS][2];
            const auto load = [&](int j) {
                const int k = warp * DEPTH + j * 32 + q * 8;
#pragma unroll
                for (int m = 0; m < MS; ++m) {
#pragma unroll
                    for (int half = 0; half < 2; ++half) {
                        const int b = row + m * 16 + half * 8 + g;
                        chunks[j % 2][m][half] =
                            b < row_end && k < H ? read_chunk(h + int64_t(b) * H + k) : make_uint4(0, 0, 0, 0);
                    }
                }
            };
            load(0);
#pragma unroll
            for (int j = 0; j < BLOCKS; ++j) {
                if (j + 1 < BLOCKS) load(j + 1);
#pragma unroll
                for (int m = 0; m < MS; ++m) {
                    const uint4 upper = chunks[j % 2][m][0], lower = chunks[j % 2][m][1];
                    const uint32_t left[2][4] = {{upper.x, lower.x, upper.y, lower.y},
                                                 {upper.z, lower.z, upper.w, lower.w}};
#pragma unroll
                    for (int gate = 0; gate < GATES; ++gate) {
                        mma<T>(sums[m][gate], left[0], weights[j][gate].x, weights[j][gate].y);
                        mma<T>(sums[m][gate], left[1], weights[j][gate].z, weights[j][gate].w);
                    }
                }
            }
            // Odd rows swap the two units of a lane: eight lanes then write to all banks.
#pragma unroll
            for (int m = 0; m < MS; ++m) {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
#pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        const bool odd = (g + e) % 2;
                        const int r = m * 16 + half * 8 + g, u = 2 * q + odd;
                        float4 four;
                        four.x = odd ? sums[m][0][2 * half + 1] : sums[m][0][2 * half];
                        four.y = odd ? sums[m][1][2 * half + 1] : sums[m][1][2 * half];
                        four.z = odd ? sums[m][2][2 * half + 1] : sums[m][2][2 * half];
                        four.w = odd ? sums[m][3][2 * half + 1] : sums[m][3][2 * half];
                        reinterpret_cast<float4*>(partial)[(warp * TILE + r) * UNITS + u] = four;
                    }
                }
            }
            __syncthreads();
#pragma unroll
            for (int o = 0; o < OUTPUTS; ++o) {
                const int r = threadIdx.x / UNITS + o * ROWS_APART, b = row + r;
#pragma unroll
                for (int w = 0; w < WARPS; ++w) {
                    const float4 four = reinterpret_cast<const float4*>(partial)[(w * TILE + r) * UNITS + own];
                    z[o][0] += four.x, z[o][1] += four.y, z[o][2] += four.z, z[o][3] += four.w;
                }
                if (b < row_end && unit < H) {
                    const float out = cell(z[o], cells[(b - row_begin) * UNITS + own]);
                    y[(int64_t(t) * B + b) * H + unit] = from_float<T>(out);
                }
            }
            __syncthreads();  // the sums are read, and y is written
        }
        if (threadIdx.x == 0) write_flag(flags + blockIdx.x, t + 1);
    }
    for (int i = threadIdx.x; i < (row_end - row_begin) * UNITS; i += THREADS) {
        const int b = row_begin + i / UNITS;
        const int64_t at = int64_t(b) * H + first_unit + i % UNITS;
        if (first_unit + i % UNITS >= H) continue;
        layer.cells[at] = cells[i];
        if (end < layer.steps) continue;
        static_cast<T*>(layer.c)[at] = from_float<T>(cells[i]);
        static_cast<T*>(layer.h)[at] = y[(int64_t(end - 1) * B + b) * H + first_unit + i % UNITS];
    }
}

// All steps in one cooperative launch; in the emulation a launch for each step.
cudaError_t launch_steps(void (*kernel)(Layer, int, int), const Layer& layer, dim3 grid, int shared_bytes,
                         cudaStream_t stream, LaunchRecord* record) {
    record->set(grid, THREADS, shared_bytes);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
#ifdef __CUDACC__
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
    const cudaLaunchConfig_t config = {grid, dim3(THREADS), size_t(shared_bytes), stream, &attribute, 1};
    cudaLaunchKernelEx(&config, kernel, layer, 0, layer.steps);
#else
    for (int t = 0; t < layer.steps; ++t) {
        kernel<<<grid, THREADS, shared_bytes, stream>>>(layer, t, t + 1);
    }
#endif
    return cudaGetLastError();
}

template <typename T, int QUADS>
cudaError_t launch_words(const Layer& layer, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(ceil_div(layer.size, UNITS));
    const int bytes = layer.batch * UNITS * int(sizeof(float));
    const auto kernel = layer.batch == 1 ? lstm_words<T, QUADS, 1> : lstm_words<T, QUADS, 4>;
    cudaMemsetAsync(layer.words, 0, size_t(16) * layer.batch * layer.pitch, stream);
    return launch_steps(kernel, layer, grid, bytes, stream, record);
}

template <typename T, int BLOCKS>
cudaError_t launch_mma(const Layer& layer, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(ceil_div(layer.size, UNITS), ceil_div(layer.batch, layer.rows));
    const int bytes = (WARPS * TILE * GATES + layer.rows) * UNITS * int(sizeof(float));
    cudaMemsetAsync(layer.flags, 0, sizeof(unsigned) * grid.x * grid.y, stream);
    return launch_steps(lstm_mma<T, BLOCKS>, layer, grid, bytes, stream, record);
}

// inputs (T, B, 4H). `rows` of the batch belong to one group of blocks on tensor cores; 0: without tensor cores.
extern "C" int lstm_persistent(const void* inputs, const void* w_hh, const void* bias, const void* h0, const void* c0,
                               void* y, void* h, void* c, void* cells, void* exchange, int64_t steps, int64_t batch,
                               int64_t size, int64_t pitch, int64_t rows, int64_t dtype, cudaStream_t stream,
                               LaunchRecord* record) {
    if (size > MOST) return cudaErrorInvalidValue;
    const Layer layer = {inputs, w_hh, bias, h0, c0, y, h, c, static_cast<float*>(cells),
                         static_cast<uint64_t*>(exchange), static_cast<unsigned*>(exchange), int(steps), int(batch),
                         int(size), int(pitch), int(rows)};
    const auto by_size = [&](auto zero) {
        using T = decltype(zero);
        if constexpr (sizeof(T) == 2) {
            if (rows > 0) {
                if (size <= 256) return launch_mma<T, 1>(layer, stream, record);
                if (size <= 512) return launch_mma<T, 2>(layer, stream, record);
                return launch_mma<T, 4>(layer, stream, record);
            }
        }
        if (size <= 128) return launch_words<T, 1>(layer, stream, record);
        if (size <= 512) return launch_words<T, 4>(layer, stream, record);
        return launch_words<T, 8>(layer, stream, record);
    };
    cudaError_t error = cudaErrorInvalidValue;
    const cudaError_t other = by_dtype(dtype, [&](auto zero) { error = by_size(zero); });
    return other != cudaSuccess ? other : error;
}
