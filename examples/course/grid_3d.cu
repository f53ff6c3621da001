// A sum of two batches of matrices on a grid of three dimensions: batch, row and column.
#include "measure.h"

constexpr int BATCH = 3, ROWS = 50, COLUMNS = 70;

// Offset of element (b, m, n) in memory.
__host__ __device__ int64_t offset(int64_t b, int64_t m, int64_t n) { return (b * ROWS + m) * COLUMNS + n; }

__global__ void add(const float* x, const float* y, float* out) {
    const int n = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y * blockDim.y + threadIdx.y, b = blockIdx.z;
    if (m >= ROWS || n >= COLUMNS) return;
    out[offset(b, m, n)] = x[offset(b, m, n)] + y[offset(b, m, n)];
}

int main() {
    emulated();
    constexpr int count = BATCH * ROWS * COLUMNS, bytes = count * sizeof(float);
    static float x[count], y[count], out[count];
    for (int i = 0; i < count; ++i) x[i] = i, y[i] = 2 * i;
    float *device_x = device_floats(count), *device_y = device_floats(count), *device_out = device_floats(count);
    check(cudaMemcpy(device_x, x, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    check(cudaMemcpy(device_y, y, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    const dim3 block(32, 8);
    const dim3 grid((COLUMNS + block.x - 1) / block.x, (ROWS + block.y - 1) / block.y, BATCH);
    add<<<grid, block>>>(device_x, device_y, device_out);
    check(cudaGetLastError(), "launch");
    check(cudaMemcpy(out, device_out, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
    int wrong = 0;
    for (int i = 0; i < count; ++i) wrong += out[i] != 3.0f * i;
    printf("grid %u x %u x %u: %d of %d elements are wrong\n", grid.x, grid.y, grid.z, wrong, count);
    return wrong != 0;
}
