// Kernels with one pattern each, for the comparison of counters with Nsight Compute's. A program: it runs each once.
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>

constexpr int N = 1 << 16;  // elements
constexpr int SIDE = 256;   // N = SIDE * SIDE

__global__ void copy(const float* a, float* b) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    b[i] = a[i];
}

__global__ void add_guarded(const float* a, float* b) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N - 1000) b[i] = a[i] + 1.0f;
}

__global__ void stride_2(const float* a, float* b) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    b[i] = a[i * 2 % N];
}

__global__ void stride_32(const float* a, float* b) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    b[i] = a[i * 32 % N];
}

__global__ void shifted(const float* a, float* b) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    b[i] = a[(i + 1) % N];
}

__global__ void vectors_of_4(const float4* a, float4* b) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const float4 x = a[i];
    b[i] = make_float4(x.x + 1, x.y + 1, x.z + 1, x.w + 1);
}

__global__ void one_for_all(const float* a, float* b) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    b[i] = a[blockIdx.x];
}

__global__ void transpose(const float* a, float* b) {
    const int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    b[column * SIDE + row] = a[row * SIDE + column];
}

template <int PITCH>
__device__ void transpose_by_tile(const float* a, float* b) {
    __shared__ float tile[32 * PITCH];
    tile[threadIdx.y * PITCH + threadIdx.x] = a[(blockIdx.y * 32 + threadIdx.y) * SIDE + blockIdx.x * 32 + threadIdx.x];
    __syncthreads();
    b[(blockIdx.x * 32 + threadIdx.y) * SIDE + blockIdx.y * 32 + threadIdx.x] = tile[threadIdx.x * PITCH + threadIdx.y];
}
__global__ void transpose_tiled(const float* a, float* b) { transpose_by_tile<32>(a, b); }
__global__ void transpose_padded(const float* a, float* b) { transpose_by_tile<33>(a, b); }

__global__ void shared_pairs(const float* a, float* b) {
    __shared__ float pairs[512];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    pairs[2 * threadIdx.x] = a[i];
    __syncthreads();
    b[i] = pairs[2 * (255 - threadIdx.x)];
}

__global__ void shared_vectors(const float4* a, float4* b) {
    __shared__ float4 tile[256];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = a[i];
    __syncthreads();
    b[i] = tile[255 - threadIdx.x];
}

__global__ void tree_sum(const float* a, float* b) {
    __shared__ float s[256];
    s[threadIdx.x] = a[blockIdx.x * blockDim.x + threadIdx.x];
    __syncthreads();
    for (int k = 128; k > 0; k /= 2) {
        if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) b[blockIdx.x] = s[0];
}

__global__ void tree_sum_interleaved(const float* a, float* b) {
    __shared__ float s[256];
    s[threadIdx.x] = a[blockIdx.x * blockDim.x + threadIdx.x];
    __syncthreads();
    for (int k = 1; k < 256; k *= 2) {
        if (threadIdx.x % (2 * k) == 0) s[threadIdx.x] += s[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) b[blockIdx.x] = s[0];
}

__global__ void rounds_by_lane(const float* a, float* b) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
#pragma unroll 1
    for (int k = 0; k <= threadIdx.x % 32; k++) sum += a[(i + k * 1024) % N];
    b[i] = sum;
}

__global__ void histogram(const float* a, int* b) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(b + int(a[i] * 64.0f) % 64, 1);
}

__global__ void matmul_uncoalesced(const float* a, const float* b, float* c) {
    const int row = blockIdx.x * 32 + threadIdx.x, column = blockIdx.y * 32 + threadIdx.y;
    float sum = 0;
    for (int k = 0; k < SIDE; k++) sum += a[row * SIDE + k] * b[k * SIDE + column];
    c[row * SIDE + column] = sum;
}

__global__ void matmul_naive(const float* a, const float* b, float* c) {
    const int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    float sum = 0;
    for (int k = 0; k < SIDE; k++) sum += a[row * SIDE + k] * b[k * SIDE + column];
    c[row * SIDE + column] = sum;
}

