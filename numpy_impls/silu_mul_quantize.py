"""The product of a gated linear unit as codes of 8 bits, and a scale for each group of them."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from numpy_impls._runtime.contract import check_codes, check_gated
from numpy_impls.quantize import Codes, Scales, coded
from numpy_impls.silu_mul import gate


@np.errstate(over="ignore", under="ignore", invalid="ignore")
def silu_mul_quantize(
    a: Float[np.ndarray, "M N"], b: Float[np.ndarray, "M N"], *, group: str = "row", to: str = "float8_e4m3fn"
) -> tuple[Codes, Scales]:
    """(codes, scales) of y = a sigmoid(a) b: scale = max |y| / 448 (int8: 127), at least 2^-126; code = y / scale.

    a and b (M, N), any strides; the results are row-major. A group is a row, 128 columns of it, or 128 x 128.
    float32, float16 or bfloat16; computed in float64 from the rounded scale. NaN becomes 0 in int8. Raises ValueError
    for other arguments.
    """
    _, N = check_gated("silu_mul_quantize", a, b, activation="silu")
    rows, columns = check_codes("silu_mul_quantize", N, group=group, to=to)
    wide = a.astype(np.float64)
    return coded(wide * gate(wide, "silu")[0] * b.astype(np.float64), rows, columns, to)
