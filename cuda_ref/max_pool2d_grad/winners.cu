// dx[n, h, w, c] = sum of dy[n, p, q, c] over the windows (p, q) whose first largest pixel is x[n, h, w, c],
// for square windows, and x and dy with packs of 16 bytes of channels; dx is row-major
//
// A block computes a tile of an image, of up to 8 packs of channels. First a thread goes down a column of windows. It
// finds the largest of the SIZE neighbouring pixels of each row once, keeps those of the last SIZE rows, and writes the
// place of the largest of them to shared memory: one byte a channel. Then a thread goes down a column of pixels, with
// the sums of SIZE rows: where a window begins, it reads the window's byte and dy once for all of them. So dy arrives
// in the order of the windows, and sums are the same in every call. Beyond the image, the nearest pixel is read: it
// lies in the window too, so that the first largest one stays the same.
//
// Source: the definition. The plain kernel compares every pixel with all others, in each of its windows.
#include <type_traits>

#include "common/packs.cuh"

constexpr int THREADS = 256;
constexpr int BLOCKS = 4;            // of a multiprocessor
constexpr int SLAB = 8;              // packs of a block at most: 128 bytes, a line of the cache
constexpr int TILE = 32;             // rows and columns of a tile, and columns of windows, at most
constexpr int SHARED_BYTES = 32768;  // at most, so that the rest of 256 KiB holds lines for several blocks
constexpr int ROW = 16;              // numbers of pixels: ROW row + column
constexpr int NOWHERE = 4096;        // a column that no number has

struct PoolShape {
    int H, W, P, Q, stride, padding;
    int channels, slab;            // packs of a pixel, and of a block
    int rows, columns;             // of a tile
    unsigned slabs, across, down;  // blocks along the channels, columns and rows of an image
};

struct PoolStrides {
    int64_t x_n, x_h, x_w, y_n, y_p, y_q;  // of x and dy, in elements
};

__device__ __forceinline__ int clamped(int place, int size) { return min(max(place, 0), size - 1); }

// The windows along one axis of an image that hold a pixel from first_pixel to last_pixel; any window if none does.
struct Windows {
    int first, last;

    __device__ __forceinline__ Windows(int first_pixel, int last_pixel, int size, int stride, int padding, int count)
        : last(min((last_pixel + padding) / stride, count - 1)) {
        first = min(max(0, ceil_div(first_pixel + padding - size + 1, stride)), last);
    }
    __device__ __forceinline__ int count() const { return last - first + 1; }
};

// All bits of the lanes of a word in which a > b.
template <typename T>
__device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) {
    if constexpr (sizeof(T) == 4) {
        return __uint_as_float(a) > __uint_as_float(b) ? ~0u : 0u;
    } else {
        using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
        Pair x, y;
        memcpy(&x, &a, sizeof(x));
        memcpy(&y, &b, sizeof(y));
        return __hgt2_mask(x, y);
    }
}

// The first largest of some pixels, for each channel of a pack, and its number, in a lane as wide as a pixel.
template <typename T>
struct Largest {
    static constexpr uint32_t EACH = sizeof(T) == 4 ? 1 : 0x10001;  // one in each lane of a word
    uint32_t pixels[4], numbers[4];

    __device__ __forceinline__ void begin(const uint4& pack, int number) {
        memcpy(pixels, &pack, sizeof(pack));
#pragma unroll
        for (int i = 0; i < 4; ++i) numbers[i] = number * EACH;
    }
    __device__ __forceinline__ void merge(const Largest& later) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint32_t mask = larger<T>(later.pixels[i], pixels[i]);
            pixels[i] = (later.pixels[i] & mask) | (pixels[i] & ~mask);
            numbers[i] = (later.numbers[i] & mask) | (numbers[i] & ~mask);
        }
    }
    // Numbers that count from the pixel of number `base`.
    template <int LANES>
    __device__ __forceinline__ Pack<uint8_t, LANES> bytes(int base) const {
        Pack<uint8_t, LANES> result;
#pragma unroll
        for (int lane = 0; lane < LANES; ++lane) {
            const uint32_t word = numbers[lane * 4 / LANES] - base * EACH;
            result[lane] = uint8_t(word >> (lane % (LANES / 4) * 16));
        }
        return result;
    }
};

