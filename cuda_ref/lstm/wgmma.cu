// A layer of LSTM cells in one kernel, for H up to 512. A cluster of blocks holds the recurrent weights in registers,
// and exchanges h through the shared memory of its blocks. `inputs` are the products x W_ih^T of all steps.
//
// requires: sm_90a
//
// Rows of the batch are independent, so a cluster computes 32 to 64 rows over all steps and waits for no other cluster.
// h of a step goes through the L2 cache only as a part of y. The best number of rows is the smallest with which all
// clusters run at the same time. A device may run fewer clusters than its number of multiprocessors allows.
// A block has 32 hidden units: 128 rows of w_hh in registers, by which wgmma multiplies h^T. It writes its units of h
// to its own buffer, and sends them to the other blocks by bulk copies, which count their bytes on a barrier of the
// receiver.
//
// Two buffers are enough. A block writes and sends h of step t when it has read all of step t - 1. By then every block
// has sent step t - 1, after its last read of step t - 2, whose place step t takes.
//
// Source: G. Diamos et al., "Persistent RNNs: Stashing Recurrent Weights On-Chip", ICML 2016, with clusters.
#include "lstm/wgmma.cuh"

// Hidden units and threads of a block. A warp has four units.
constexpr int UNITS = 32, THREADS = 2 * WARPGROUP;

// A cluster of BLOCKS blocks with BATCH rows of the batch. A PART is the share of h that one block computes.
template <int BLOCKS_, int BATCH_>
struct Shape {
    static constexpr int BLOCKS = BLOCKS_, BATCH = BATCH_, WIDTH = BLOCKS * UNITS, PART_BYTES = UNITS * BATCH * 2;
    static constexpr int STATE_BYTES = BLOCKS * PART_BYTES;
    static constexpr int SHARED_BYTES = 2 * (STATE_BYTES + PART_BYTES + MBARRIER_BYTES);
};

// Copies from this block's shared memory to another block of the cluster, and counts the bytes on the barrier there.
__device__ __forceinline__ void bulk_send(uint32_t remote, uint32_t from, int bytes, uint32_t remote_barrier) {
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     remote),
                 "r"(from), "r"(bytes), "r"(remote_barrier)
                 : "memory");
}

