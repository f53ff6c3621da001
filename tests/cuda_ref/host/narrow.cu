// __half and __nv_bfloat16: conversions and arithmetic.
#include "common.cuh"

template <typename T>
__global__ void widen_all(const T* in, float* out) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    out[i] = to_float(in[i]);
}
template <typename T>
__global__ void narrow_all(const float* in, T* out, int64_t n) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) out[i] = from_float<T>(in[i]);
}
extern "C" int widen(const void* in, float* out, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    record->set(256, 256);
    return by_dtype(dtype, [&](auto zero) {
        widen_all<<<256, 256, 0, stream>>>(static_cast<const decltype(zero)*>(in), out);
    });
}
extern "C" int narrow(const float* in, void* out, int64_t n, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(ceil_div<int64_t>(n, 256));
    record->set(grid, 256);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        narrow_all<T><<<grid, 256, 0, stream>>>(in, static_cast<T*>(out), n);
    });
}

template <typename T, typename T2>
__device__ void operations(T x, T y, T z, T2 xy, T2 yz, T* out) {
    out[0] = x + y, out[1] = x - y, out[2] = x * y, out[3] = x / y, out[4] = -x;
    out[5] = __hadd(x, y), out[6] = __hsub(x, y), out[7] = __hmul(x, y), out[8] = __hfma(x, y, z);
    out[9] = __hmax(x, y), out[10] = __hmin(x, y), out[11] = __habs(x), out[12] = __hneg(x);
    const T2 sum = __hadd2(xy, yz), product = __hmul2(xy, yz), fused = __hfma2(xy, yz, xy);
    out[13] = sum.x, out[14] = sum.y, out[15] = product.x, out[16] = product.y, out[17] = fused.x, out[18] = fused.y;
    out[19] = x < y ? x : y, out[20] = __hge(x, y) ? x : y, out[21] = x == x && !__hisnan(x) ? x : y;
    x += y, y *= x;
    out[22] = x, out[23] = y;
}
__global__ void half_operations(const __half* in, __half* out) {
    const __half x = in[threadIdx.x * 3], y = in[threadIdx.x * 3 + 1], z = in[threadIdx.x * 3 + 2];
    operations(x, y, z, __halves2half2(x, y), __halves2half2(y, z), out + threadIdx.x * 24);
}
__global__ void bfloat_operations(const __nv_bfloat16* in, __nv_bfloat16* out) {
    const __nv_bfloat16 x = in[threadIdx.x * 3], y = in[threadIdx.x * 3 + 1], z = in[threadIdx.x * 3 + 2];
    operations(x, y, z, __halves2bfloat162(x, y), __halves2bfloat162(y, z), out + threadIdx.x * 24);
}
extern "C" int operate(const void* in, void* out, int64_t n, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    record->set(1, n);
    if (dtype == FLOAT16)
        half_operations<<<1, n, 0, stream>>>(static_cast<const __half*>(in), static_cast<__half*>(out));
    else
        bfloat_operations<<<1, n, 0, stream>>>(static_cast<const __nv_bfloat16*>(in), static_cast<__nv_bfloat16*>(out));
    return cudaGetLastError();
}
