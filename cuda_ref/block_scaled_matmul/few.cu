// out[m, n] = sum over groups g of scale_a[m, g] * scale_b[n / 128, g] * (sum over k in g of a[m, k] * b[n, k]), for at
// most 64 rows
//
// requires: sm_90a
//
// The kernel of matmul/skinny.cuh, which is bound by reading b: wgmma takes rows of b as its 64 rows and the few rows
// of a as columns, so no product is wasted, and the blocks of a cluster divide k.
//
// Adds the scales of groups to it. The 64 columns of a tile lie in one block of 128, so a step needs one scale of b. It
// needs one scale of a for each row of a whose sums the thread holds. Scales are loaded from the caches a step ahead.
//
// Precision: see wgmma.cu.
#include "block_scaled_matmul/scales.cuh"
#include "matmul/skinny.cuh"

// The epilogue: sums are scaled in each step, so nothing is left to do.
struct GroupsScaled {
    BlockScales scales;

    __device__ __forceinline__ float operator()(float sum, int) const { return sum; }
};

// Sum i of a thread belongs to row i / 4 * 8 + lane % 4 * 2 + i % 2 of a.
template <typename C>
struct StepScales<GroupsScaled, C> {
    static_assert(C::COLUMNS <= GROUP && GROUP % C::COLUMNS == 0, "a tile lies in one block of b");
    static constexpr int COUNT = C::ROWS / 4;
    const float *a, *b;
    int64_t a_row, a_group, b_group;
    int last;
    float next[COUNT], next_block, current[COUNT];

    __device__ __forceinline__ StepScales(const GroupsScaled& given, int n0, int M, int)
        : a(given.scales.a), b(given.scales.b + n0 / GROUP * given.scales.b_block), a_row(given.scales.a_row),
          a_group(given.scales.a_group), b_group(given.scales.b_group), last(M - 1) {}

    __device__ __forceinline__ void load(int k) {
        next_block = __ldg(b + k * b_group);
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const int row = i / 2 * 8 + threadIdx.x % 4 * 2 + i % 2;
            next[i] = __ldg(a + min(row, last) * a_row + k * a_group);
        }
    }
    __device__ __forceinline__ void advance() {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) current[i] = next[i] * next_block;
    }
    __device__ __forceinline__ float operator()(float sum, int i) const { return sum * current[i / 4 * 2 + i % 2]; }
};

// As in wgmma.cu. M is at most 64; clusters of `parts` blocks, at most 8, divide k.
extern "C" int block_scaled_few(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K,
                                int64_t a_stride, int64_t b_stride, const float* scale_a, const float* scale_b,
                                int64_t scale_a_row, int64_t scale_a_group, int64_t scale_b_block,
                                int64_t scale_b_group, int64_t parts, cudaStream_t stream, LaunchRecord* record) {
    const MatrixOperand left{a, false, M, a_stride}, right{b, false, N, b_stride};
    const GroupsScaled finish{{scale_a, scale_b, scale_a_row, scale_a_group, scale_b_block, scale_b_group}};
    const auto run = [&](auto rows) {
        return launch<Float8, false, SkinnyForm<true, false>, SkinnyConfig<decltype(rows)::value, 1>>(
            left, right, out, K, int(parts), finish, stream, record);
    };
    if (M <= 16) return run(std::integral_constant<int, 16>());
    return M <= 32 ? run(std::integral_constant<int, 32>()) : run(std::integral_constant<int, 64>());
}