// One thread: the numbers of the winners of windows (p, q) to (end - 1, q), `pitch` packs apart.
template <typename T, int SIZE, int LANES>
__device__ __forceinline__ void find_winners(const T* x, Pack<uint8_t, LANES>* winners, int pitch, int p, int end,
                                             int q, const PoolShape& shape, const PoolStrides& by) {
    const int left = q * shape.stride - shape.padding, top = p * shape.stride - shape.padding;
    const int bottom = top + (end - 1 - p) * shape.stride + SIZE - 1;
    uint4 next[SIZE];
    const auto load = [&](int h) {
        const T* line = x + clamped(h, shape.H) * by.x_h;
#pragma unroll
        for (int s = 0; s < SIZE; ++s) {
            next[s] = *reinterpret_cast<const uint4*>(line + clamped(left + s, shape.W) * by.x_w);
        }
    };
    load(top);
    Largest<T> rows[SIZE] = {};  // of the last SIZE rows, the oldest first
    int base = 0, due = top + SIZE - 1;  // the number of the next window's first pixel, and the window's last row
    for (int row = top; row <= bottom; ++row) {
#pragma unroll
        for (int r = 0; r < SIZE - 1; ++r) rows[r] = rows[r + 1];
        uint4 pixels[SIZE];
        memcpy(pixels, next, sizeof(next));
        load(min(row + 1, bottom));  // on its way while this row is compared
        const int number = (clamped(row, shape.H) - top) * ROW - left;
#pragma unroll
        for (int s = 0; s < SIZE; ++s) {
            Largest<T> pixel;
            pixel.begin(pixels[s], number + clamped(left + s, shape.W));
            s == 0 ? void(rows[SIZE - 1] = pixel) : rows[SIZE - 1].merge(pixel);
        }
        if (row == due) {
            Largest<T> found = rows[0];
#pragma unroll
            for (int r = 1; r < SIZE; ++r) found.merge(rows[r]);
            *winners = found.template bytes<LANES>(base);
            winners += pitch;
            base += shape.stride * ROW;
            due += shape.stride;
        }
    }
}

// One thread: dx of the pixels (h, w) to (end - 1, w). `winners` begins with the window (first_p, first_q).
template <typename T, int SIZE, int MOST, int LANES>
__device__ __forceinline__ void add_gradients(const T* dy, T* dx, const Pack<uint8_t, LANES>* winners, int pitch,
                                              int first_p, int first_q, int h, int end, int w, const PoolShape& shape,
                                              const PoolStrides& by) {
    const Windows across(w, w, SIZE, shape.stride, shape.padding, shape.Q);
    int p = Windows(h, end - 1, SIZE, shape.stride, shape.padding, shape.P).first;
    int own[MOST], place[MOST];  // of the pixel (0, w) in the windows that may hold it
    const T* gradients[MOST];
#pragma unroll
    for (int j = 0; j < MOST; ++j) {
        const int q = min(across.first + j, across.last), s = w + shape.padding - q * shape.stride;
        own[j] = across.first + j <= across.last && s < SIZE ? s : NOWHERE;
        place[j] = (p - first_p) * pitch + (q - first_q) * int(blockDim.x);
        gradients[j] = dy + p * by.y_p + q * by.y_q;
    }
    int window = p * shape.stride - shape.padding, row = min(h, window);
    const int64_t line = int64_t(shape.W) * shape.channels * LANES;
    dx += h * line + int64_t(w) * shape.channels * LANES;
    float acc[SIZE][LANES] = {};  // of the rows from `row` on
    for (; row < end; ++row) {
        if (row == window && p < shape.P) {
            uint32_t won[MOST][LANES / 4];
            Pack<T, LANES> pixels[MOST];
#pragma unroll
            for (int j = 0; j < MOST; ++j) {
                memcpy(won[j], winners + place[j], sizeof(won[j]));
                pixels[j] = read_pack<T, LANES>(gradients[j]);
                place[j] += pitch;
                gradients[j] += by.y_p;
            }
#pragma unroll
            for (int j = 0; j < MOST; ++j) {
#pragma unroll
                for (int lane = 0; lane < LANES; ++lane) {
                    const int number = int(__byte_perm(won[j][lane / 4], 0, 0x4440 + lane % 4)) - own[j];
                    const float value = to_float(pixels[j][lane]);
#pragma unroll
                    for (int r = 0; r < SIZE; ++r) {
                        if (number == r * ROW) acc[r][lane] += value;
                    }
                }
            }
            window += shape.stride;
            ++p;
        }
        if (row >= h) {
            Pack<T, LANES> sum;
#pragma unroll
            for (int lane = 0; lane < LANES; ++lane) sum[lane] = from_float<T>(acc[0][lane]);
            write_pack(dx, sum);
            dx += line;
        }
#pragma unroll
        for (int r = 0; r < SIZE; ++r) {
#pragma unroll
            for (int lane = 0; lane < LANES; ++lane) acc[r][lane] = r + 1 < SIZE ? acc[r + 1][lane] : 0.0f;
        }
    }
}

