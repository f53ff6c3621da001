"""The exact result of a user's reference, and the allowed error of each element.

The reference in float64 is the truth. The bound comes from many runs in the case's type with random roundings
(`perturbed.py`), unless the file states a tolerance. docs/agreement.md describes the limits of such a bound.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from suite.core.errors import SuiteError, UsageError
from suite.custom.about import Facts, ResultForm
from suite.custom.attention import FusedAttention
from suite.custom.doubles import SCALE, in_float32
from suite.custom.flops import FlopCounter
from suite.custom.perturbed import WIDE, InFloat64, Known, Perturbed, unrounded
from suite.custom.program import Program, default_dtype, make_cheaply_or
from suite.custom.results import by_modulus, exact_array, forms_of, pieces, tensors_of, whole_results
from suite.numerics.bounds import MARGIN, limit, student_deviations
from suite.numerics.formats import DOUBLE, MAX_FINITE, is_integer
from suite.numerics.weak_bound import WeakBound, weak_bound
from suite.problem.case import Case
from suite.problem.outputs import judged_dtype, leaves

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

NOISE_SEED = 2**31 - 1
"""Seed of the random roundings. With the seed of the inputs, errors would be correlated with the numbers."""

Tensors = tuple[torch.Tensor, ...]


class RandomReferenceError(SuiteError):
    """A reference that gives other results for the same inputs."""


def exact(program: Program, case: Case, inputs: Tensors) -> torch.Tensor:
    """The results of the reference for `inputs` in one array, in float64 or int64."""
    function = program.function(case, torch.float64, inputs[0].device)
    wide = [each.to(WIDE.get(each.dtype, each.dtype), copy=True) for each in inputs]
    with _plain_operations(torch.float64), InFloat64():
        result = function(*wide)
    return exact_array(tensors_of(result, program.source.name)).to(inputs[0].device)


def refuse_random(program: Program, case: Case, inputs: Tensors, value: torch.Tensor) -> None:
    """Raise `RandomReferenceError` for a reference whose results differ from call to call."""
    again = exact(program, case, inputs)
    difference, size = ((each).abs().double().nan_to_num(0.0, 0.0, 0.0) for each in (again - value, value))
    if difference.numel() and float(difference.max()) > REPEAT_TOLERANCE * float(size.max()):
        raise RandomReferenceError(
            f"{program.source.name}: the reference gives other results for the same inputs, in float64 too: "
            "does it draw random numbers, as dropout does in training?"
        )


def allowed(
    program: Program, case: Case, inputs: Tensors, value: torch.Tensor, forms: Sequence[ResultForm]
) -> torch.Tensor:
    """The largest allowed error of each element of the array of results, which have these `forms`."""
    tolerance = program.stated("tolerance", case)
    if tolerance is not None:
        relative, absolute = _tolerances(tolerance, case, program.source.name)
        return value.abs().double().mul_(relative).add_(absolute)
    bound = _spread(program, case, inputs, value, in_float32 if program.kernels_use_float32 else lambda f: f)
    has_float64 = any(judged_dtype(each.dtype) == "float64" for each in forms) and program.framework == "torch"
    doubled = _spread(program, case, inputs, value, in_float32).mul_(SCALE) if has_float64 else bound
    for errors in (bound, doubled):
        by_modulus(errors, forms)
    for index, dtype in pieces(forms, tuple(value.shape)):
        if not is_integer(dtype):
            error = bound if dtype != "float64" else bound.maximum(doubled)
            bound[index] = limit(error[index], value[index].double(), dtype)
    return (
        bound
        if program.framework == "numpy"
        else bound.maximum(by_modulus(_own_error(program, case, inputs, value), forms) * MARGIN)
    )


def _spread(
    program: Program, case: Case, inputs: Tensors, value: torch.Tensor, adapt: Callable[[Any], Any]
) -> torch.Tensor:
    """The error of each element that random roundings make, before the last one. `adapt` changes the reference.

    Integers have one only where a rounding decides.
    """
    runs = RUNS if value.numel() <= MANY_ELEMENTS else FEW_RUNS
    squares, farthest, counts = (torch.zeros_like(value, dtype=torch.float64) for _ in range(3))
    for error, amplification in _errors(program, case, inputs, value, runs, adapt):
        counts += error.isfinite()
        error = error.nan_to_num_(0.0, 0.0)
        torch.maximum(farthest, error, out=farthest)
        squares.addcmul_(error, error, value=amplification**-2)
    error = squares.div_(counts.clamp_(min=1)).sqrt_().mul_(student_deviations(value.numel(), runs))
    return torch.where(farthest > JUMP * error, farthest, error)


def weakness(
    program: Program, case: Case, inputs: Tensors, value: torch.Tensor, bound: torch.Tensor, forms: Sequence[ResultForm]
) -> WeakBound | None:
    """The reason why a bound of `allowed` accepts wrong results, for the first such result; None if there is none."""
    derived = program.framework == "torch" and program.stated("tolerance", case) is None
    own = _own_error(program, case, inputs, value) if derived else None
    for index, dtype in whole_results(forms, tuple(value.shape)):
        if is_integer(dtype):
            continue
        errors = own[index] if own is not None and dtype != DOUBLE else None  # the truth of float64 is the reference
        found = weak_bound(value[index].double(), bound[index], errors, dtype)
        if found is not None:
            return found
    return None


def _errors(
    program: Program, case: Case, inputs: Tensors, value: torch.Tensor, runs: int, adapt: Callable[[Any], Any]
) -> Iterator[tuple[torch.Tensor, float]]:
    """The errors of each run before its last rounding, and the amplification of its roundings."""
    is_numpy = program.framework == "numpy"
    run = _numpy_run(program, case, inputs) if is_numpy else _torch_run(program, case, inputs, adapt)
    for number in range(runs):
        amplification = AMPLIFICATIONS[number % len(AMPLIFICATIONS)]
        yield _error(run(amplification), value), amplification


def _error(result: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """The absolute errors of a result, at most MAX_ERROR; NaN where the result or the truth is not finite."""
    error = (result - value).abs_().double().clamp_(max=MAX_ERROR)
    return torch.where(result.isfinite() & value.isfinite(), error, math.nan)


def _own_error(program: Program, case: Case, inputs: Tensors, value: torch.Tensor) -> torch.Tensor:
    """The errors of the unchanged reference in the case's type: a library may round more than the formula."""
    function = program.function(case, getattr(torch, case.dtype), value.device)
    with _plain_operations(torch.float32):
        result = tensors_of(function(*(each.clone() for each in inputs)), program.source.name)
    return _error(exact_array(result), value).nan_to_num_(0.0)


