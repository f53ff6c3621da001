"""Stochastic arithmetic: each operation of PyTorch returns its result with random roundings.

    known = {}                      # shared by the runs of one reference, for speed alone
    with Perturbed(generator, amplification=1.0, precision="ieee", known=known):
        y = reference(x)            # x is float32: all results are float32 with random roundings
    unrounded(y)                    # y before its last rounding, in float64

An operation is computed in float64 from its stored operands. If the result's type cannot represent some element
exactly, each element gets a random error before it is rounded and stored:

    rounding     uniform within u |y|, with the unit roundoff u of the result's type
    sums         of n terms, in float32: the terms vary by u sqrt(n/3), the sum by u sqrt(n)/3, as in numerics/bounds.py
    functions    except sums, products, quotients and roots: another 4u of float32, which is two units in the last place
    tf32         the factors of products vary by the unit roundoff of tf32, the product by twice that

Norms and softmax are replaced by such operations; a batch norm is one step with errors as large (`batch_norm.py`).
Exact results, such as a maximum, a copy or a sum of small integers, stay exact. If the last operation is exact,
`unrounded` omits the rounding of the operation before it. An operation that was not exact in an earlier run of the same
reference is taken for inexact, and computed once. `amplification` multiplies all errors. Errors of an amplified
run, divided by it, also reveal a nearby change of slope, such as that of relu at 0.

Operations that write to their arguments (`add_`, `out=`, writes through views) compute from copies of their operands,
made before the write. Infinities and NaN have no error, and no error makes a finite number infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from suite.custom import batch_norm
from suite.custom.shadow import forget, is_known, known, remember
from suite.numerics.bounds import EXP_ULPS
from suite.numerics.dispatch import DispatchMode
from suite.numerics.formats import unit_roundoff

aten = torch.ops.aten
NARROW_TYPES = frozenset((torch.float32, torch.float16, torch.bfloat16))
FLOAT8_TYPES = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
WIDE = dict.fromkeys((*NARROW_TYPES, *FLOAT8_TYPES), torch.float64) | {torch.complex64: torch.complex128}
"""The types in which the truth is computed."""
U = unit_roundoff("float32")
ROUNDED_ONCE = frozenset(("add", "sub", "rsub", "mul", "div", "sqrt", "sum", "mean", "_to_copy", "copy"))
"""Functions whose only errors are those of their sums and one rounding; others have EXP_ULPS more."""
ADDS_ONE = frozenset(
    ("expm1", "log1p", "tanh", "gelu", "elu", "celu", "selu", "softplus", "mish", "log_sigmoid_forward")
)
"""Functions whose usual formulas add or subtract 1, and so lose digits of small results."""
ADDS_ONE_LIMIT = 8.0
"""Size of the argument beyond which such formulas lose no more digits."""
DRAWN = frozenset(("rand", "randn", "rand_like", "randn_like"))
DRAWN_IN_PLACE = frozenset(("uniform", "normal", "bernoulli", "exponential", "log_normal", "cauchy", "geometric"))
PRODUCTS = {
    "mm": (0, 1),
    "bmm": (0, 1),
    "mv": (0, 1),
    "dot": (0, 1),
    "addmm": (1, 2),
    "addmv": (1, 2),
    "baddbmm": (1, 2),
    "addbmm": (1, 2),
    "convolution": (0, 1),
}
"""Operations that sum products, with the positions of the factors among their arguments."""
SCANS = frozenset(("cumsum", "cumprod", "logcumsumexp"))


@dataclass(frozen=True)
class Inexact:
    """An operation that returned one new tensor of `dtype`, the sums of `terms` terms, and was not exact."""

    dtype: torch.dtype
    terms: int


Known = dict[tuple[int, Any], Inexact]
"""The operations of a run that are inexact, by their place in the run and their function."""


class Perturbed(DispatchMode):
    """While entered, in this thread, results of floating-point operations have random roundings."""

    def __init__(
        self, source: torch.Generator, amplification: float, precision: str, known: Known | None = None
    ) -> None:
        super().__init__()
        self._known, self._place = {} if known is None else known, 0
        self._source, self._amplification, self._tf32 = source, amplification, precision == "tf32"

    def __torch_dispatch__(
        self, func: Any, types: Sequence[Any], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in batch_norm.FORMS and _is_narrow(args[0]):
            return self._normalized(func, args, kwargs)
        if (parts := _decompositions().get(func)) is not None:
            with self:
                return parts(*args, **kwargs)
        if _is_view(func):
            return func(*args, **kwargs)
        given = [each for each in _leaves((args, kwargs)) if _is_narrow(each)]
        if not given or torch.Tag.nondeterministic_seeded in func.tags:
            result = func(*args, **kwargs)
            for each in filter(_is_tensor, _written(func, args, kwargs)):
                forget(each)
            return result
        self._place += 1
        inexact = self._known.get((self._place, func))
        if inexact is not None:
            return self._computed_once(func, args, kwargs, inexact)
        operands = _mapped(_copied, (args, kwargs)) if _writes(func) else (args, kwargs)
        given = [each for each in _leaves(operands) if _is_narrow(each)]
        wide = _computed(func, *_mapped(_widened, operands))
        result = func(*args, **kwargs)
        noisy: list[Any] | None = None
        terms = _terms(_name(func), args, next(filter(_is_tensor, wide), None))
        for position, (stored, exact) in enumerate(zip(_results(func, args, kwargs, result), wide, strict=True)):
            if not _is_narrow(stored) or stored.numel() == 0:
                continue
            unrounded = exact
            if bool(((exact.to(stored.dtype).to(exact.dtype) != exact) & ~exact.isnan()).any()):
                noisy = noisy or self._with_other_terms(func, operands, terms)
                exact = unrounded = self._with_other_rounding(noisy[position], func, given[0], stored.dtype, terms)
                if result is stored and not _writes(func):
                    self._known[self._place, func] = Inexact(stored.dtype, terms)
            elif any(map(is_known, given)):  # an exact operation, such as relu, on a rounded operand
                unrounded = _computed(func, *_mapped(_before_rounding, operands))[position]
            stored.copy_(exact)
            remember(stored, unrounded)
        return result

    def _computed_once(self, func: Any, args: Any, kwargs: Any, inexact: Inexact) -> torch.Tensor:
        """The result of an inexact operation with random errors, without its exact result or that of the library."""
        (noisy,) = self._with_other_terms(func, (args, kwargs), inexact.terms)
        given = next(each for each in _leaves((args, kwargs)) if _is_narrow(each))
        found = self._with_other_rounding(noisy, func, given, inexact.dtype, inexact.terms)
        stored: torch.Tensor = found.to(inexact.dtype)
        remember(stored, found)
        return stored

    def _with_other_terms(self, func: Any, operands: tuple[Any, Any], terms: int) -> list[Any]:
        """The results with random errors in terms and factors, as large as another order of addition makes."""
        (args, kwargs), factors = operands, PRODUCTS.get(_name(func), ())
        scale = U * math.sqrt(terms / 3.0) / math.sqrt(max(len(factors), 1)) if terms > 1 else 0.0
        if self._tf32 and factors and args[factors[0]].dtype is torch.float32:
            scale = math.hypot(scale, unit_roundoff("tf32") / math.sqrt(3.0))
        varied = set(factors) or set(range(len(args)))

        def vary(value: Any) -> Any:
            wide = _widened(value)
            if _is_narrow(value):
                wide.addcmul_(wide, self._noise(wide), value=scale * self._amplification * math.sqrt(3.0))
            return wide

        moved = [_mapped(vary if i in varied and scale else _widened, each) for i, each in enumerate(args)]
        return _computed(func, moved, _mapped(_widened, kwargs))

    def _with_other_rounding(
        self, value: torch.Tensor, func: Any, given: torch.Tensor, dtype: torch.dtype, terms: int
    ) -> torch.Tensor:
        name = _name(func)
        relative = unit_roundoff(str(dtype.to_real()).removeprefix("torch."))
        if name not in ROUNDED_ONCE and name not in PRODUCTS:
            relative += 2.0 * EXP_ULPS * U
        relative = math.hypot(relative, U * math.sqrt(terms / 3.0)) if terms > 1 else relative
        if self._tf32 and name in PRODUCTS:
            relative += 2.0 * unit_roundoff("tf32")
        size = value.abs() * relative
        if name in ADDS_ONE:
            size += 2.0 * U * (1.0 + given.abs().to(torch.float64).clamp_(max=ADDS_ONE_LIMIT))
        return self._moved(value, size, dtype)

    def _moved(self, value: torch.Tensor, size: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """The values with random errors of at most `size`. Neither makes a finite number of `dtype` infinite."""
        largest = torch.finfo(dtype).max
        moved = torch.addcmul(value, size, self._noise(value), value=self._amplification)
        if not moved.is_complex():
            moved.clamp_(-largest, largest)
        return torch.where(value.abs() <= largest, moved, value)

    def _normalized(self, func: Any, args: Any, kwargs: Any) -> tuple[torch.Tensor, ...]:
        """The results of a batch norm with random errors. Running values get theirs."""
        found = batch_norm.normalized(func, args, kwargs, lambda like: self._noise(like) * self._amplification)
        for name, new in found.running.items():
            position = [each.name for each in func._schema.arguments].index(name)
            stored = args[position] if position < len(args) else kwargs[name]
            value = self._moved(new, new.abs() * U, stored.dtype)
            stored.copy_(value)
            remember(stored, value)
        unrounded = self._moved(found.y, found.size, args[0].dtype)
        y = unrounded.to(args[0].dtype)
        remember(y, unrounded)
        saved = [each.to(torch.float32) for each in found.saved] or [args[0].new_empty(0)] * 2
        return (y, *saved)

    def _noise(self, like: torch.Tensor) -> torch.Tensor:
        """Random numbers, uniform within -1 and 1, in the shape of `like`."""
        source = self._source
        drawn = torch.empty(like.shape, dtype=torch.float32, device=source.device).uniform_(-1.0, 1.0, generator=source)
        return drawn.to(like.device, like.dtype)


class InFloat64(DispatchMode):
    """While entered, in this thread, everything is computed and stored in float64, whichever type the code requests."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[Any], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags and (drawn := _drawn(func, args, kwargs or {})) is not None:
            return drawn
        if _writes(func) or (_is_view(func) and func is not aten.lift_fresh.default):
            return func(*args, **_mapped(_wide_type, kwargs or {}))
        args, kwargs = _mapped(_widened_in_place, (args, kwargs or {}))
        return func(*args, **kwargs)


