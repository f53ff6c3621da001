"""Number formats: element types and their bytes, significant bits, exponents, units in the last place.

Nothing here imports torch before it receives a tensor: the command line reads the tables of names.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

DTYPES: dict[str, int] = {"float32": 4, "float16": 2, "bfloat16": 2}
"""Element types of every operation and implementation, with their bytes."""

DTYPES_BEYOND: dict[str, int] = {"float8_e4m3fn": 1, "float64": 8}
"""Element types that only some operations and implementations declare. A case has one only if it is named."""

DOUBLE = "float64"
"""The type of exact results, which may also be the type of a case."""

SHORT: dict[str, str] = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
SHORT |= {"float8_e4m3fn": "fp8", "float64": "fp64"}
"""Short names of dtypes, as the command line takes them and tables show them."""

RESULT_BYTES: dict[str, int] = {
    **{"float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1},
    **{"int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8},
}
"""Further element types that the results of a user's operation may have, with their bytes. Booleans are judged as
uint8, complex numbers as pairs."""

OUTPUT_DTYPES: dict[str, str] = {"float8_e4m3fn": "bfloat16"}
"""The output's type where it is not the type of the inputs."""

PRECISIONS: dict[str, str] = {
    "ieee": "products and sums in float32, in float64 for float64 (products of 16-bit inputs are exact there)",
    "tf32": "products of inputs rounded to tf32 (11 significant bits), sums in float32",
    "promoted": "float8: tensor cores sum at most 128 products with 14 bits; these sums are added in float32",
    "fast": "float8: tensor cores add all products, with 14 bits; weights of attention are rounded to float8",
}
"""Precisions, by the name that `--precision` takes."""

SIGNIFICANT_BITS = {"float32": 24, "tf32": 11, "float16": 11, "bfloat16": 8, "float8_e4m3fn": 4}
SIGNIFICANT_BITS |= {"float64": 53, "float8_e5m2": 3, "float8_e4m3fnuz": 4, "float8_e5m2fnuz": 3}
"""Bits of the significand, the implicit first one included."""
MIN_EXPONENT = {"float32": -126, "tf32": -126, "float16": -14, "bfloat16": -126, "float8_e4m3fn": -6}
MIN_EXPONENT |= {"float64": -1022, "float8_e5m2": -14, "float8_e4m3fnuz": -7, "float8_e5m2fnuz": -15}
"""Exponent of the smallest normal number."""
MAX_FINITE = {
    "float32": (2.0 - 2.0**-23) * 2.0**127,
    "float16": 65504.0,
    "bfloat16": (2.0 - 2.0**-7) * 2.0**127,
    "float8_e4m3fn": 448.0,
    "float64": (2.0 - 2.0**-52) * 2.0**1023,
    "float8_e5m2": 57344.0,
    "float8_e4m3fnuz": 240.0,
    "float8_e5m2fnuz": 57344.0,
}
"""Largest finite number. The largest bit pattern of float8_e4m3fn is NaN, so its largest number is 1.75 * 2^8."""
FLOAT64_EXPONENT = 0x7FF << 52


def full_name(dtype: str) -> str:
    """Expand `bf16` to `bfloat16`; return any other name as it is."""
    return next((name for name, short in SHORT.items() if dtype == short), dtype)


def element_bytes(dtype: str) -> int:
    """Return the bytes of one element of a type of DTYPES, DTYPES_BEYOND or RESULT_BYTES."""
    return (DTYPES | DTYPES_BEYOND | RESULT_BYTES)[dtype]


def is_integer(dtype: str) -> bool:
    """True for a type of whole numbers. Its results are compared exactly."""
    return dtype not in SIGNIFICANT_BITS


def max_finite(dtype: str) -> float:
    """Return the largest finite number of a type; infinity for integers, which have no infinity."""
    return math.inf if is_integer(dtype) else MAX_FINITE[dtype]


def unit_roundoff(kind: str) -> float:
    """Return the largest relative rounding error: float32 2^-24, float16 and tf32 2^-11, bfloat16 2^-8."""
    return 2.0 ** -SIGNIFICANT_BITS[kind]


def working(dtype: str) -> str:
    """Return the type in which right kernels compute with operands of `dtype`: float64 for float64, else float32."""
    return DOUBLE if dtype == DOUBLE else "float32"


def is_narrow(dtype: str) -> bool:
    """True if right kernels compute in a wider type, and so may also round results in between to `dtype`."""
    return dtype != working(dtype)


def half_smallest(dtype: str) -> float:
    """Return the largest absolute error of rounding to nearest below the normal range."""
    return max(2.0 ** (MIN_EXPONENT[dtype] - SIGNIFICANT_BITS[dtype]), math.ulp(0.0))  # float64 has no half of its own


def ulp(value: torch.Tensor, dtype: str) -> torch.Tensor:
    """Return the distance between neighbours of `dtype` at `value` (float64); constant below the normal range; 1 for
    integers."""
    import torch

    if is_integer(dtype):
        return torch.ones_like(value, dtype=torch.float64)

    power = (value.view(torch.int64) & FLOAT64_EXPONENT).view(torch.float64)  # the power of two at or below |value|
    return power.clamp_(min=2.0 ** MIN_EXPONENT[dtype]).mul_(2.0 ** (1 - SIGNIFICANT_BITS[dtype]))
