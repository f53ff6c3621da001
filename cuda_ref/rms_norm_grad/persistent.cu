// The gradients of rms_norm: blocks that stay on the device take the rows in turn, read x and dy once, and keep their sums
// of the weight's gradient in registers. The kernel is in common/norm_grads.cuh.
#include "common/norm_grads.cuh"

extern "C" int rms_norm_grad_persistent(const void* x, const void* weight, const void* dy, void* dx, void* dweight,
                                void* partial, int64_t m, int64_t n, int64_t x_m, int64_t dy_m, float eps,
                                int64_t blocks, int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    return norm_grads<false>(x, weight, dy, dx, dweight, nullptr, static_cast<float*>(partial), m, n, x_m, dy_m, eps, blocks,
                             dtype, stream, record);
}
