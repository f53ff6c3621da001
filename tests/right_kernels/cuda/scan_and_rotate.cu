// Prefix sums by a Hillis-Steele scan of each chunk of a row, with the total of the chunks before carried on; and rotary
// embeddings, a thread a pair. 16-bit types are computed in float32.
#include "common.cuh"

constexpr int CHUNK = 128;

template <typename T>
__global__ void prefix_sums(const T* x, T* y, int64_t n, int64_t stride_m, int64_t stride_n) {
    __shared__ float temp[2][CHUNK];
    __shared__ float carry;
    const int tid = threadIdx.x;
    const int64_t row = blockIdx.x;
    if (tid == 0) carry = 0.0f;
    __syncthreads();
    for (int64_t begin = 0; begin < n; begin += CHUNK) {
        const int64_t j = begin + tid;
        int in = 0;
        temp[0][tid] = j < n ? to_float(x[row * stride_m + j * stride_n]) : 0.0f;
        __syncthreads();
        for (int offset = 1; offset < CHUNK; offset *= 2) {
            temp[in ^ 1][tid] = temp[in][tid] + (tid >= offset ? temp[in][tid - offset] : 0.0f);
            in ^= 1;
            __syncthreads();
        }
        const float before = carry, last = temp[in][CHUNK - 1];
        if (j < n) y[row * n + j] = from_float<T>(before + temp[in][tid]);
        __syncthreads();
        if (tid == 0) carry = before + last;
        __syncthreads();
    }
}

template <typename T>
__global__ void rotate(const T* x, const T* cosines, const T* sines, T* out, int64_t S, int64_t H, int64_t D,
                       int64_t x_b, int64_t x_s, int64_t x_h, bool neighbours, float sign, int64_t pairs) {
    for (int64_t at = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; at < pairs;
         at += int64_t(gridDim.x) * blockDim.x) {
        const int64_t half = D / 2, i = at % half, h = at / half % H, s = at / half / H % S, b = at / half / H / S;
        const int64_t first = neighbours ? 2 * i : i, second = neighbours ? 2 * i + 1 : i + half;
        const T* from = x + b * x_b + s * x_s + h * x_h;
        T* to = out + ((b * S + s) * H + h) * D;
        const float c = to_float(cosines[s * half + i]), w = sign * to_float(sines[s * half + i]);
        const float x1 = to_float(from[first]), x2 = to_float(from[second]);
        to[first] = from_float<T>(x1 * c - x2 * w);
        to[second] = from_float<T>(x2 * c + x1 * w);
    }
}

extern "C" int cumsum(const void* x, void* y, int64_t m, int64_t n, int64_t stride_m, int64_t stride_n, int64_t dtype,
                      cudaStream_t stream, LaunchRecord* record) {
    record->set(unsigned(m), CHUNK);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        prefix_sums<T><<<unsigned(m), CHUNK, 0, stream>>>((const T*)x, (T*)y, n, stride_m, stride_n);
    });
}

extern "C" int rope(const void* q, const void* k, const void* cos, const void* sin, void* q_out, void* k_out,
                    int64_t B, int64_t S, int64_t H, int64_t H_kv, int64_t D, int64_t q_b, int64_t q_s, int64_t q_h,
                    int64_t k_b, int64_t k_s, int64_t k_h, int64_t neighbours, int64_t inverse, int64_t dtype,
                    cudaStream_t stream, LaunchRecord* record) {
    const float sign = inverse ? -1.0f : 1.0f;
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        const auto launch = [&](const void* x, void* out, int64_t heads, int64_t x_b, int64_t x_s, int64_t x_h) {
            const int64_t pairs = B * S * heads * D / 2, blocks = ceil_div<int64_t>(pairs, 128);
            if (pairs == 0) return;
            const dim3 grid(unsigned(blocks < 1024 ? blocks : 1024));
            record->set(grid, 128);
            rotate<T><<<grid, 128, 0, stream>>>((const T*)x, (const T*)cos, (const T*)sin, (T*)out, S, heads, D, x_b,
                                                x_s, x_h, neighbours != 0, sign, pairs);
        };
        launch(q, q_out, H, q_b, q_s, q_h);
        launch(k, k_out, H_kv, k_b, k_s, k_h);
    });
}
