// out[m, n] = sum over k of a[m, k] * b[k, n], on Hopper's tensor cores: the complete kernel
//
// requires: sm_90a
//
// Adds to warp_specialized.cu:
//   - Persistent blocks. While the sums of one tile are rounded and stored, also by TMA, the next one is loaded.
//   - Clusters. Two blocks, one below the other, load one half each of the tile of b, for both (multicast).
//   - Other tiles: 128 x 192, 128 x 128, and 64 x 128 with one consumer; wgmma.py chooses.
//   - Split-K. With too few tiles for the device, blocks compute parts of the sums over k; a second kernel adds them.
//   - tf32 (_wgmma32.cu) and float8 (_wgmma8.cu).
// The tile of 128 x 256 gives 85 products for each element that is loaded to shared memory.
//
// Speed: docs/ladder.md. Variants that were tried: docs/lab/matmul_tried.md
//
// Precision: products are exact, sums float32.
//
// Layouts. An operand is K-major if it is contiguous along k, otherwise MN-major. wgmma takes both in 16 bits.
//
// Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"; producer and consumer warpgroups, multicast and
// persistent blocks as in CUTLASS 3 ("warp-specialized cooperative" kernels).
#include "matmul/wgmma.cuh"

template <typename T>
cudaError_t launch_layout(const MatrixOperand& a, const MatrixOperand& b, void* out, int64_t K, Plan plan,
                          cudaStream_t stream, LaunchRecord* record) {
    constexpr Scales NONE = {};
    constexpr StoreSums FINISH;
    if (a.mn_major && b.mn_major) return launch<T, true, true>(a, b, out, K, NONE, plan, FINISH, stream, record);
    if (b.mn_major) return launch<T, false, true>(a, b, out, K, NONE, plan, FINISH, stream, record);
    if (a.mn_major) return launch<T, true, false>(a, b, out, K, NONE, plan, FINISH, stream, record);
    return launch<T, false, false>(a, b, out, K, NONE, plan, FINISH, stream, record);
}

// a_mn: a[m, k] is at a + m + k * a_stride, otherwise at a + m * a_stride + k; b_mn: the same with n. `tile`: its
// number in _tiles.py. With several `parts` of k the sums go to `sums`: see Parts.
extern "C" int matmul_wgmma(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K, int64_t a_mn,
                            int64_t a_stride, int64_t b_mn, int64_t b_stride, int64_t tile, int64_t parts, float* sums,
                            int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const MatrixOperand left{a, a_mn != 0, M, a_stride}, right{b, b_mn != 0, N, b_stride};
    const Plan plan{tile, parts, sums};
    switch (dtype) {
        case FLOAT16: return launch_layout<__half>(left, right, out, K, plan, stream, record);
        case BFLOAT16: return launch_layout<__nv_bfloat16>(left, right, out, K, plan, stream, record);
        default: return cudaErrorInvalidValue;
    }
}
