// Steps of linear_cross_entropy on Hopper's tensor cores: dx by the kernel of matmul/wgmma.cuh, whose sums are added to
// those of earlier blocks of columns, and the steps of rows.cuh. The logits and dweight are products of matmul.
//
// requires: sm_90a
#include "linear_cross_entropy/rows.cuh"
#include "matmul/wgmma.cuh"

// Adds the sums of a tile to `total` (M, N), float32, unless these are the first; stores the last ones, rounded, as out.
struct AddToTotal {
    static constexpr bool BOXES_FOR_ALL = false, OTHER_WARPS = false;
    float* total;
    bool first, last;

    __device__ __forceinline__ float operator()(float sum, int) const { return sum; }

    template <typename Out, bool PERMUTED, bool TRANSPOSED, typename C>
    struct Consumer {
        float* total;
        bool first, last;

        __device__ Consumer(const AddToTotal& finish)
            : total(finish.total), first(finish.first), last(finish.last) {}

        __device__ __forceinline__ void start(const Place<Out>&, int, int) {}

        // The thread's sums lie as store_from_registers of hopper/epilogue.cuh has them. N is even.
        __device__ __forceinline__ void store(const Place<Out>& place, float (&acc)[C::BLOCK_N / 2], int m, int n) {
            const int row = m + place.thread / 32 * 16 + place.thread % 32 / 4, column = n + place.thread % 4 * 2;
#pragma unroll
            for (int i = 0; i < C::BLOCK_N / 2; i += 2) {
                const int r = row + i % 4 / 2 * 8, c = column + i / 4 * 8;
                if (r >= place.M || c >= place.N) continue;
                float2* const at = reinterpret_cast<float2*>(total + int64_t(r) * place.N + c);
                if (!first) {
                    const float2 before = *at;
                    acc[i] += before.x, acc[i + 1] += before.y;
                }
                if (!last) *at = make_float2(acc[i], acc[i + 1]);
            }
            if (!last) return;
            store_through_shared<Out, PERMUTED, TRANSPOSED>(place.map, place.out, acc, place.shared, place.boxes,
                                                            place.consumer, place.thread, m, n, place.M, place.N);
        }
    };
};

template <typename T>
constexpr int LANES = 16 / sizeof(T);

// sums[3 rows] = 1 / number of rows with a target
extern "C" int count_rows(const void* target, float* sums, int64_t rows, int64_t stride, int64_t ignored,
                          cudaStream_t stream, LaunchRecord* record) {
    launch_count(static_cast<const int64_t*>(target), sums + 3 * rows, rows, stride, ignored, stream, record);
    return cudaGetLastError();
}

// Adds the logits (count, n) of the rows from `row` on, and of the columns from `first` on, to the sums of these rows.
// rows: T. n is a multiple of 8.
extern "C" int add_block(const void* logits, const void* target, float* sums, int64_t rows, int64_t row, int64_t count,
                         int64_t first, int64_t n, int64_t stride, int64_t ignored, int64_t dtype, cudaStream_t stream,
                         LaunchRecord* record) {
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const RowSums of{static_cast<const int64_t*>(target), sums, nullptr, nullptr, rows, stride, ignored};
        launch_add<T, LANES<T>>(static_cast<const T*>(logits), of, count, {row, first, n}, stream, record);
    });
}

// Stores the gradients of these logits, which may replace them, and the losses.
extern "C" int gradients_of_block(const void* logits, void* gradients, const void* target, float* sums, float* loss,
                                  int64_t rows, int64_t row, int64_t count, int64_t first, int64_t n, int64_t stride,
                                  int64_t ignored, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const RowSums of{static_cast<const int64_t*>(target), sums, sums + 3 * rows, loss, rows, stride, ignored};
        launch_gradients<T, LANES<T>>(static_cast<const T*>(logits), static_cast<T*>(gradients), of, count,
                                      {row, first, n}, stream, record);
    });
}

template <typename T>
cudaError_t launch_dx(const void* dz, const void* weight, float* total, void* dx, int64_t rows, int64_t n, int64_t H,
                      int64_t weight_stride, bool first, bool last, int64_t tile, cudaStream_t stream,
                      LaunchRecord* record) {
    const MatrixOperand left{dz, false, rows, n}, right{weight, true, H, weight_stride};
    const AddToTotal finish{total, first, last};
    return launch<T, false, true>(left, right, dx, n, Scales{}, Plan{tile, 1, nullptr}, finish, stream, record);
}

// Adds dz (rows, n) times the n rows of the weight to total (rows, H); the first call begins a total, the last one stores
// it, rounded, as dx. n and H are multiples of 8; rows of the weight begin at multiples of 16 bytes. tile: 1, 2 or 3.
extern "C" int add_dx(const void* dz, const void* weight, float* total, void* dx, int64_t rows, int64_t n, int64_t H,
                      int64_t weight_stride, int64_t first, int64_t last, int64_t tile, int64_t dtype,
                      cudaStream_t stream, LaunchRecord* record) {
    const auto run = [&](auto zero) {
        return launch_dx<decltype(zero)>(dz, weight, total, dx, rows, n, H, weight_stride, first != 0, last != 0, tile,
                                         stream, record);
    };
    switch (dtype) {
        case FLOAT16: return run(__half());
        case BFLOAT16: return run(__nv_bfloat16());
        default: return cudaErrorInvalidValue;
    }
}
