// Whole programs with a fault each, and right ones that look alike: the argument is the name of one.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

static void CHECK(cudaError_t error) {
    if (error != cudaSuccess) printf("%s\n", cudaGetErrorString(error)), exit(3);
}

constexpr int N = 100;
static float host[N];
static float *a, *b;
__device__ float variable[N];

__global__ void copy(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
__global__ void sum(const float* x, float* total, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(total, x[i]);
}
__global__ void endless(int* x) {
    while (atomicCAS(x, 0, 1) != 0) {}
}
__device__ float deeper(const float* x, int i) {
    float own[64];
    for (int k = 0; k < 64; k++) own[k] = x[k] + i;
    return i < 0 ? own[0] : own[i % 64] + deeper(own, i + 1);
}
__global__ void recursion(const float* x, float* y) { y[0] = deeper(x, 0); }
__global__ void exchange(float* x) { atomicExch(x + threadIdx.x, 1.0f); }
struct Padded {
    char first;
    double second;
};
__global__ void fill_fields(Padded* x) { x[threadIdx.x].first = 1, x[threadIdx.x].second = 2; }
__global__ void copy_structures(const Padded* x, Padded* y) { y[threadIdx.x] = x[threadIdx.x]; }

static void upload() { CHECK(cudaMemcpy(a, host, sizeof host, cudaMemcpyHostToDevice)); }
static void run(const char* name) {
    const auto is = [name](const char* other) { return strcmp(name, other) == 0; };
    CHECK(cudaMalloc(&a, sizeof host));
    CHECK(cudaMalloc(&b, sizeof host));
    if (is("forgotten copy")) copy<<<1, N>>>(a, b, N);
    if (is("forgotten fill")) upload(), sum<<<1, N>>>(a, b, N);
    if (is("half a copy")) CHECK(cudaMemcpy(a, host, N, cudaMemcpyHostToDevice)), copy<<<1, N>>>(a, b, N);
    if (is("ignored")) upload(), copy<<<1, 2 * N>>>(a, b, 2 * N), cudaDeviceSynchronize(), exit(0);
    if (is("ignored threads")) copy<<<1, 2048>>>(a, b, N), exit(0);
    if (is("ignored grid")) copy<<<N / 1024, 1024>>>(a, b, N), exit(0);
    if (is("ignored bytes")) copy<<<1, 32, 1 << 16>>>(a, b, N), exit(0);
    if (is("host reads")) upload(), copy<<<1, N>>>(a, b, N), printf("%g\n", b[7]);
    if (is("host writes")) a[3] = 1;
    if (is("host pointer")) copy<<<1, N>>>(host, b, N);
    if (is("symbol as an argument")) upload(), copy<<<1, N>>>(a, variable, N);
    if (is("heap pointer")) copy<<<1, N>>>(static_cast<float*>(malloc(sizeof host)), b, N);
    if (is("wrong kind")) CHECK(cudaMemcpy(host, a, sizeof host, cudaMemcpyHostToDevice));
    if (is("from the device")) CHECK(cudaMemcpy(a, b, sizeof host, cudaMemcpyHostToDevice));
    if (is("too long")) CHECK(cudaMemcpy(host, a, 2 * sizeof host, cudaMemcpyDeviceToHost));
    if (is("symbol")) CHECK(cudaMemcpy(variable, host, sizeof host, cudaMemcpyHostToDevice));
    if (is("freed twice")) CHECK(cudaFree(a));
    if (is("freed twice")) CHECK(cudaFree(a));
    if (is("freed inside")) CHECK(cudaFree(a + 1));
    if (is("freed host")) CHECK(cudaFree(host));
    if (is("used after free")) CHECK(cudaFree(a)), copy<<<1, N>>>(a, b, N);
    if (is("endless")) CHECK(cudaMemset(a, 0, 4)), endless<<<1, 2>>>(reinterpret_cast<int*>(a));
    if (is("recursion")) upload(), recursion<<<1, 1>>>(a, b);
    if (is("right")) {
        upload(), copy<<<1, N>>>(a, b, N);
        CHECK(cudaMemset(a, 0, 4)), sum<<<1, N>>>(b, a, N);
        exchange<<<1, N>>>(b);
        void* address;
        CHECK(cudaGetSymbolAddress(&address, variable));
        CHECK(cudaMemcpy(address, b, sizeof host, cudaMemcpyDeviceToDevice));
        copy<<<1, 2048>>>(a, b, N);
        if (cudaGetLastError() == cudaSuccess) exit(4);
        float *managed, *pinned;
        CHECK(cudaMallocManaged(&managed, sizeof host));
        CHECK(cudaMallocHost(&pinned, sizeof host));
        for (int i = 0; i < N; i++) managed[i] = pinned[i] = i;
        copy<<<1, N>>>(managed, b, N), copy<<<1, N>>>(pinned, managed, N);
        printf("%g\n", managed[5]);
        Padded *x, *y, back[4];
        CHECK(cudaMalloc(&x, sizeof back));
        CHECK(cudaMalloc(&y, sizeof back));
        fill_fields<<<1, 4>>>(x), copy_structures<<<1, 4>>>(x, y);
        CHECK(cudaMemcpy(back, y, sizeof back, cudaMemcpyDeviceToHost));
        CHECK(cudaFree(x)), CHECK(cudaFree(y)), CHECK(cudaFree(managed)), CHECK(cudaFreeHost(pinned)), CHECK(cudaFree(nullptr));
    }
    CHECK(cudaGetLastError());
}

int main(int, char** names) { run(names[1]); }