// SIZE: rows and columns of a window. MOST: windows that hold a pixel, at most, along one side.
template <typename T, int SIZE, int MOST>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    max_pool2d_grad_winners(const T* __restrict__ x, const T* __restrict__ dy, T* __restrict__ dx,
                            const PoolShape shape, const PoolStrides by) {
    constexpr int LANES = 16 / sizeof(T);
    extern __shared__ __align__(16) uint8_t bytes[];
    const auto winners = reinterpret_cast<Pack<uint8_t, LANES>*>(bytes) + threadIdx.x;
    const unsigned tile = blockIdx.x / shape.slabs, strip = tile / shape.across, n = strip / shape.down;
    const int pack = int(blockIdx.x % shape.slabs) * shape.slab + int(threadIdx.x);
    const int top = int(strip % shape.down) * shape.rows, left = int(tile % shape.across) * shape.columns;
    const int rows = min(shape.rows, shape.H - top), columns = min(shape.columns, shape.W - left);
    const Windows down(top, top + rows - 1, SIZE, shape.stride, shape.padding, shape.P);
    const Windows across(left, left + columns - 1, SIZE, shape.stride, shape.padding, shape.Q);
    const bool has_pack = pack < shape.channels;
    const int pitch = across.count() * int(blockDim.x), thread = int(threadIdx.y);

    // Several threads share a column if there are enough.
    const int at_once = int(blockDim.y) / across.count(), column = thread % across.count();
    const int each = ceil_div(down.count(), at_once), begin = thread / across.count() * each;
    if (has_pack && begin < down.count()) {
        x += n * by.x_n + pack * LANES;
        find_winners<T, SIZE, LANES>(x, winners + begin * pitch + column * int(blockDim.x), pitch, down.first + begin,
                                     min(down.first + begin + each, down.last + 1), across.first + column, shape, by);
    }
    __syncthreads();

    const int part = ceil_div(rows, int(blockDim.y) / columns), from = thread / columns * part;
    if (has_pack && from < rows) {
        dy += n * by.y_n + pack * LANES;
        dx += (int64_t(n) * shape.H * shape.W * shape.channels + pack) * LANES;
        add_gradients<T, SIZE, MOST, LANES>(dy, dx, winners, pitch, down.first, across.first, top + from,
                                            top + min(from + part, rows), left + thread % columns, shape, by);
    }
}

// Windows that hold one of some neighbouring pixels, at most.
int64_t windows_of(int64_t pixels, int64_t size, int64_t stride, int64_t count) {
    return min(count, (pixels + size - 2) / stride + 1);
}

// x_n ... y_q are strides in elements, channels counts the packs of a pixel; P and Q are the rows and columns of dy.
extern "C" int max_pool2d_grad_by_winners(const void* x, const void* dy, void* dx, int64_t N, int64_t H, int64_t W,
                                          int64_t channels, int64_t x_n, int64_t x_h, int64_t x_w, int64_t y_n,
                                          int64_t y_p, int64_t y_q, int64_t size, int64_t P, int64_t Q, int64_t stride,
                                          int64_t padding, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const int64_t slabs = ceil_div<int64_t>(channels, SLAB), slab = ceil_div(channels, slabs);
        int64_t rows = min(H, int64_t(TILE)), columns = min(W, int64_t(TILE));
        while (windows_of(columns, size, stride, Q) > TILE) --columns;
        const int64_t line = windows_of(columns, size, stride, Q) * slab * int64_t(16 / sizeof(T));
        while (windows_of(rows, size, stride, P) * line > SHARED_BYTES) --rows;
        const int64_t down = ceil_div(H, rows), across = ceil_div(W, columns);
        rows = ceil_div(H, down), columns = ceil_div(W, across);  // tiles of nearly the same size
        const PoolShape shape = {int(H), int(W), int(P), int(Q), int(stride), int(padding), int(channels), int(slab),
                                 int(rows), int(columns), unsigned(slabs), unsigned(across), unsigned(down)};
        const PoolStrides by = {x_n, x_h, x_w, y_n, y_p, y_q};
        const dim3 grid(unsigned(N * down * across * slabs)), block{unsigned(slab), unsigned(THREADS / slab)};
        const size_t shared = windows_of(rows, size, stride, P) * line;
        record->set(grid, block, shared);
        const auto run = [&](auto kernel) {
            kernel<<<grid, block, shared, stream>>>(static_cast<const T*>(x), static_cast<const T*>(dy),
                                                    static_cast<T*>(dx), shape, by);
        };
        switch (size * 8 + ceil_div(size, stride)) {
            case 2 * 8 + 1: run(max_pool2d_grad_winners<T, 2, 1>); break;
            case 2 * 8 + 2: run(max_pool2d_grad_winners<T, 2, 2>); break;
            case 3 * 8 + 1: run(max_pool2d_grad_winners<T, 3, 1>); break;
            case 3 * 8 + 2: run(max_pool2d_grad_winners<T, 3, 2>); break;
            case 3 * 8 + 3: run(max_pool2d_grad_winners<T, 3, 3>); break;
        }
    });
}
