"""Shared by the launchers for tensor cores: checks, copies of operands, and the arguments of their kernels."""

from typing import Any

from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.products import check_int4_matmul
from cuda_ref.hopper.layouts import find_tma_layout
from cuda_ref.hopper.pitched import pitched
from cuda_ref.matmul._limits import check_sizes

CHUNK = 32
"""Codes in 16 bytes."""


def checked(x: Tensor, weight: Tensor, scale: Tensor, zero: Tensor | None) -> tuple[int, int, int]:
    """Raises the errors that the launchers document. Returns M, N and K."""
    sizes = check_int4_matmul(x, weight, scale, zero)
    check_sizes(sizes, 30, "int4_matmul")
    return sizes


def copies(x: Tensor, weight: Tensor) -> dict[str, bool]:
    """The operands, by name, and whether they are copied.

    A row that is not copied is contiguous, begins at a multiple of 16 bytes, and has whole chunks of 16 bytes.
    """
    whole = x.shape[1] % CHUNK == 0
    return {"x": not whole or _stride(x) is None, "weight": not whole or _stride(weight) is None}


def arguments(x: Tensor, weight: Tensor, scale: Tensor, zero: Tensor | None, out: Tensor) -> tuple[Any, ...]:
    """The arguments that all kernels begin with."""
    sizes = (*out.shape, x.shape[1])
    copied = copies(x, weight)
    x, weight = (pitched((each, 1))[0] if copied[name] else each for name, each in (("x", x), ("weight", weight)))
    of_zero = scale if zero is None else zero
    strides = (_stride(x), _stride(weight), *scale.stride(), *of_zero.stride())
    return (x, weight, scale, zero, out, *sizes, *strides, build.DTYPES[x.dtype])


def _stride(x: Tensor) -> int | None:
    """Elements from one row to the next; None for rows that are not contiguous at multiples of 16 bytes."""
    found = find_tma_layout(x, 1, k_major_only=True)
    return None if found is None else found[1]
