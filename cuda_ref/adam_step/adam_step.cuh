// The arithmetic of a step of Adam for one parameter, in float32.
#pragma once

#include <cmath>

#include "common/common.cuh"

// The factors of a step, computed in double on the host: 1 - beta2 in float32 would lose half of its digits.
struct AdamFactors {
    float beta1, rest1, beta2, rest2;  // rest = 1 - beta
    float rate;                        // lr over the correction of m
    float root_factor;                 // 1 over the root of the correction of v
    float eps;
    float decay;  // decoupled: the factor of the parameter; else the weight of the parameter in its gradient
    bool decoupled;

    AdamFactors(int64_t step, double lr, double beta1, double beta2, double eps, double weight_decay, bool decoupled)
        : beta1(float(beta1)),
          rest1(float(1.0 - beta1)),
          beta2(float(beta2)),
          rest2(float(1.0 - beta2)),
          rate(float(lr / (1.0 - std::pow(beta1, double(step))))),
          root_factor(float(1.0 / std::sqrt(1.0 - std::pow(beta2, double(step))))),
          eps(float(eps)),
          decay(float(decoupled ? 1.0 - lr * weight_decay : weight_decay)),
          decoupled(decoupled) {}
};

// Updates a parameter and its moments in place.
__device__ __forceinline__ void adam_update(float& param, float grad, float& m, float& v, const AdamFactors& by) {
    if (by.decoupled) {
        param *= by.decay;
    } else {
        grad += by.decay * param;
    }
    m = by.beta1 * m + by.rest1 * grad;
    v = by.beta2 * v + by.rest2 * grad * grad;
    param -= by.rate * (m / (sqrtf(v) * by.root_factor + by.eps));
}
