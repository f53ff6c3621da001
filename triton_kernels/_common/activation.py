"""The gates of gated linear units: act(a) = a * sigmoid(w) with w = a (silu), or a polynomial of a (gelu by tanh)."""

import triton
import triton.language as tl

from triton_kernels._common.sigmoid import sigmoid_16_bit, sigmoid_float32


@triton.jit
def gate_of(x, ACTIVATION: tl.constexpr):
    """The sigmoid of w in float32, as precise as a result of x's type needs; (1 + tanh(z)) / 2 is sigmoid(2 z)."""
    w = x.to(tl.float32)
    if ACTIVATION == "gelu_tanh":
        w = w * tl.fma(w * 0.07135481627260025, w, 1.5957691216057308)  # sqrt(8 / pi) (w + 0.044715 w^3)
    if x.dtype == tl.float32:
        return sigmoid_float32(w)
    else:
        return sigmoid_16_bit(w)


@triton.jit
def slope_of(a, s, ACTIVATION: tl.constexpr):
    """act'(a) = s + a w' s (1 - s), for float32 a and its gate s."""
    steep = a
    if ACTIVATION == "gelu_tanh":
        steep = a * tl.fma(a * 0.21406444881780074, a, 1.5957691216057308)  # a sqrt(8 / pi) (1 + 3 * 0.044715 a^2)
    return tl.fma(steep * s, 1.0 - s, s)
