"""Functions of `libdevice` for Triton's interpreter, which has none. Import this only in the interpreted mode."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as cuda_libdevice
from triton.runtime.interpreter import TensorHandle


def _each(function: Callable[[float], float]) -> Callable[[Any], Any]:
    """`function` of a number for arrays."""
    return lambda x: np.vectorize(function, otypes=[x.dtype])(x)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in ("sqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p")},
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "arctan2", "hypot", "cbrt")},
    **{name: getattr(np, name) for name in ("floor", "ceil", "trunc", "rint", "fmod", "copysign", "abs")},
    **{f"fast_{name}f": getattr(np, name) for name in ("sin", "cos", "tan", "tanh", "exp", "log", "log2", "log10")},
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "atan2": np.arctan2,
    "pow": np.power,
    "fast_powf": np.power,
    "fast_dividef": np.divide,
    "div_rn": np.divide,
    "sqrt_rn": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "rsqrt_rn": lambda x: 1 / np.sqrt(x),
    "rcp_rn": lambda x: 1 / x,
    "fma": lambda x, y, z: x * y + z,
    "round": lambda x: np.trunc(x + np.copysign(0.5, x)),
    "erf": _each(math.erf),
    "erfc": _each(math.erfc),
    "lgamma": _each(math.lgamma),
    "tgamma": _each(math.gamma),
}
"""The functions of floating-point numbers, by name, for NumPy's arrays."""
TESTS: Mapping[str, Callable[..., Any]] = {"isnan": np.isnan, "isinf": np.isinf, "finitef": np.isfinite}
"""The functions that return a truth value, as a 32-bit integer."""


def provide() -> None:
    """Put the functions in place of those that need a GPU. Those that are not here raise `NotImplementedError`."""
    for module in (libdevice, cuda_libdevice):
        for name in _functions_of(libdevice):
            setattr(module, name, _interpreted(name))


def _functions_of(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]


def _interpreted(name: str) -> Callable[..., Any]:
    def call(*operands: Any, **_: Any) -> Any:
        if (function := FUNCTIONS.get(name) or TESTS.get(name)) is None:
            raise NotImplementedError(f"Triton's interpreter has no libdevice.{name}")
        first = next(each for each in operands if isinstance(each, tl.tensor))
        kind = tl.int32 if name in TESTS else first.dtype
        arrays = [each.handle.data if isinstance(each, tl.tensor) else each for each in operands]
        data = np.asarray(function(*arrays), np.int32 if name in TESTS else first.handle.data.dtype)
        return tl.tensor(TensorHandle(data, kind), tl.block_type(kind, first.shape) if first.type.is_block() else kind)

    return call