def _torch_run(
    program: Program, case: Case, inputs: Tensors, adapt: Callable[[Any], Any]
) -> Callable[[float], torch.Tensor]:
    """A function that runs the reference with random roundings, and returns its result before the last one."""
    device = inputs[0].device
    source = torch.Generator(device).manual_seed(NOISE_SEED)
    known: Known = {}

    def run(amplification: float) -> torch.Tensor:
        function = adapt(
            program.function(case, getattr(torch, case.dtype), device)
        )  # anew: a model may change its state
        perturbed = Perturbed(source, amplification, case.precision, known)
        with _plain_operations(torch.float32), FusedAttention(), perturbed:
            results = tensors_of(function(*(each.clone() for each in inputs)), program.source.name)
            return exact_array([unrounded(each) for each in results])

    return run


def _numpy_run(program: Program, case: Case, inputs: Tensors) -> Callable[[float], torch.Tensor]:
    """`_torch_run` for a reference in NumPy."""
    from suite.custom.perturbed_numpy import before_rounding, rounded
    from suite.custom.reference import in_float64

    source, function = np.random.default_rng(0), program.native(case)

    def run(amplification: float) -> torch.Tensor:
        result = function(*(rounded(in_float64(each), case.dtype, amplification, source) for each in inputs))
        exact = tuple(np.array(before_rounding(each)) for each in leaves(result))
        return exact_array(tensors_of(exact, program.source.name)).to(inputs[0].device)

    return run


@contextlib.contextmanager
def _plain_operations(dtype: torch.dtype) -> Iterator[None]:
    """While open, no gradients are recorded, and operations that libraries fuse run as simpler ones."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    libraries = torch.backends.mkldnn, torch.backends.cudnn
    enabled = [each.enabled for each in libraries]
    try:
        for each in libraries:
            each.enabled = False
        with default_dtype(dtype), torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
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
    """The facts of a case, from a run of the reference that takes little, or on `device` if that fails."""

    def made(on: torch.device) -> Facts:
        if undeclared := program.undeclared(case):
            names = ", ".join(undeclared)
            raise UsageError(
                f"{program.source.name}: the reference writes to its argument {names}; "
                f"if that is intended, declare mutates = {undeclared!r}: each call then gets a fresh copy, and the "
                "written argument is a result"
            )
        tensors = program.draw(case, 0, on)
        with _plain_operations(torch.get_default_dtype()), FlopCounter() as counter:  # counts no fused operation
            result = program.function(case, getattr(torch, case.dtype), on)(*tensors)
        return _facts(program, case, tensors, result, counter.flops)

    return make_cheaply_or(device, program.is_small(case), made)


def _facts(program: Program, case: Case, inputs: Tensors, result: Any, flops: int) -> Facts:
    nbytes = sum(each.numel() * each.element_size() for each in inputs)
    results = forms_of(result, program.source.name)
    kinds = {str(each.dtype).removeprefix("torch.") for each in inputs if each.is_floating_point() and each.numel()}
    results = tuple(replace(each, dtype=program.result_dtype(each.dtype, case, kinds)) for each in results)
    written = sum(math.prod(each.shape) * getattr(torch, each.dtype).itemsize for each in results)
    moved = nbytes + program.parameter_bytes(case) + written

    def stated(what: str, found: int) -> int:
        value = program.stated(what, case)
        return found if value is None else int(value)

    return Facts(
        shape=case.shape,
        dtype=case.dtype,
        operands=tuple(tuple(each.shape) for each in inputs),
        operand_bytes=nbytes,
        results=results,
        flops=stated("flops", flops),
        bytes=stated("bytes", moved),
        multiplies=flops > 0,
    )
