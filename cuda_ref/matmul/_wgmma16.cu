// out[m, n] = sum over k of a[m, k] * b[k, n], 16 bits: the kernel of wgmma.cuh in more tiles
//
// requires: sm_90a
//
// wgmma.cu has the tiles that are best for large powers of two. The tiles here fill the device at other sizes: large
// tiles without a cluster, so that an odd number of tile rows leaves no block idle; a tall one; a small one; and one of
// 128 x 128 whose blocks share b, for few columns and many rows, where L2 would otherwise deliver b to all blocks.
// wgmma.py chooses.
#include "matmul/wgmma.cuh"

template <typename T, typename C>
cudaError_t launch_layout(const MatrixOperand& a, const MatrixOperand& b, void* out, int64_t K, Plan plan,
                          cudaStream_t stream, LaunchRecord* record) {
    constexpr StoreSums FINISH;
    const auto with = [&](auto a_mn, auto b_mn) {
        return launch<T, decltype(a_mn)::value, decltype(b_mn)::value, false, false, C>(a, b, out, K, Scales{}, plan,
                                                                                        FINISH, stream, record);
    };
    constexpr std::true_type yes;
    constexpr std::false_type no;
    return a.mn_major ? b.mn_major ? with(yes, yes) : with(yes, no) : b.mn_major ? with(no, yes) : with(no, no);
}

// Arguments as for matmul_wgmma. `tile`: its number in _tiles.py.
extern "C" int matmul_wgmma16(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K, int64_t a_mn,
                              int64_t a_stride, int64_t b_mn, int64_t b_stride, int64_t tile, int64_t parts,
                              float* sums, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const MatrixOperand left{a, a_mn != 0, M, a_stride}, right{b, b_mn != 0, N, b_stride};
    const Plan plan{tile, parts, sums};
    const auto run = [&](auto zero, auto config) {
        return launch_layout<decltype(zero), decltype(config)>(left, right, out, K, plan, stream, record);
    };
    const auto run_tile = [&](auto zero) {
        switch (tile) {
            case 0: return run(zero, TileConfig<2, 256, 4, 1, 16, 2>());
            case 1: return run(zero, TileConfig<2, 192, 4, 1, 16, 2>());
            case 2: return run(zero, TileConfig<3, 128, 4, 1, 8, 2>());
            case 3: return run(zero, TileConfig<1, 64, 8, 1, 16, 2>());
            case 4: return run(zero, TileConfig<2, 128, 5, 2, 8, 2>());
            default: return cudaErrorInvalidValue;
        }
    };
    switch (dtype) {
        case FLOAT16: return run_tile(__half());
        case BFLOAT16: return run_tile(__nv_bfloat16());
        default: return cudaErrorInvalidValue;
    }
}
