"""The sigmoid in few instructions: device functions for float32 and for 16-bit results."""

import triton
import triton.language as tl

from triton_kernels._runtime.interpreter import INTERPRET


@triton.jit
def reciprocal(x):
    """1 / x within one ulp, if x and 1 / x are normal numbers. It is one instruction; 1.0 / x compiles to six."""
    if INTERPRET:
        return 1.0 / x
    else:
        return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1)


@triton.jit
def sigmoid_float32(x):
    """1 / (1 + exp(-x)) within 1.96 ulp (measured over every float32), in twenty instructions.

    exp(-x) = 2**k * exp(f), |f| <= ln(2) / 2 (Cody and Waite); ln(2) is split so that k * (its high part) is exact.
    Both terms of the denominator carry a factor of 2**-32: exp(-x) alone overflows where the result is not yet 0.
    """
    # A product with -1.0 becomes the sign bit of an operand; Triton 3.6 compiles -x as 0 - x, one more instruction.
    x = tl.clamp(x, -104.0, 30.0, propagate_nan=tl.PropagateNan.ALL)  # beyond: 0 or 1
    shifted = tl.fma(x, -1.4426950216293335, 12582912.0)  # 1.5 * 2**23: rounds to k, which is left in the low bits
    k = shifted - 12582912.0
    f = tl.fma(k, -0.693145751953125, x * -1.0)
    f = tl.fma(k, -1.428606765330187e-06, f)
    p = tl.fma(f, 0.0013814540579915047, 0.00836874544620514)  # exp(f) - 1 = f + f**2 p(f), minimax of degree 4
    p = tl.fma(p, f, 0.04166838899254799)
    p = tl.fma(p, f, 0.1666652113199234)
    p = tl.fma(p, f, 0.4999999403953552)
    p = tl.fma(f * f, p, f)
    scale = ((shifted.to(tl.int32, bitcast=True) << 23) + ((127 - 32) << 23)).to(tl.float32, bitcast=True)
    e = tl.fma(scale, p, scale)  # 2**-32 * exp(-x)

    # A Newton step with the residual of the unrounded denominator. Only the last product can be subnormal.
    r = reciprocal(e + 2.0**-32)
    residual = tl.fma(e * -1.0, r, tl.fma(r, -(2.0**-32), 1.0))
    return tl.fma(r, residual, r) * 2.0**-32


@triton.jit
def sigmoid_16_bit(x):
    """1 / (1 + exp(-x)) with relative error 2**-17, below the rounding of 16-bit types, in five instructions.

    The factor of 2**-16 in the denominator keeps it from overflowing, and its reciprocal from being flushed to zero,
    until the result is below bfloat16's smallest subnormal.
    """
    return reciprocal(tl.exp2(tl.fma(x, -1.4426950216293335, -16.0)) + 2.0**-16) * 2.0**-16


@triton.jit
def sigmoid_of(x):
    """Sigmoid of a block, by the formula for its dtype."""
    if x.dtype == tl.float32:
        return sigmoid_float32(x)
    else:
        return sigmoid_16_bit(x.to(tl.float32))
