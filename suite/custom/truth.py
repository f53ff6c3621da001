"""The exact result of a user's reference, and the allowed error of each element.

The reference in float64 is the truth. The bound comes from many runs in the case's type with random roundings
(`perturbed.py`), unless the file states a tolerance. docs/agreement.md describes the limits of such a bound.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from suite.core.errors import SuiteError, UsageError
from suite.custom.about import Facts
from suite.custom.attention import FusedAttention
from suite.custom.perturbed import InFloat64, Perturbed, unrounded
from suite.custom.program import Program, make_on_meta_or, single_tensor
from suite.numerics.bounds import MARGIN, limit, student_deviations
from suite.numerics.formats import MAX_FINITE
from suite.numerics.weak_bound import WeakBound, weak_bound
from suite.problem.case import Case

RUNS, FEW_RUNS, MANY_ELEMENTS = 32, 16, 2**25
"""Runs with random roundings; FEW_RUNS for results with more than MANY_ELEMENTS elements."""
AMPLIFICATIONS = (1.0, 2.0, 4.0, 8.0)
JUMP = 2.0
"""An error of more than JUMP times the bound from all runs is a discontinuity, such as that of round at 1/2: a rounding
may move a right result across it."""
MAX_ERROR = MAX_FINITE["float32"]
"""Largest error of a run. Runs with an infinity or NaN where the truth is a number do not count there."""
REPEAT_TOLERANCE = 1e-9
"""Largest difference of two float64 runs, relative to the largest element, of a reference that is not random."""

Tensors = tuple[torch.Tensor, ...]


def exact(program: Program, case: Case, inputs: Tensors) -> torch.Tensor:
    """The result of the reference for `inputs`, in float64."""
    function = program.function(case, torch.float64, inputs[0].device)
    wide = [each.to(torch.float64 if each.is_floating_point() else each.dtype, copy=True) for each in inputs]
    with _plain_operations(torch.float64), InFloat64():
        result = function(*wide)
    return single_tensor(result, program.source.name).to(inputs[0].device, torch.float64).contiguous()


def refuse_random(program: Program, case: Case, inputs: Tensors, value: torch.Tensor) -> None:
    """Raise `SuiteError` for a reference whose results differ from call to call."""
    again = exact(program, case, inputs)
    difference = (again - value).abs().nan_to_num(0.0, 0.0, 0.0)
    if difference.numel() and float(difference.max()) > REPEAT_TOLERANCE * float(
        value.abs().nan_to_num(0.0, 0.0, 0.0).max()
    ):
        raise SuiteError(
            f"{program.source.name}: the reference gives other results for the same inputs, in float64 too: "
            "does it draw random numbers, as dropout does in training?"
        )


def allowed(program: Program, case: Case, inputs: Tensors, value: torch.Tensor, dtype: str) -> torch.Tensor:
    """The largest allowed error of each element of a result of type `dtype`."""
    tolerance = program.stated("tolerance", case)
    if tolerance is not None:
        relative, absolute = _tolerances(tolerance, case, program.source.name)
        return value.abs().mul_(relative).add_(absolute)
    runs = RUNS if value.numel() <= MANY_ELEMENTS else FEW_RUNS
    squares, farthest, counts = (torch.zeros_like(value) for _ in range(3))
    for error, amplification in _errors(program, case, inputs, value, runs):
        counts += error.isfinite()
        error = error.nan_to_num_(0.0, 0.0)
        torch.maximum(farthest, error, out=farthest)
        squares.addcmul_(error, error, value=amplification**-2)
    error = squares.div_(counts.clamp_(min=1)).sqrt_().mul_(student_deviations(value.numel(), runs))
    bound = limit(torch.where(farthest > JUMP * error, farthest, error), value, dtype)
    return bound if program.framework == "numpy" else bound.maximum(_own_error(program, case, inputs, value) * MARGIN)


def weakness(
    program: Program, case: Case, inputs: Tensors, value: torch.Tensor, bound: torch.Tensor, dtype: str
) -> WeakBound | None:
    """Why a bound of `allowed` says little; None if it tells."""
    derived = program.framework == "torch" and program.stated("tolerance", case) is None
    return weak_bound(value, bound, _own_error(program, case, inputs, value) if derived else None, dtype)


def _errors(
    program: Program, case: Case, inputs: Tensors, value: torch.Tensor, runs: int
) -> Iterator[tuple[torch.Tensor, float]]:
    """The errors of each run before its last rounding, and the amplification of its roundings."""
    run = _numpy_run(program, case, inputs) if program.framework == "numpy" else _torch_run(program, case, inputs)
    for number in range(runs):
        amplification = AMPLIFICATIONS[number % len(AMPLIFICATIONS)]
        yield _error(run(amplification), value), amplification


def _error(result: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """The absolute errors of a float64 result, at most MAX_ERROR; NaN where the result or the truth is not finite."""
    return torch.where(result.isfinite() & value.isfinite(), (result - value).abs_().clamp_(max=MAX_ERROR), math.nan)


def _own_error(program: Program, case: Case, inputs: Tensors, value: torch.Tensor) -> torch.Tensor:
    """The errors of the unchanged reference in the case's type: a library may round more than the formula."""
    function = program.function(case, getattr(torch, case.dtype), value.device)
    with _plain_operations(torch.float32):
        result = single_tensor(function(*(each.clone() for each in inputs)), program.source.name)
    return _error(result.double(), value).nan_to_num_(0.0)


