"""Codes of 8 bits, and a scale for each group of them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from jaxtyping import Float, Num

from numpy_impls._runtime.contract import LARGEST_CODE, LEAST_SCALE, check_quantize

Codes = Num[np.ndarray, "M N"]
Scales = Float[np.ndarray, "G_M G_N"]


def coded(wide: Float[np.ndarray, "M N"], rows: int, columns: int, to: str) -> tuple[Codes, Scales]:
    """The codes and scales of a float64 matrix."""
    M, N = wide.shape
    padded = np.pad(np.abs(wide), ((0, -M % rows), (0, -N % columns)))
    largest = padded.reshape(padded.shape[0] // rows, rows, padded.shape[1] // columns, columns).max(axis=(1, 3))
    scales = np.maximum(largest / LARGEST_CODE[to], LEAST_SCALE).astype(np.float32)
    quotient = wide / scales.astype(np.float64).repeat(rows, 0)[:M].repeat(columns, 1)[:, :N]
    codes: Any = np.nan_to_num(np.rint(quotient)).astype(np.int8) if to == "int8" else quotient
    return np.ascontiguousarray(codes.astype(np.int8 if to == "int8" else ml_dtypes.float8_e4m3fn)), scales


@np.errstate(invalid="ignore")
def quantize(x: Float[np.ndarray, "M N"], *, group: str = "row", to: str = "float8_e4m3fn") -> tuple[Codes, Scales]:
    """(codes, scales): scale = max |x| / 448 (int8: 127) of a group, at least 2^-126; code = x / scale, rounded.

    x (M, N), any strides; the results are row-major. A group is a row, 128 columns of it, or 128 x 128.
    float32, float16 or bfloat16; computed in float64 from the rounded scale. NaN becomes 0 in int8. Raises ValueError
    for other arguments.
    """
    rows, columns = check_quantize(x, group=group, to=to)
    return coded(x.astype(np.float64), rows, columns, to)