template <typename T, typename S>
__global__ void __launch_bounds__(THREADS, 1) lstm_rows(const Layer layer) {
    constexpr int BATCH = S::BATCH, CELLS = BATCH / 8, PRODUCTS = S::WIDTH / 16;
    constexpr int CHAINS = CELLS < 6 ? 2 : 1;  // sums of even and of odd products are independent
    extern __shared__ __align__(128) char raw[];
    char* const parts = raw + 2 * S::STATE_BYTES;  // parts that the block sends, of even and odd steps
    const uint32_t shared = shared_address(raw), barriers = shared + 2 * (S::STATE_BYTES + S::PART_BYTES);
    const int thread = threadIdx.x, lane = thread % 32, quarter = lane % 4, H = layer.size, B = layer.batch;
    const int rank = int(cta_rank_in_cluster()), first_row = blockIdx.x / S::BLOCKS * BATCH;
    const int half = lane / 16, own = thread / 32 * 4 + lane / 4 % 4, unit = rank * UNITS + own;
    const bool inside = unit < H;
    const T* const inputs = static_cast<const T*>(layer.inputs);
    T* const y = static_cast<T*>(layer.y);

    if (thread == 0) {
        mbarrier_init(barriers, 1);
        mbarrier_init(barriers + MBARRIER_BYTES, 1);
        mbarrier_fence_init();
    }
    load_state<T, BATCH>(raw, layer.h0, first_row, S::WIDTH, B, H, THREADS);
    uint32_t weights[PRODUCTS][4];
    load_weights<T>(weights, layer.w_hh, unit, 0, H);
    // A lane has all gates of its unit for these rows once the halves of the warp have exchanged half of their sums.
    const auto row_of = [&](int i) { return i * 8 + quarter * 2 + half; };
    float bias[GATES] = {}, c[CELLS] = {};
    T next[CELLS][GATES];
    const auto load_inputs = [&](int t) {
#pragma unroll
        for (int i = 0; i < CELLS; ++i) {
            const int b = first_row + row_of(i);
            load_gates(next[i], b < B && inside, inputs + (int64_t(t) * B + b) * GATES * H + unit, H);
        }
    };
    if (inside) {
        for (int gate = 0; gate < GATES; ++gate) {
            bias[gate] = to_float(static_cast<const T*>(layer.bias)[gate * H + unit]);
        }
#pragma unroll
        for (int i = 0; i < CELLS; ++i) {
            const int b = first_row + row_of(i);
            if (b < B) c[i] = to_float(static_cast<const T*>(layer.c0)[int64_t(b) * H + unit]);
        }
    }
    load_inputs(0);
    fence_proxy_async();  // makes h0 visible to wgmma
    cluster_sync();

    for (int t = 0; t < layer.steps; ++t) {
        const uint32_t other = (t + 1) % 2;
        if (t > 0) mbarrier_wait_parity(barriers + t % 2 * MBARRIER_BYTES, (t - 1) / 2 % 2);
        if (thread == 0) {
            mbarrier_arrive_expect_tx(barriers + other * MBARRIER_BYTES, S::STATE_BYTES - S::PART_BYTES);
        }
        float sums[CHAINS][BATCH / 2] = {};
        const uint64_t state = state_descriptor<BATCH>(shared + t % 2 * S::STATE_BYTES);
        for (auto& chain : sums) warpgroup_fence_operand(chain);
        wgmma_fence();
#pragma unroll
        for (int product = 0; product < PRODUCTS; ++product) {
            wgmma_of_registers<T>(sums[product % CHAINS], weights[product], state + product * (2 * BATCH * 16 >> 4));
        }
        wgmma_commit_group();
        wgmma_wait_group<0>();
        for (auto& chain : sums) warpgroup_fence_operand(chain);

        char* const part = parts + t % 2 * S::PART_BYTES;  // sending from the buffer itself takes 2% longer
        char* const own_part = raw + other * S::STATE_BYTES + rank * S::PART_BYTES;
#pragma unroll
        for (int i = 0; i < CELLS; ++i) {
            float z[GATES];
#pragma unroll
            for (int gate = 0; gate < GATES; ++gate) z[gate] = bias[gate] + to_float(next[i][gate]);
            if constexpr (CHAINS == 2) {
                for (int j = i * 4; j < i * 4 + 4; ++j) sums[0][j] += sums[1][j];
            }
            add_gates(z, sums[0] + i * 4);
            const float h = cell(z, c[i]);
            const int at = (own / CHUNK * BATCH + row_of(i)) * CHUNK + own % CHUNK;
            reinterpret_cast<T*>(part)[at] = reinterpret_cast<T*>(own_part)[at] = from_float<T>(inside ? h : 0.0f);
        }
        fence_proxy_async();
        __syncthreads();
        constexpr int EACH = (S::BLOCKS + THREADS / 32 - 1) / (THREADS / 32);  // receivers per warp
        const int index = thread / 32 * EACH + lane;
        if (lane < EACH && index > 0 && index < S::BLOCKS && t + 1 < layer.steps) {
            const int to = (rank + index) % S::BLOCKS;
            bulk_send(map_shared_rank(shared + other * S::STATE_BYTES + rank * S::PART_BYTES, to), shared_address(part),
                      S::PART_BYTES, map_shared_rank(barriers + other * MBARRIER_BYTES, to));
        }
        if (t + 1 < layer.steps) load_inputs(t + 1);  // placed here because the fence would wait for the loads
        const int row = thread / (UNITS / CHUNK), chunk = thread % (UNITS / CHUNK);
        const int b = first_row + row, k = rank * UNITS + chunk * CHUNK;
        if (row < BATCH && b < B && k < H) {
            const uint4 x = reinterpret_cast<const uint4*>(part)[chunk * BATCH + row];
            *reinterpret_cast<uint4*>(y + (int64_t(t) * B + b) * H + k) = x;
            if (t + 1 == layer.steps) *reinterpret_cast<uint4*>(static_cast<T*>(layer.h) + int64_t(b) * H + k) = x;
        }
    }
#pragma unroll
    for (int i = 0; i < CELLS; ++i) {
        const int b = first_row + row_of(i);
        if (inside && b < B) static_cast<T*>(layer.c)[int64_t(b) * H + unit] = from_float<T>(c[i]);
    }
    cluster_sync();  // no block ends while others read its shared memory
}

