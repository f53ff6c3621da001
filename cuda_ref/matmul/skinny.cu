// out[m, n] = sum over k of a[m, k] * b[k, n] for M <= 32, as in decoding: bound by reading b
//
// requires: sm_90a
//
// With few rows each element of b is used only a few times, so the time is that of reading b. It depends on the number
// of bytes in flight. By Little's law an H200 (4.8 TB/s, 132 multiprocessors) with a latency of 1 us needs 36 KB per
// multiprocessor, and more while blocks start and end. So two blocks share a multiprocessor, and each keeps about
// 100 KB in flight by TMA.
//
// Speed: docs/ladder.md
//
// wgmma multiplies 64 rows at a time. To waste none, the columns of b take the place of the rows: out^T = b^T a^T, in
// tiles of 64 or 128 x M, where M is padded with zeros only to 16 or 32. The columns alone give too few blocks, so a
// cluster of up to eight blocks divides the k of a tile. Each block leaves its sums in shared memory, and then adds up
// its part of the rows over the whole cluster: no workspace, no second kernel, and a fixed order of additions.
// skinny.py chooses the tile and the number of blocks.
//
// Precision: products of 16 bits are exact, sums float32, rounded once.
//
// Source: PTX ISA, as in wgmma.cu.
#include "matmul/skinny.cuh"

// a[m, k] is at a + m * a_stride + k; b[k, n] at b + n + k * b_stride if b_mn, otherwise at b + n * b_stride + k.
// Tiles have 64 or 128 `columns`; `parts` divide k.
extern "C" int matmul_skinny(const void* a, const void* b, void* out, int64_t M, int64_t N, int64_t K, int64_t a_stride,
                             int64_t b_mn, int64_t b_stride, int64_t columns, int64_t parts, int64_t dtype,
                             cudaStream_t stream, LaunchRecord* record) {
    const MatrixOperand left{a, false, M, a_stride}, right{b, b_mn != 0, N, b_stride};
    return dispatch_16_bit(dtype, false, b_mn, [&](auto zero, auto, auto b_is_mn) {
        using T = decltype(zero);
        constexpr bool B_MN = decltype(b_is_mn)::value;
        return launch_skinny<T, B_MN>(left, right, out, K, columns, parts, TheSum(), stream, record);
    });
}
