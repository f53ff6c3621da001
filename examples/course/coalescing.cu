// The same number of elements, read at growing distances: the memory delivers 32 bytes for each access far apart.
#include "measure.h"

__global__ void copy(const float* x, float* out, int64_t count, int64_t distance) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) out[i] = x[i * distance];
}

int main() {
    const int64_t count = emulated() ? 1 << 12 : 1 << 24;
    const int64_t largest = 32;
    float *x = device_floats(count * largest), *out = device_floats(count);
    printf("%-20s %12s %20s\n", "floats from lane to", "us", "GB/s of used bytes");
    for (int64_t distance = 1; distance <= largest; distance *= 2) {
        const double us =
            microseconds([&] { copy<<<unsigned((count + 255) / 256), 256>>>(x, out, count, distance); });
        printf("%-20ld %12.1f %20.0f\n", long(distance), us, us > 0 ? 8e-3 * count / us : 0.0);
    }
    return 0;
}
