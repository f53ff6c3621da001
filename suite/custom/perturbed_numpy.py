"""Stochastic arithmetic for references in NumPy: `perturbed.py` for arrays.

`Rounded` arrays store numbers of a narrower type as float64, and carry that type. Universal functions, matrix products
and NumPy functions built from these compute in float64, add a random error to inexact results, and round.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from suite.numerics.bounds import EXP_ULPS
from suite.numerics.formats import MIN_EXPONENT, SIGNIFICANT_BITS, unit_roundoff

U = unit_roundoff("float32")
ROUNDED_ONCE = frozenset((np.add, np.subtract, np.multiply, np.divide, np.sqrt, np.matmul))
PRODUCTS = frozenset(("dot", "inner", "vdot", "tensordot", "einsum"))
"""Functions of NumPy that sum products without calling universal functions."""


class Rounded(np.ndarray[Any, np.dtype[np.float64]]):
    """An array of numbers of the type `kind`; `amplification` multiplies all errors."""

    kind: str
    amplification: float
    source: np.random.Generator
    unrounded: Any = None
    """The result of an operation before its rounding; None once the array has been written to."""

    def __setitem__(self, index: Any, value: Any) -> None:
        self.unrounded = None
        super().__setitem__(index, value)

    def astype(self, dtype: Any, *args: Any, **kwargs: Any) -> Any:
        """A `Rounded` array for another floating-point type; a plain array for any other type."""
        if np.dtype(dtype).kind != "f" or str(dtype) == "float64":
            return self.copy() if np.dtype(dtype).kind == "f" else _plain(self).astype(dtype, *args, **kwargs)
        exact = _plain(self)
        found = self._stored(exact, exact, unit_roundoff(np.dtype(dtype).name), np.dtype(dtype).name)
        return found

    def __array_finalize__(self, other: Any) -> None:
        if isinstance(other, Rounded):
            self.kind, self.amplification, self.source = other.kind, other.amplification, other.source

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", ())
        if kwargs.get("dtype") is not None:
            kwargs["dtype"] = _wide(kwargs["dtype"])
        plain = [_plain(each) for each in inputs]

        def computed(operands: list[Any]) -> tuple[Any, ...]:
            """The results, or the changed first operand of `ufunc.at`, without a write to any argument."""
            if method == "at":
                operands = [operands[0].copy(), *operands[1:]]
            given = {"out": tuple(None if each is None else _plain(each).copy() for each in out)} if out else {}
            found = getattr(ufunc, method)(*operands, **kwargs, **given)
            return (operands[0],) if method == "at" else found if isinstance(found, tuple) else (found,)

        exact = computed(plain)
        terms = _terms(ufunc, method, plain, exact[0])
        noisy = exact
        if terms > 1:
            scale = U * math.sqrt(terms) / (math.sqrt(2.0) if ufunc is np.matmul else 1.0)
            noisy = computed([self._varied(each, scale) for each in plain])
        relative = unit_roundoff(self.kind) + (0.0 if ufunc in ROUNDED_ONCE else 2.0 * EXP_ULPS * U)
        relative = math.hypot(relative, U * math.sqrt(terms / 3.0)) if terms > 1 else relative
        found = [
            self._stored(one, other, relative) if _is_wide(np.asarray(one)) else one
            for one, other in zip(exact, noisy, strict=True)
        ]
        if method == "at":
            _write(inputs[0], found[0], None)
            return None
        found = [_write(place, each, each) for place, each in zip(out or (None,) * len(found), found, strict=True)]
        return tuple(found) if len(found) > 1 else found[0]

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func.__name__ not in PRODUCTS:
            return super().__array_function__(func, types, args, kwargs)
        plain = [_plain(each) for each in args]
        exact = np.asarray(func(*plain, **kwargs))
        sizes = [each.size for each in plain if isinstance(each, np.ndarray)]
        terms = max(2, round(math.sqrt(math.prod(sizes) / max(1, exact.size))))
        noisy = np.asarray(func(*(self._varied(each, U * math.sqrt(terms / 2.0)) for each in plain), **kwargs))
        return self._stored(exact, noisy, math.hypot(unit_roundoff(self.kind), U * math.sqrt(terms / 3.0)))

    def _varied(self, value: Any, scale: float) -> Any:
        return value * (1.0 + self._noise(value) * (scale * self.amplification)) if _is_wide(value) else value

    def _stored(self, exact: Any, noisy: Any, relative: float, kind: str = "") -> Rounded:
        """`noisy` with a random error of size `relative`, rounded; or `exact`, if the type represents all of it."""
        kind = kind or self.kind
        with np.errstate(all="ignore"):
            moved = noisy + np.abs(noisy) * relative * self._noise(noisy) * self.amplification
            other = np.where(np.isfinite(noisy), moved, noisy)
            unrounded = np.asarray(exact if np.array_equal(_round(exact, kind), exact, equal_nan=True) else other)
            found: Rounded = _round(unrounded, kind).view(Rounded)
        found.kind, found.amplification, found.source, found.unrounded = (
            kind,
            self.amplification,
            self.source,
            unrounded,
        )
        return found

    def _noise(self, like: Any) -> Any:
        return self.source.uniform(-1.0, 1.0, np.shape(like))


def before_rounding(array: Any) -> Any:
    """The numbers of a result before their rounding; the present numbers where the array has changed since."""
    stored, known = np.array(_plain(array)), getattr(array, "unrounded", None)
    if known is None or np.shape(known) != stored.shape:
        return stored
    return np.where(_round(known, array.kind) == stored, known, stored)


def rounded(array: np.ndarray[Any, Any], kind: str, amplification: float, source: np.random.Generator) -> Any:
    """A float64 array of numbers of the type `kind` as `Rounded`; any other array unchanged."""
    if not _is_wide(array):
        return array
    found = array.copy().view(Rounded)
    found.kind, found.amplification, found.source = kind, amplification, source
    return found


def _write(place: Any, value: Any, result: Any) -> Any:
    """Write `value` to the array `place` and return it; return `result` if there is no such array."""
    if place is None:
        return result
    _plain(place)[...] = _plain(value)
    if isinstance(place, Rounded):
        place.unrounded = getattr(value, "unrounded", None)
    return place


def _round(value: Any, kind: str) -> Any:
    """`value` rounded to the precision of `kind`, in float64; numbers beyond its range do not overflow."""
    bits = SIGNIFICANT_BITS[kind]
    _, exponent = np.frexp(value)
    step = np.ldexp(1.0, np.maximum(exponent - bits, MIN_EXPONENT[kind] + 1 - bits))
    return np.where(np.isfinite(value), np.round(value / step) * step, value)


def _terms(ufunc: Any, method: str, inputs: list[Any], result: Any) -> int:
    """Number of terms that each element of a result sums; 1 for an operation without a sum."""
    if ufunc is np.matmul:
        return int(inputs[0].shape[-1])
    if method == "__call__":
        return 1
    if method == "accumulate":
        return int(max(inputs[0].shape, default=1))
    return int(max(1, inputs[0].size // max(1, np.size(result))))


def _plain(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, Rounded) else value


def _is_wide(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.float64


def _wide(dtype: Any) -> Any:
    return np.float64 if np.dtype(dtype).kind == "f" else dtype
