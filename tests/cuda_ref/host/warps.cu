// Shuffles, votes and reductions of a warp.
#include "common.cuh"

__global__ void shuffles(const int* in, const int* from, int* out, int width, unsigned mask) {
    const int t = threadIdx.x;
    if (!(mask >> (t % 32) & 1)) return;
    const int x = in[t], k = from[t];
    int* mine = out + t * 8;
    mine[0] = __shfl_sync(mask, x, k, width);
    mine[1] = __shfl_up_sync(mask, x, 3, width);
    mine[2] = __shfl_down_sync(mask, x, 3, width);
    mine[3] = __shfl_xor_sync(mask, x, 5, width);
    mine[4] = __ballot_sync(mask, x % 2);
    mine[5] = __any_sync(mask, x == 4);
    mine[6] = __all_sync(mask, x < 900);
    mine[7] = __match_any_sync(mask, x % 3);
}
extern "C" int shuffle(const int* in, const int* from, int* out, int64_t width, int64_t mask, int64_t n,
                       cudaStream_t stream, LaunchRecord* record) {
    record->set(1, n);
    shuffles<<<1, n, 0, stream>>>(in, from, out, width, unsigned(mask));
    return cudaGetLastError();
}

// Sums in all types of shuffles, in the two halves of a warp, which diverge and converge.
__global__ void warp_sums(float* out) {
    const int t = threadIdx.x, lane = t % 32;
    float f = t;
    double d = t;
    long long l = t;
    __half h = __float2half_rn(lane);
    __half2 h2 = __floats2half2_rn(lane, 2 * lane);
    if (lane < 16) {
        for (int k = 8; k; k /= 2) f += __shfl_xor_sync(0xffffu, f, k);
        for (int k = 8; k; k /= 2) d += __shfl_down_sync(0xffffu, d, k, 16);
    } else {
        for (int k = 8; k; k /= 2) l += __shfl_xor_sync(0xffff0000u, l, k);
        for (int k = 8; k; k /= 2) h = __hadd(h, __shfl_xor_sync(0xffff0000u, h, k));
        f = float(l), d = __half2float(h);
    }
    __syncwarp();
    for (int k = 16; k; k /= 2) h2 = __hadd2(h2, __shfl_xor_sync(0xffffffffu, h2, k));
    out[t * 4] = f;
    out[t * 4 + 1] = float(d);
    out[t * 4 + 2] = __low2float(h2);
    out[t * 4 + 3] = __high2float(h2);
}
extern "C" int warp_sum(float* out, cudaStream_t stream, LaunchRecord* record) {
    record->set(1, 96);
    warp_sums<<<1, 96, 0, stream>>>(out);
    return cudaGetLastError();
}

__global__ void reductions(int* out) {
    const int t = threadIdx.x, x = (t * 37) % 64 - 20;
    int* mine = out + t * 7;
    mine[6] = __popc(__activemask());
    mine[0] = __reduce_add_sync(0xffffffffu, x);
    mine[1] = __reduce_min_sync(0xffffffffu, x);
    mine[2] = __reduce_max_sync(0xffffffffu, x);
    mine[3] = __reduce_and_sync(0xffffffffu, unsigned(x | 8));
    mine[4] = __reduce_or_sync(0xffffffffu, unsigned(1 << t % 8));
    mine[5] = __reduce_xor_sync(0xffffffffu, unsigned(x));
}
extern "C" int reduce(int* out, cudaStream_t stream, LaunchRecord* record) {
    record->set(1, 64);
    reductions<<<1, 64, 0, stream>>>(out);
    return cudaGetLastError();
}
