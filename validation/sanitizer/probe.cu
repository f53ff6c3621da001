// Shows how compute-sanitizer handles asynchronous copies: each case is one run that is known to be right or wrong.
//
//     nvcc -arch=sm_90a -std=c++17 -I cuda_ref validation/sanitizer/probe.cu -o probe
//     compute-sanitizer --tool racecheck ./probe chain
//
// racecheck: bulk copies fill a ring of two stages in shared memory, and four warps read them. The cases differ in how
// warps report that they have read a stage.
// initcheck: a kernel reads global memory that another one has written. The cases differ in how it is written.
// memcheck: cp.async copies two chunks of 16 bytes; the source size of the second one is 16 or 8 bytes.
#include <stdio.h>
#include <string.h>

#include "hopper/mbarrier.cuh"
#include "common/mma.cuh"
#include "hopper/tma.cuh"

constexpr int STAGES = 2, READERS = 4 * 32, BYTES = READERS * 4, COPIES = 16;

enum Order {
    THREADS,  // right: every reader arrives
    WARPS,    // right: one lane of each warp arrives, after __syncwarp
    CHAIN,    // right: one lane of each warp arrives at another barrier; a thread that waits for it arrives
    ALONE,    // wrong: one reader arrives, without the others
    NONE,     // wrong: the next copy waits for nobody
};

template <Order ORDER>
__global__ void ring(const float* from, float* to) {
    __shared__ alignas(128) float numbers[STAGES][READERS];
    __shared__ alignas(8) uint64_t barriers[2 * STAGES + 1];
    const uint32_t full = shared_address(barriers), empty = full + STAGES * MBARRIER_BYTES;
    const uint32_t read = empty + STAGES * MBARRIER_BYTES;
    const int thread = threadIdx.x, lane = thread % 32;
    if (thread == 0) {
        for (int i = 0; i < STAGES; ++i) {
            mbarrier_init(full + i * MBARRIER_BYTES, 1);
            mbarrier_init(empty + i * MBARRIER_BYTES, ORDER == THREADS ? READERS : ORDER == WARPS ? READERS / 32 : 1);
        }
        mbarrier_init(read, READERS / 32);
        mbarrier_fence_init();
    }
    __syncthreads();
    PipelineState<STAGES> at;
    if (thread == READERS) {
        for (int copy = 0; copy < COPIES; ++copy, at.advance()) {
            const uint32_t barrier = full + at.stage * MBARRIER_BYTES;
            if (ORDER != NONE) mbarrier_wait_parity(empty + at.stage * MBARRIER_BYTES, at.phase ^ 1);
            mbarrier_arrive_expect_tx(barrier, BYTES);
            bulk_load(shared_address(numbers[at.stage]), from + copy * READERS, BYTES, barrier);
            if (ORDER == NONE) mbarrier_wait_parity(barrier, at.phase);  // otherwise copies to a stage could overlap
        }
    } else if (thread < READERS) {
        float sum = 0;
        for (int copy = 0; copy < COPIES; ++copy, at.advance()) {
            const uint32_t released = empty + at.stage * MBARRIER_BYTES;
            mbarrier_wait_parity(full + at.stage * MBARRIER_BYTES, at.phase);
            sum += load_shared_pair(shared_address(&numbers[at.stage][thread / 2 * 2])).x;
            if (ORDER == THREADS) mbarrier_arrive(released);
            __syncwarp();
            if (ORDER == WARPS && lane == 0) mbarrier_arrive(released);
            if (ORDER == CHAIN) {
                if (lane == 0) mbarrier_arrive(read);
                mbarrier_wait_parity(read, copy % 2);
            }
            if ((ORDER == CHAIN || ORDER == ALONE) && thread == 0) mbarrier_arrive(released);
            if (ORDER == NONE) __syncwarp();
        }
        to[thread] = sum;
    }
}

__global__ void write_plainly(float* to) { to[threadIdx.x] = 1.0f; }

// One thread copies shared memory to global memory, or adds it there.
template <bool ADD>
__global__ void write_in_bulk(float* to) {
    __shared__ alignas(128) float numbers[READERS];
    numbers[threadIdx.x] = 1.0f;
    fence_proxy_async();
    __syncthreads();
    if (threadIdx.x != 0) return;
    if (ADD) {
        bulk_add(to, shared_address(numbers), BYTES);
    } else {
        bulk_store(to, shared_address(numbers), BYTES);
    }
    tma_store_commit_group();
    tma_store_wait_complete();
}

__global__ void read_all(const float* from, float* to) { to[threadIdx.x] = from[threadIdx.x] + 1.0f; }

// Reads 16 bytes, and `bytes` of the next 16.
__global__ void copy_two_chunks(const char* from, int bytes, float* to) {
    __shared__ alignas(16) float numbers[8];
    if (threadIdx.x < 2) {
        copy_async(reinterpret_cast<char*>(numbers) + threadIdx.x * 16, from + threadIdx.x * 16,
                   threadIdx.x == 0 ? 16 : bytes);
        __pipeline_commit();
        __pipeline_wait_prior(0);
    }
    __syncthreads();
    to[threadIdx.x] = numbers[threadIdx.x];
}

int main(int count, char** arguments) {
    const char* const given = count == 2 ? arguments[1] : "";
    auto is = [&](const char* name) { return strcmp(given, name) == 0; };
    float *from, *to;
    cudaMalloc(&from, COPIES * BYTES);
    cudaMalloc(&to, BYTES);
    const bool copies = is("threads") || is("warps") || is("chain") || is("alone") || is("none");
    if (copies) {
        cudaMemset(from, 0, COPIES * BYTES);
        const auto kernel = is("threads") ? ring<THREADS> : is("warps") ? ring<WARPS> : is("chain") ? ring<CHAIN>
                            : is("alone") ? ring<ALONE> : ring<NONE>;
        kernel<<<1, READERS + 32>>>(from, to);
    } else if (is("plain") || is("bulk_store") || is("bulk_add") || is("unwritten")) {
        if (is("plain")) write_plainly<<<1, READERS>>>(from);
        if (is("bulk_store") || is("bulk_add")) write_in_bulk<false><<<1, READERS>>>(from);
        if (is("bulk_add")) write_in_bulk<true><<<1, READERS>>>(from);
        read_all<<<1, READERS>>>(from, to);
    } else if (is("whole") || is("partial") || is("past")) {  // past: wrong, 8 bytes that do not exist are read
        cudaFree(from);
        cudaMalloc(&from, is("whole") ? 32 : 24);
        cudaMemset(from, 0, is("whole") ? 32 : 24);
        copy_two_chunks<<<1, 8>>>(reinterpret_cast<const char*>(from), is("partial") ? 8 : 16, to);
    } else {
        fprintf(stderr, "expected one of threads, warps, chain, alone, none, plain, bulk_store, bulk_add, unwritten, "
                        "whole, partial, past\n");
        return 2;
    }
    const cudaError_t error = cudaDeviceSynchronize();
    cudaFree(from);
    cudaFree(to);
    printf("%s: %s\n", given, cudaGetErrorString(error));
    return error == cudaSuccess ? 0 : 1;
}
