// out[n, h, w, c] = x[n, h, w - left, c], or zero outside of x: images that TMA can read
//
// Pixels of `channels` elements, a multiple of 4, in rows of whole 16 bytes. 16-bit elements, any strides of x. A block
// writes one row; a thread 16 bytes at a time, and reads element by element.
#include "common.cuh"

constexpr int THREADS = 128, ELEMENTS = 8;

struct Source {
    const uint16_t* data;
    int64_t stride_n, stride_h, stride_w, stride_c;
    int height, width, channels;
};

__global__ void __launch_bounds__(THREADS)
    pad_images(const Source x, uint16_t* __restrict__ out, const int left, const int channels, const int row_elements) {
    const int64_t n = blockIdx.x / x.height, h = blockIdx.x % x.height;
    const uint16_t* const row = x.data + n * x.stride_n + h * x.stride_h;
    uint16_t* const to = out + int64_t(blockIdx.x) * row_elements;
    for (int first = threadIdx.x * ELEMENTS; first < row_elements; first += THREADS * ELEMENTS) {
        Pack<uint16_t, ELEMENTS> chunk;
        int w = first / channels, c = first - w * channels;
        w -= left;
#pragma unroll
        for (int i = 0; i < ELEMENTS; ++i) {
            const bool inside = w >= 0 && w < x.width && c < x.channels;
            chunk[i] = inside ? row[w * x.stride_w + c * x.stride_c] : uint16_t(0);
            if (++c == channels) c = 0, ++w;
        }
        *reinterpret_cast<Pack<uint16_t, ELEMENTS>*>(to + first) = chunk;
    }
}

// x: (N, H, W, C), strides in elements. out: (N, H, row_elements), row_elements a multiple of 8.
extern "C" int pad_images(const void* x, void* out, int64_t N, int64_t H, int64_t W, int64_t C, int64_t stride_n,
                          int64_t stride_h, int64_t stride_w, int64_t stride_c, int64_t left, int64_t channels,
                          int64_t row_elements, cudaStream_t stream, LaunchRecord* record) {
    const Source source = {static_cast<const uint16_t*>(x), stride_n, stride_h, stride_w, stride_c, int(H), int(W),
                           int(C)};
    const dim3 grid(unsigned(N * H)), block(THREADS);
    record->set(grid, block);
    pad_images<<<grid, block, 0, stream>>>(source, static_cast<uint16_t*>(out), int(left), int(channels),
                                           int(row_elements));
    return cudaGetLastError();
}