__global__ void matmul_tiled(const float* a, const float* b, float* c) {
    __shared__ float as[32][32], bs[32][32];
    const int x = threadIdx.x, y = threadIdx.y, column = blockIdx.x * 32 + x, row = blockIdx.y * 32 + y;
    float sum = 0;
    for (int k = 0; k < SIDE; k += 32) {
        as[y][x] = a[row * SIDE + k + x];
        bs[y][x] = b[(k + y) * SIDE + column];
        __syncthreads();
        for (int i = 0; i < 32; i++) sum += as[y][i] * bs[i][x];
        __syncthreads();
    }
    c[row * SIDE + column] = sum;
}

__global__ void matmul_register_tiles(const float* a, const float* b, float* c) {  // 4 x 4 elements a thread
    __shared__ float as[64][17], bs[16][64];
    const int t = threadIdx.x, x = t % 16, y = t / 16, row = blockIdx.y * 64, column = blockIdx.x * 64;
    float sum[4][4] = {};
    for (int k = 0; k < SIDE; k += 16) {
        for (int i = 0; i < 4; i++) as[t / 16 + 16 * i][t % 16] = a[(row + t / 16 + 16 * i) * SIDE + k + t % 16];
        for (int i = 0; i < 4; i++) bs[t / 64 + 4 * i][t % 64] = b[(k + t / 64 + 4 * i) * SIDE + column + t % 64];
        __syncthreads();
        for (int j = 0; j < 16; j++) {
            float of_a[4], of_b[4];
#pragma unroll
            for (int i = 0; i < 4; i++) of_a[i] = as[y + 16 * i][j], of_b[i] = bs[j][x + 16 * i];
#pragma unroll
            for (int i = 0; i < 16; i++) sum[i / 4][i % 4] += of_a[i / 4] * of_b[i % 4];
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 16; i++) c[(row + y + 16 * (i / 4)) * SIDE + column + x + 16 * (i % 4)] = sum[i / 4][i % 4];
}

int main() {
    float *a, *b, *c;
    for (float** each : {&a, &b, &c})
        if (cudaMalloc(each, N * sizeof(float)) != cudaSuccess || cudaMemset(*each, 0, N * sizeof(float)) != cudaSuccess)
            return 1;
    const dim3 tiles(SIDE / 32, SIDE / 32), tile(32, 32);
    copy<<<N / 256, 256>>>(a, b);
    add_guarded<<<N / 256, 256>>>(a, b);
    stride_2<<<N / 256, 256>>>(a, b);
    stride_32<<<N / 256, 256>>>(a, b);
    shifted<<<N / 256, 256>>>(a, b);
    vectors_of_4<<<N / 1024, 256>>>((const float4*)a, (float4*)b);
    one_for_all<<<N / 256, 256>>>(a, b);
    transpose<<<tiles, tile>>>(a, b);
    transpose_tiled<<<tiles, tile>>>(a, b);
    transpose_padded<<<tiles, tile>>>(a, b);
    shared_pairs<<<N / 256, 256>>>(a, b);
    shared_vectors<<<N / 1024, 256>>>((const float4*)a, (float4*)b);
    tree_sum<<<N / 256, 256>>>(a, b);
    tree_sum_interleaved<<<N / 256, 256>>>(a, b);
    rounds_by_lane<<<N / 256, 256>>>(a, b);
    histogram<<<N / 256, 256>>>(a, (int*)c);
    matmul_uncoalesced<<<tiles, tile>>>(a, b, c);
    matmul_naive<<<tiles, tile>>>(a, b, c);
    matmul_tiled<<<tiles, tile>>>(a, b, c);
    matmul_register_tiles<<<dim3(SIDE / 64, SIDE / 64), 256>>>(a, b, c);
    const cudaError_t error = cudaDeviceSynchronize();
    if (error != cudaSuccess) fprintf(stderr, "%s\n", cudaGetErrorString(error));
    return error != cudaSuccess;
}
