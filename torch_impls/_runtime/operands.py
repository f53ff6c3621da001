"""Checks that all operations make of their operands: dimensions, shapes, dtypes, devices, precisions and scales.

`check_arrays` ends with `check_supported` of this folder's `arguments.py`, which refuses what its framework does not
cover.

This file is the same in cuda_ref/, triton_kernels/, jax_impls/, torch_impls/ and numpy_impls/. Edit
cuda_ref/_runtime/operands.py and copy it to the others; a test compares them. Therefore it imports no framework.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeAlias

from .arguments import HAS_DEVICES, check_supported

Array: TypeAlias = Any
"""A tensor of torch, or an array of JAX (a traced one too) or NumPy."""
FLOAT8 = "float8_e4m3fn"
FLOAT64 = "float64"
PRECISIONS = {
    "float32": ("ieee", "tf32"),
    "float16": ("ieee",),
    "bfloat16": ("ieee",),
    FLOAT8: ("promoted", "fast"),
    FLOAT64: ("ieee",),
}
"""Dtypes of the operands, and the precisions of each. Only some functions take float8 and float64."""


def check_dims(operation: str, name: str, x: Array, symbols: tuple[str, ...]) -> tuple[int, ...]:
    """Checks that x has one dimension for each symbol. Returns its shape."""
    shape: tuple[int, ...] = x.shape
    if len(shape) != len(symbols):
        raise ValueError(f"{operation}: {name} must be {text_of(symbols)}; got {tuple(shape)}")
    return shape


def check_shape(
    operation: str, given: tuple[str, tuple[int, ...], tuple[str, ...]], name: str, x: Array, expected: tuple[Any, ...]
) -> None:
    """Checks that x has the expected shape; a symbol in it stands for any size.

    given: name, shape and symbols of the argument that determines the expected shape.
    """
    shape = x.shape
    if shape == expected:
        return
    if len(shape) == len(expected):
        for size, wanted in zip(shape, expected, strict=True):
            if size != wanted and not isinstance(wanted, str):
                break
        else:
            return
    source, known, symbols = given
    reason = f"{source} is {text_of(symbols)}={tuple(known)}"
    raise ValueError(f"{operation}: {reason}, so {name} must be {text_of(expected)}; got {tuple(shape)}")


def check_arrays(
    operation: str,
    arrays: dict[str, Array],
    scales: dict[str, Array | None] | None = None,
    *,
    precision: str | None = None,
    float8: bool = False,
    float64: bool = False,
) -> None:
    """Checks that all arrays have the dtype and the device of the first one. Checks its dtype, precision and scales.

    Args:
        operation: for the errors.
        arrays: the operands, by name.
        scales: by name; float32 of shape () for float8, else None.
        precision: None where the operation has none.
        float8, float64: whether that type is allowed.
    """
    first, x = next(iter(arrays.items()))
    dtype, kind = x.dtype, dtype_name(x.dtype)
    allowed = {FLOAT8: float8, FLOAT64: float64}
    if kind not in PRECISIONS or not allowed.get(kind, True):
        *others, last = (each for each in PRECISIONS if allowed.get(each, True))
        raise ValueError(f"{operation}: {first} must be {', '.join(others)} or {last}; got {kind}")
    for name, other in arrays.items():
        if other.dtype != dtype:
            raise ValueError(f"{operation}: {first} is {kind}, so {name} must be {kind}; got {dtype_name(other.dtype)}")
    if precision is not None and precision not in PRECISIONS[kind]:
        expected = " or ".join(map(repr, PRECISIONS[kind]))
        raise ValueError(f"{operation}: {first} is {kind}, so precision must be {expected}; got {precision!r}")
    for name, scale in (scales or {}).items():
        expected = "float32 of shape ()" if kind == FLOAT8 else "None"
        found = "None" if scale is None else f"{dtype_name(scale.dtype)} of shape {tuple(scale.shape)}"
        if found != expected:
            raise ValueError(f"{operation}: {first} is {kind}, so {name} must be {expected}; got {found}")
        if scale is not None:
            arrays[name] = scale
    check_devices(operation, first, x, arrays)
    check_supported(operation, arrays, precision)


def check_devices(operation: str, first: str, x: Array, others: dict[str, Array]) -> None:
    """Checks that all arrays of `others` are on the device of x. first: the name of x."""
    for name, other in others.items():
        if HAS_DEVICES and other.device != x.device:
            place = f"{first} is on {x.device}, so {name} must be on {x.device}"
            raise ValueError(f"{operation}: {place}; got {other.device}")


def dtype_name(dtype: Any) -> str:
    """Returns the name of a dtype of any framework, such as `float32`."""
    return str(dtype).removeprefix("torch.")


def text_of(sizes: Collection[int | str]) -> str:
    """Formats sizes as `(M, K)`, `(64, N)` or `(N,)`."""
    return f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"
