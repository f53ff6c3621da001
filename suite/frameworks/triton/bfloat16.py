"""Arithmetic of bfloat16 in Triton's interpreter, for users' files.

The interpreter holds bfloat16 numbers as 16-bit integers. It calculates with these integers, and truncates conversions
to bfloat16. As mended here, operands are widened to float32, and results are rounded to nearest even, as on a GPU.
Import this only after `Adapter.prepare` of Triton, in the interpreted mode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

CALCULATES = ("binary_op", "unary_op", "ternary_op", "create_fma", "create_rsqrt", "create_dot")
"""Methods of the interpreter that calculate. The last operand has the type of the result."""
ATOMICS = ("create_atomic_rmw", "create_atomic_cas")


def mend() -> None:
    """Mend the interpreter of this process."""
    for name in CALCULATES:
        setattr(InterpreterBuilder, name, _in_float32(getattr(InterpreterBuilder, name)))
    for name in ATOMICS:
        setattr(InterpreterBuilder, name, _refusing(getattr(InterpreterBuilder, name)))
    InterpreterBuilder.get_bf16 = lambda self, value: _narrow(np.array([value], np.float32))
    interpreter._convert_float = _converting(interpreter._convert_float)


def widened(bits: Any) -> Any:
    """The float32 numbers of bfloat16 numbers that are given as 16-bit integers."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def rounded(values: Any) -> Any:
    """The bfloat16 numbers nearest to float32 numbers, ties to even, as 16-bit integers."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    nearest = (bits.astype(np.uint64) + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(values), bits >> 16 | 0x40, nearest).astype(np.uint16)


def _narrow(values: Any) -> Any:
    return TensorHandle(rounded(values), tl.bfloat16)


def _is_bfloat16(operand: Any) -> bool:
    return isinstance(operand, TensorHandle) and operand.dtype == tl.bfloat16


def _in_float32(method: Callable[..., Any]) -> Callable[..., Any]:
    """`method` for bfloat16 operands too. Comparisons keep their truth values."""

    def call(self: Any, *operands: Any) -> Any:
        if not any(map(_is_bfloat16, operands)):
            return method(self, *operands)
        wide = [TensorHandle(widened(each.data), tl.float32) if _is_bfloat16(each) else each for each in operands]
        result = method(self, *wide)
        last = [each for each in operands if isinstance(each, TensorHandle)][-1]
        return _narrow(result.data) if _is_bfloat16(last) and result.data.dtype == np.float32 else result

    return call


def _refusing(method: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, *operands: Any) -> Any:
        if any(map(_is_bfloat16, operands)):
            raise NotImplementedError("Triton's interpreter has no atomic operations on bfloat16")
        return method(self, *operands)

    return call


def _converting(convert: Callable[..., Any]) -> Callable[..., Any]:
    """The interpreter's conversion of numbers, with right conversions between bfloat16 and float32."""

    def converted(data: Any, given: Any, wanted: Any, rounding_mode: Any) -> Any:
        if given == tl.bfloat16 and wanted == tl.float32:
            return widened(data).view(np.uint32)
        toward_zero = rounding_mode == interpreter._ir.ROUNDING_MODE.RTZ
        if given == tl.float32 and wanted == tl.bfloat16 and not toward_zero:
            return rounded(data)
        return convert(data, given, wanted, rounding_mode)

    return converted
