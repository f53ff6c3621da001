"""Rows over their root mean square as codes of 8 bits, and a scale for each group of them."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from numpy_impls._runtime.contract import check_codes, check_norm
from numpy_impls.quantize import Codes, Scales, coded


@np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore")
def rms_norm_quantize(
    x: Float[np.ndarray, "M N"],
    weight: Float[np.ndarray, N],
    *,
    eps: float,
    group: str = "row",
    to: str = "float8_e4m3fn",
) -> tuple[Codes, Scales]:
    """(codes, scales) of y = rms_norm(x, weight): scale = max |y| / 448 (int8: 127), at least 2^-126; code = y / scale.

    x (M, N), weight (N,), any strides; the results are row-major. A group is a row, 128 columns of it, or 128 x 128.
    float32, float16 or bfloat16; computed in float64 from the rounded scale. NaN becomes 0 in int8. Raises ValueError
    for other arguments.
    """
    _, N = check_norm("rms_norm_quantize", x, weight=weight)
    rows, columns = check_codes("rms_norm_quantize", N, group=group, to=to)
    wide = x.astype(np.float64)
    mean = np.sum(wide * wide, axis=1, keepdims=True) / max(N, 1)
    return coded(wide / np.sqrt(mean + eps) * weight.astype(np.float64), rows, columns, to)
