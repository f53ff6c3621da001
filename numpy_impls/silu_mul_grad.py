"""The gradients of a gated linear unit's product."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from numpy_impls._runtime.contract import check_gated
from numpy_impls.silu_mul import gate

Matrix = Float[np.ndarray, "M N"]


@np.errstate(over="ignore", under="ignore", invalid="ignore")
def silu_mul_grad(a: Matrix, b: Matrix, dy: Matrix, *, activation: str = "silu") -> tuple[Matrix, Matrix]:
    """(da, db): gradients of the sum of dy * y, where y is the `silu_mul` of a and b.

    With the gate s = sigmoid(w): da = dy b (s + a w' s (1 - s)), db = dy a s.
    float32, float16 or bfloat16; computed in float64 and rounded once. Raises ValueError for other arguments.
    """
    check_gated("silu_mul_grad", a, b, dy, activation=activation)
    wide, b, dy = (each.astype(np.float64, order="C") for each in (a, b, dy))
    s, slope = gate(wide, activation)
    return (dy * b * (s + wide * slope * s * (1.0 - s))).astype(a.dtype), (dy * wide * s).astype(a.dtype)
