// Shared by the LSTM kernels on Hopper's tensor cores: weights in registers, by which wgmma multiplies h^T.
#pragma once

#include "common/launch.cuh"
#include "lstm/lstm.cuh"
#include "hopper/mbarrier.cuh"
#include "hopper/wgmma.cuh"

constexpr int CHUNK = 16 / 2;  // elements in 16 bytes

struct Layer {
    const void *inputs, *w_hh, *bias, *h0, *c0;
    void *y, *h, *c;
    int steps, batch, size;  // T, B, H
};

// h in shared memory is K-major without swizzle: eight k of all rows, 16 bytes each, then the next eight k.
template <int BATCH>
__device__ __forceinline__ uint64_t state_descriptor(uint32_t address) {
    constexpr uint64_t NEXT_CHUNK = BATCH * 16 >> 4, EIGHT_ROWS = 128 >> 4;
    return EIGHT_ROWS << 32 | NEXT_CHUNK << 16 | (address & 0x3ffff) >> 4;
}

// acc += A B, 64 x 16 by 16 x 2 COUNT: A in registers, in the fragment of mma.sync for each warp's 16 rows
#define RECURRENT_OF(N_, TYPE, SUMS, A, B, ...)                                                             \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" N_ "k16.f32." TYPE "." TYPE " {" SUMS "}, {" A "}, " B \
                 ", 1, 1, 1, 0;"                                                                            \
                 : __VA_ARGS__                                                                              \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define RECURRENT(N_, SUMS, A, B, ...)                     \
    if constexpr (std::is_same_v<T, __half>) {             \
        RECURRENT_OF(N_, "f16", SUMS, A, B, __VA_ARGS__);  \
    } else {                                               \
        RECURRENT_OF(N_, "bf16", SUMS, A, B, __VA_ARGS__); \
    }
#define ACC_4(i) "+f"(acc[i]), "+f"(acc[i + 1]), "+f"(acc[i + 2]), "+f"(acc[i + 3])
template <typename T, int COUNT>
__device__ __forceinline__ void wgmma_of_registers(float (&acc)[COUNT], const uint32_t (&a)[4], uint64_t b) {
    static_assert(COUNT == 16 || COUNT == 20 || COUNT == 24 || COUNT == 32, "");
    if constexpr (COUNT == 16) {
        RECURRENT("32", SUMS_16, "%16, %17, %18, %19", "%20", ACC_8(0), ACC_8(8));
    } else if constexpr (COUNT == 20) {
        RECURRENT("40", SUMS_16 ", %16, %17, %18, %19", "%20, %21, %22, %23", "%24", ACC_8(0),
                  ACC_8(8), ACC_4(16));
    } else if constexpr (COUNT == 24) {
        RECURRENT("48", SUMS_24, "%24, %25, %26, %27", "%28", ACC_8(0), ACC_8(8), ACC_8(16));
    } else {
        RECURRENT("64", SUMS_32, "%32, %33, %34, %35", "%36", ACC_32(0));
    }
}

// Loads the fragments of a warp's 16 rows of w_hh, from `first_k` on: four units. A lane's two rows are two gates of
// one unit: i and f in the upper half of a warp, g and o in the other half.
template <typename T, int PRODUCTS>
__device__ __forceinline__ void load_weights(uint32_t (&weights)[PRODUCTS][4], const void* w_hh, int unit, int first_k,
                                             int H) {
    const int half = threadIdx.x % 32 / 16, quarter = threadIdx.x % 4;
#pragma unroll
    for (int product = 0; product < PRODUCTS; ++product) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int k = first_k + product * 16 + i / 2 * 8 + quarter * 2;
            const T* const from = static_cast<const T*>(w_hh) + (int64_t(half * 2 + i % 2) * H + unit) * H + k;
            weights[product][i] = unit < H && k < H ? *reinterpret_cast<const uint32_t*>(from) : 0;
        }
    }
}

// Adds a lane's sums of two neighbouring rows of the batch to z. Each half of a warp keeps one of the rows, and gets
// the other two gates of that row from the other half.
__device__ __forceinline__ void add_gates(float (&z)[GATES], const float* sums) {
    const bool half = threadIdx.x % 32 / 16;
#pragma unroll
    for (int gate = 0; gate < 2; ++gate) {
        const float even = sums[gate * 2], odd = sums[gate * 2 + 1], kept = half ? odd : even;
        const float received = __shfl_xor_sync(0xffffffffu, half ? even : odd, 16);
        z[gate] += half ? received : kept;
        z[2 + gate] += half ? kept : received;
    }
}

// Loads the input sums of one step and row; `from` is the first gate.
template <typename T>
__device__ __forceinline__ void load_gates(T (&next)[GATES], bool inside, const T* from, int H) {
#pragma unroll
    for (int gate = 0; gate < GATES; ++gate) next[gate] = inside ? __ldg(from + gate * H) : from_float<T>(0.0f);
}

// Loads h of `batch` rows from `first_row` on to shared memory; `width` terms of k.
template <typename T, int BATCH>
__device__ __forceinline__ void load_state(char* state, const void* h0, int first_row, int width, int B, int H,
                                           int threads) {
    for (int i = threadIdx.x; i < width / CHUNK * BATCH; i += threads) {
        const int b = first_row + i % BATCH, k = i / BATCH * CHUNK;
        uint4 x = make_uint4(0, 0, 0, 0);
        if (b < B && k < H) x = *reinterpret_cast<const uint4*>(static_cast<const T*>(h0) + int64_t(b) * H + k);
        reinterpret_cast<uint4*>(state)[i] = x;
    }
}