def _torch_run(program: Program, case: Case, inputs: Tensors) -> Callable[[float], torch.Tensor]:
    """A function that runs the reference with random roundings, and returns its result before the last one."""
    device = inputs[0].device
    source = torch.Generator(device).manual_seed(0)

    def run(amplification: float) -> torch.Tensor:
        function = program.function(case, getattr(torch, case.dtype), device)  # anew: a model may change its state
        perturbed = Perturbed(source, amplification, case.precision)
        with _plain_operations(torch.float32), FusedAttention(), perturbed:
            return unrounded(single_tensor(function(*(each.clone() for each in inputs)), program.source.name))

    return run


def _numpy_run(program: Program, case: Case, inputs: Tensors) -> Callable[[float], torch.Tensor]:
    """`_torch_run` for a reference in NumPy."""
    from suite.custom.perturbed_numpy import before_rounding, rounded
    from suite.custom.reference import in_float64

    source, function = np.random.default_rng(0), program.native(case)

    def run(amplification: float) -> torch.Tensor:
        result = function(*(rounded(in_float64(each), case.dtype, amplification, source) for each in inputs))
        found = single_tensor(before_rounding(result), program.source.name)
        return found.to(inputs[0].device, torch.float64)

    return run


@contextlib.contextmanager
def _plain_operations(dtype: torch.dtype) -> Iterator[None]:
    """While open, no gradients are recorded, and operations that libraries fuse run as simpler ones."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    libraries = torch.backends.mkldnn, torch.backends.cudnn
    before, enabled = torch.get_default_dtype(), [each.enabled for each in libraries]
    torch.set_default_dtype(dtype)
    try:
        for each in libraries:
            each.enabled = False
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.set_default_dtype(before)
        for each, value in zip(libraries, enabled, strict=True):
            each.enabled = value


def _tolerances(given: Any, case: Case, name: str) -> tuple[float, float]:
    """The relative and the absolute tolerance, from one number or a pair, or from a mapping of these by dtype."""
    if isinstance(given, Mapping):
        given = given.get(case.dtype)
    pair = given if isinstance(given, tuple | list) else (given, given)
    if len(pair) != 2 or not all(isinstance(each, int | float) and 0 <= each < math.inf for each in pair):
        raise UsageError(
            f"{name}: tolerance must be a number, a pair (relative, absolute), or these by dtype; "
            f"got {given!r} for {case.dtype}"
        )
    return float(pair[0]), float(pair[1])


def facts(program: Program, case: Case, device: torch.device) -> Facts:
    """The facts of a case, from a run on tensors without memory, or on `device` if the reference needs values."""

    def made(on: torch.device) -> Facts:
        values = program.draw(case, 0, on)
        tensors = tuple(each for each in values if isinstance(each, torch.Tensor))
        if not tensors:
            raise UsageError(f"{program.source.name}: the inputs have no tensor or array")
        counter = FlopCounterMode(display=False)
        with torch.no_grad(), counter:
            result = single_tensor(
                program.function(case, getattr(torch, case.dtype), on)(*tensors), program.source.name
            )
        return _facts(program, case, tensors, result, counter.get_total_flops())

    return make_on_meta_or(device, made)


def _facts(program: Program, case: Case, inputs: Tensors, result: torch.Tensor, flops: int) -> Facts:
    nbytes = sum(each.numel() * each.element_size() for each in inputs)
    dtype = case.dtype if program.framework == "numpy" else str(result.dtype).removeprefix("torch.")
    moved = nbytes + program.parameter_bytes(case) + result.numel() * getattr(torch, dtype).itemsize

    def stated(what: str, found: int) -> int:
        value = program.stated(what, case)
        return found if value is None else int(value)

    return Facts(
        shape=case.shape,
        dtype=case.dtype,
        operands=tuple(tuple(each.shape) for each in inputs),
        operand_bytes=nbytes,
        output_shape=tuple(result.shape),
        output_dtype=dtype,
        flops=stated("flops", flops),
        bytes=stated("bytes", moved),
        multiplies=flops > 0,
    )