def _drawn(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor | None:
    """Random numbers in float64 that are drawn in float32, as in a kernel; None if `func` draws none.

    A generator with the same seed gives other numbers in float64: the truth would have another mask of dropout.
    """
    name = _name(func)
    if name in DRAWN_IN_PLACE and func._schema.name.endswith("_") and args[0].dtype is torch.float64:
        return args[0].copy_(func(args[0].float(), *args[1:], **kwargs))
    if name in DRAWN and "out" not in kwargs:
        return _widened(func(*args, **{**kwargs, "dtype": kwargs.get("dtype") or torch.float32}))
    return None


def unrounded(result: torch.Tensor) -> torch.Tensor:
    """A result of `Perturbed` in its widest type, before its last rounding if that is known."""
    found = known(result)
    return result.to(WIDE.get(result.dtype, result.dtype)) if found is None else found


def _mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """The arguments of an operation, each changed. torch's own functions for trees take several times as long."""
    if isinstance(value, tuple):
        return tuple([_mapped(change, each) for each in value])
    if isinstance(value, list):
        return [_mapped(change, each) for each in value]
    if isinstance(value, dict):
        return {name: _mapped(change, each) for name, each in value.items()}
    return change(value)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return _leaves(list(value.values()))
    return [leaf for each in value for leaf in _leaves(each)] if isinstance(value, tuple | list) else [value]


def _before_rounding(value: Any) -> Any:
    """`_widened` of the unrounded value if that is known, else of the value."""
    found = known(value) if _is_narrow(value) else None
    return _widened(value) if found is None else found


def _copied(value: Any) -> Any:
    """A copy of a tensor, with its known values before rounding; any other value unchanged."""
    if not isinstance(value, torch.Tensor):
        return value
    copy = value.clone()
    found = known(value) if _is_narrow(value) else None
    if found is not None:
        remember(copy, found)
    return copy


def _computed(func: Any, args: Any, kwargs: Any) -> list[Any]:
    """The results of an operation on arguments that it may write to."""
    return _results(func, args, kwargs, func(*args, **kwargs))


def _results(func: Any, args: Any, kwargs: Any, returned: Any) -> list[Any]:
    """All results of an operation: the arguments that it has written to, and its other return values."""
    kinds = func._schema.returns
    several = returned if len(kinds) > 1 else (returned,)
    own = [each for each, kind in zip(several, kinds, strict=False) if not _is_written(kind)]
    return [*_written(func, args, kwargs), *_leaves(own)]


def _written(func: Any, args: Any, kwargs: Any) -> list[Any]:
    """The arguments that an operation writes to."""
    if not _writes(func):
        return []
    named = {each.name: value for each, value in zip(func._schema.arguments, args, strict=False)} | kwargs
    found: list[Any] = _leaves([named.get(each.name) for each in func._schema.arguments if _is_written(each)])
    return found


def _is_written(value: Any) -> bool:
    """True for an argument or a return value of a schema that the operation writes to."""
    return value.alias_info is not None and value.alias_info.is_write


@cache
def _name(func: Any) -> str:
    """The name of an operation, the same for its forms with and without `out`, and in place."""
    return str(func.overloadpacket.__name__).rstrip("_")


def _terms(name: str, args: Sequence[Any], result: torch.Tensor | None) -> int:
    """Number of terms that each element of a result sums; 1 for an operation without a sum."""
    if name in PRODUCTS:
        if name == "convolution":
            weight, transposed, groups = args[1], args[6], args[8]
            kernel = weight.shape[2:].numel()
            return int(kernel * (weight.shape[0] // groups if transposed else weight.shape[1]))
        first = args[PRODUCTS[name][0]]
        return int(first.shape[-1] * (first.shape[0] if name == "addbmm" else 1))
    tensors = [each for each in args if isinstance(each, torch.Tensor)]
    if not tensors or result is None:
        return 1
    largest: torch.Tensor = max(tensors, key=lambda each: each.numel())
    if name in SCANS:
        return int(largest.shape[args[1]]) if len(args) > 1 and isinstance(args[1], int) and largest.ndim else 1
    if name in ("nll_loss_forward", "nll_loss2d_forward"):
        return int(largest.numel() // max(1, largest.shape[1] if largest.ndim > 1 else 1))
    return int(max(1, largest.numel() // max(1, result.numel())))


@cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    """Operations that are replaced by simpler ones, each of which rounds."""
    from torch._decomp import get_decompositions

    found: dict[Any, Callable[..., Any]] = get_decompositions(
        [
            aten._softmax,
            aten._log_softmax,
            aten.native_layer_norm,
            aten.native_group_norm,
            aten._fused_rms_norm,
        ]
    )
    return found


@cache
def _is_view(func: Any) -> bool:
    """True if the operation writes no numbers, and its result shares the memory of an argument."""
    aliases = [each.alias_info for each in func._schema.returns if each.alias_info is not None]
    return torch.Tag.inplace_view in func.tags or (bool(aliases) and not any(each.is_write for each in aliases))


@cache
def _writes(func: Any) -> bool:
    return bool(func._schema.is_mutable)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _is_narrow(value: Any) -> bool:
    narrow = isinstance(value, torch.Tensor) and value.layout is torch.strided
    return narrow and (value.dtype in NARROW_TYPES or value.dtype is torch.complex64)


def _wide_type(value: Any) -> Any:
    return WIDE.get(value, value) if isinstance(value, torch.dtype) else value


def _widened(value: Any) -> Any:
    """A float64 copy of a tensor, float64 for a narrower dtype, complex128 for complex numbers; any other value
    unchanged."""
    if isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex()):
        return value.to(WIDE.get(value.dtype, value.dtype), copy=True)
    return _wide_type(value)


def _widened_in_place(value: Any) -> Any:
    return value.to(WIDE[value.dtype]) if _is_narrow(value) else _wide_type(value)
