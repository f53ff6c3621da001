// z = x weight^T; loss[t] = log(sum over v of exp(z[t, v])) - z[t, target_t]; dz = (softmax(z) - [v = target_t]) / (number
// of rows with a target); dx = dz weight, dweight = dz^T x
//
// The logits z of a large vocabulary would take more memory than the weight. So they are computed in blocks of columns,
// each twice: first for the sum of each row's exponentials, then for the gradients, which replace them. The rows of
// dweight that belong to a block are sums over all rows of z. dx is added up over the blocks in float. The products are
// those of linear_sigmoid/tiles.cuh.
//
// wgmma.py computes the products on Hopper's tensor cores, and most logits once.
//
// Source: logits in blocks: Hsu et al., "Liger Kernel", 2024, which takes blocks of rows and adds up dweight.
#include "linear_cross_entropy/rows.cuh"
#include "linear_sigmoid/tiles.cuh"

struct TheSum {
    __device__ __forceinline__ float operator()(float sum, int64_t, int64_t) const { return sum; }
};

// Adds a sum to a total (M, N), and returns the total.
struct AddToTotal {
    float* total;
    int64_t columns;
    bool first;

    __device__ __forceinline__ float operator()(float sum, int64_t m, int64_t n) const {
        float& at = total[m * columns + n];
        return at = first ? sum : at + sum;
    }
};

// logits: memory for T `columns` elements. total: for T H floats. sums: for 3 T + 1 floats. dx and dweight are row-major.
extern "C" int linear_cross_entropy(const void* x, const void* weight, const void* target, void* logits, float* total,
                                    float* sums, float* loss, void* dx, void* dweight, int64_t rows, int64_t V,
                                    int64_t H, int64_t columns, int64_t stride_xt, int64_t stride_xh, int64_t stride_wv,
                                    int64_t stride_wh, int64_t stride_t, int64_t ignored, int64_t dtype,
                                    cudaStream_t stream, LaunchRecord* record) {
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        float* const share = sums + 3 * rows;
        const RowSums of{static_cast<const int64_t*>(target), sums, share, loss, rows, stride_t, ignored};
        launch_count(of.target, share, rows, stride_t, ignored, stream, record);
        T* const z = static_cast<T*>(logits);
        const auto of_x = strided_operand<T>(x, rows, stride_xt, stride_xh);
        const int64_t one = 1;
        const auto multiply = [&](const T* block, int64_t n) {
            launch_product<T, false>(of_x, strided_operand<T>(block, n, stride_wv, stride_wh), z, H, TheSum(), stream,
                                     record);
        };
        for (int64_t first = 0; first < V; first += columns) {
            const int64_t n = min(columns, V - first);
            multiply(static_cast<const T*>(weight) + first * stride_wv, n);
            launch_add<T, 1>(z, of, rows, {0, first, n}, stream, record);
        }
        for (int64_t first = 0; first < V; first += columns) {
            const int64_t n = min(columns, V - first);
            const T* const block = static_cast<const T*>(weight) + first * stride_wv;
            multiply(block, n);
            launch_gradients<T, 1>(z, z, of, rows, {0, first, n}, stream, record);
            launch_product<T, false>(strided_operand<T>(z, rows, n, one), strided_operand<T>(block, H, stride_wh, stride_wv),
                                     dx, n, AddToTotal{total, H, first == 0}, stream, record);
            launch_product<T, false>(strided_operand<T>(z, n, one, n), strided_operand<T>(x, H, stride_xh, stride_xt),
                                     static_cast<T*>(dweight) + first * H, rows, TheSum(), stream, record);
        }
    });
}
