"""A gated linear unit's product: silu(a) b or gelu(a) b."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

from numpy_impls._runtime.contract import check_gated

LINEAR, CUBIC = math.sqrt(8.0 / math.pi), 0.044715


def gate(a: Float[np.ndarray, "M N"], activation: str) -> tuple[np.ndarray, np.ndarray | float]:
    """The sigmoid of w, and the derivative of w: w = a for silu, LINEAR (a + CUBIC a^3) for gelu."""
    w, slope = (a, 1.0) if activation == "silu" else (LINEAR * (a + CUBIC * a**3), LINEAR * (1 + 3 * CUBIC * a * a))
    return 1.0 / (1.0 + np.exp(-w)), slope


@np.errstate(over="ignore", under="ignore", invalid="ignore")
def silu_mul(
    a: Float[np.ndarray, "M N"], b: Float[np.ndarray, "M N"], *, activation: str = "silu"
) -> Float[np.ndarray, "M N"]:
    """y = a sigmoid(a) b, or gelu(a) b by the approximation with tanh: (1 + tanh(z)) / 2 is sigmoid(2 z).

    a and b (M, N), any strides; the result is row-major.
    float32, float16 or bfloat16; computed in float64 and rounded once. Raises ValueError for other arguments.
    """
    check_gated("silu_mul", a, b, activation=activation)
    wide = a.astype(np.float64, order="C")
    return (wide * gate(wide, activation)[0] * b.astype(np.float64)).astype(a.dtype)
