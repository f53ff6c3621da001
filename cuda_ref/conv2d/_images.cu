// out[n, h, w, c] = x[n, h, w - left, c], or zero outside x: makes images that TMA can read
//
// Pixels have `channels` elements, a multiple of 4; rows are whole multiples of 16 bytes. Elements have 2 or 4 bytes; x
// has any strides. A block writes one row. A thread writes 16 bytes at a time, and reads single elements.
#include "common/common.cuh"

constexpr int THREADS = 128;

struct Source {
    const void* data;
    int64_t stride_n, stride_h, stride_w, stride_c;
    int height, width, channels;
};

template <typename E>
__global__ void __launch_bounds__(THREADS)
    pad_images_kernel(const Source x, E* __restrict__ out, const int left, const int channels, const int row_elements) {
    constexpr int ELEMENTS = 16 / sizeof(E);
    const int64_t n = blockIdx.x / x.height, h = blockIdx.x % x.height;
    const E* const row = static_cast<const E*>(x.data) + n * x.stride_n + h * x.stride_h;
    E* const to = out + int64_t(blockIdx.x) * row_elements;
    for (int first = threadIdx.x * ELEMENTS; first < row_elements; first += THREADS * ELEMENTS) {
        Pack<E, ELEMENTS> chunk;
        int w = first / channels, c = first - w * channels;
        w -= left;
#pragma unroll
        for (int i = 0; i < ELEMENTS; ++i) {
            const bool inside = w >= 0 && w < x.width && c < x.channels;
            chunk[i] = inside ? row[w * x.stride_w + c * x.stride_c] : E(0);
            if (++c == channels) c = 0, ++w;
        }
        *reinterpret_cast<Pack<E, ELEMENTS>*>(to + first) = chunk;
    }
}

// x: (N, H, W, C), strides in elements. out: (N, H, row_elements), rows of whole 16 bytes.
extern "C" int pad_images(const void* x, void* out, int64_t N, int64_t H, int64_t W, int64_t C, int64_t stride_n,
                          int64_t stride_h, int64_t stride_w, int64_t stride_c, int64_t left, int64_t channels,
                          int64_t row_elements, int64_t element_bytes, cudaStream_t stream, LaunchRecord* record) {
    const Source source = {x, stride_n, stride_h, stride_w, stride_c, int(H), int(W),
                           int(C)};
    const dim3 grid(unsigned(N * H)), block(THREADS);
    record->set(grid, block);
    const auto run = [&](auto zero) {
        using E = decltype(zero);
        pad_images_kernel<E><<<grid, block, 0, stream>>>(source, static_cast<E*>(out), int(left), int(channels),
                                                         int(row_elements));
    };
    element_bytes == 4 ? run(uint32_t()) : run(uint16_t());
    return cudaGetLastError();
}