// Launches and returns true if all clusters run at the same time, or if `always`.
template <typename T, typename S>
bool launch_shape(const Layer& layer, bool always, cudaStream_t stream, LaunchRecord* record, cudaError_t& error) {
    const auto kernel = lstm_rows<T, S>;
    const dim3 grid(S::BLOCKS * ceil_div(layer.batch, S::BATCH));
    static const int most = [&] {  // clusters that run at the same time
        cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::SHARED_BYTES);
        cudaLaunchAttribute attribute = {};
        attribute.id = cudaLaunchAttributeClusterDimension;
        attribute.val.clusterDim = {unsigned(S::BLOCKS), 1, 1};
        const cudaLaunchConfig_t config = {dim3(S::BLOCKS), dim3(THREADS), S::SHARED_BYTES, nullptr, &attribute, 1};
        int count = 0;
        cudaOccupancyMaxActiveClusters(&count, kernel, &config);
        return count;
    }();
    if (!always && int(grid.x) > most * S::BLOCKS) return false;
    error = launch_clusters(S::BLOCKS, kernel, grid, dim3(THREADS), S::SHARED_BYTES, stream, record, layer);
    return true;
}

template <typename T, int BLOCKS>
cudaError_t launch_layer(const Layer& layer, cudaStream_t stream, LaunchRecord* record) {
    cudaError_t error = cudaSuccess;
    if (launch_shape<T, Shape<BLOCKS, 32>>(layer, false, stream, record, error)) return error;
    if (launch_shape<T, Shape<BLOCKS, 40>>(layer, false, stream, record, error)) return error;
    if (launch_shape<T, Shape<BLOCKS, 48>>(layer, false, stream, record, error)) return error;
    launch_shape<T, Shape<BLOCKS, 64>>(layer, true, stream, record, error);
    return error;
}

template <typename T>
cudaError_t launch_by_size(const Layer& layer, cudaStream_t stream, LaunchRecord* record) {
    if (layer.size <= 4 * UNITS) return launch_layer<T, 4>(layer, stream, record);
    if (layer.size <= 8 * UNITS) return launch_layer<T, 8>(layer, stream, record);
    return launch_layer<T, 16>(layer, stream, record);
}

// inputs (T, B, 4H); H is a multiple of 8, at most 512. w_hh begins at a multiple of 4 bytes, h0, y and h at one of 16.
extern "C" int lstm_wgmma(const void* inputs, const void* w_hh, const void* bias, const void* h0, const void* c0,
                            void* y, void* h, void* c, int64_t steps, int64_t batch, int64_t size, int64_t dtype,
                            cudaStream_t stream, LaunchRecord* record) {
    if (size > 16 * UNITS || size % CHUNK != 0) return cudaErrorInvalidValue;
    const Layer layer = {inputs, w_hh, bias, h0, c0, y, h, c, int(steps), int(batch), int(size)};
    switch (dtype) {
        case FLOAT16: return launch_by_size<__half>(layer, stream, record);
        case BFLOAT16: return launch_by_size<__nv_bfloat16>(layer, stream, record);
        default: return cudaErrorInvalidValue;
    }
}
