"""The verdict on an output: it agrees if every element is within its error bound of the truth, and so are statistics.

NaN and infinities must be where the truth has them. A finite truth within its bound of the largest finite number may
become an infinity of its sign. Zeros of either sign are equal. Integers are compared exactly: their bound is 0. An
element that stands for another number, as an index does, is judged by that number (`Truth.named`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch

from suite.checking.aggregate import Aggregate
from suite.checking.memory import identical
from suite.core.errors import SuiteError
from suite.core.integers import index_at
from suite.numerics.formats import max_finite, ulp
from suite.problem.outputs import located
from suite.problem.truth import Truth

Position = Callable[[tuple[int, ...]], str]
"""Turns an index of the output into words."""
Results = Sequence[tuple[str, int]]
"""The name of each result of a call and the index in the output at which it begins."""
ONE_RESULT: Results = (("", 0),)
CORRECTION = (
    "an infinity is right there; inf - inf = NaN: leave out the correction of a compensated sum, or a number minus its "
    "maximum, where they are infinite"
)
"""Explains a NaN where the truth overflows."""
NO_NUMBER = ", or for none: it is out of range, or given twice"
"""Explains the number that `Truth.numbers` gives for an element that stands for none."""


@dataclass(frozen=True)
class Verdict:
    """The verdict on an output, and its largest errors.

    agrees: no element is wrong. error_ratio: the largest error over its bound; above 1 is wrong, infinite where NaN,
    infinities or the form differ. max_ulp: the largest error in units in the last place of the output's type at the
    truth. max_rel: the largest error over the largest magnitude of the truth. rms: the root mean square error. reason:
    the first error in words, after its kind: type, shape, dtype, device, strides, not finite, value; or a statistic of
    all elements, after its kind: scale, mean, spread (`suite/checking/aggregate.py`).
    """

    agrees: bool
    error_ratio: float
    max_ulp: float
    max_rel: float
    reason: str = ""
    rms: float = 0.0


def judge(
    output: torch.Tensor,
    truths: Iterable[Truth],
    *,
    shape: tuple[int, ...],
    dtype: str,
    device: torch.device | None = None,
    position: Position = located,
    results: Results = ONE_RESULT,
) -> Verdict:
    """Compare an output with the truth.

    truths: the pieces of the truth, which must cover the output. shape, dtype: required of the output. device: where
    the output must be; None for anywhere. position: turns an index into words. results: the results that the output
    joins. An output of another form is wrong, and its elements are not compared.

    Raises `SuiteError` for truths that do not cover the output, and for a bound that is not a number.
    """
    return judge_together(
        [output], truths, shape=shape, dtype=dtype, device=device, position=position, results=results
    )[0]


def judge_together(
    outputs: Sequence[torch.Tensor],
    truths: Iterable[Truth],
    *,
    shape: tuple[int, ...],
    dtype: str,
    device: torch.device | None = None,
    position: Position = located,
    results: Results = ONE_RESULT,
) -> list[Verdict]:
    """Judge several outputs of the same inputs as `judge` does, using each piece of the truth once.

    An output on another device is copied to the device of the truth, a piece at a time. Only one of several outputs
    with the same bits is judged, because comparing bits takes far less time.
    """
    refusals = [_misfit(output, shape, dtype, device) for output in outputs]
    judged: list[torch.Tensor] = []
    fits = [refusal is None for refusal in refusals]
    places = [_place(output, judged) if fit else None for output, fit in zip(outputs, fits, strict=True)]
    totals = [Tally(aggregates=[Aggregate() for _ in results]) for _ in judged]
    for truth in truths:
        which = _result_of(truth, results)
        for output, total in zip(judged, totals, strict=True):
            total.add(_judge_piece(output, truth, dtype, position))
            total.aggregates[which].add(truth.numbers(output[truth.index]), truth, truth.dtype or dtype)
        del truth  # frees its memory for the next piece
    verdicts = [_verdict(output, total, results) for output, total in zip(judged, totals, strict=True)]
    return [
        refused(refusal or "") if place is None else verdicts[place]
        for place, refusal in zip(places, refusals, strict=True)
    ]


def _place(output: torch.Tensor, judged: list[torch.Tensor]) -> int:
    """The place in `judged` of an output with the same bits; adds `output` if there is none."""
    place = next((i for i, other in enumerate(judged) if identical(output, other)), len(judged))
    if place == len(judged):
        judged.append(output)
    return place


def _result_of(truth: Truth, results: Results) -> int:
    """Return the position of the result to which a piece of the truth belongs."""
    begin = (truth.index[0].start or 0) if truth.index else 0
    return max(i for i, (_, start) in enumerate(results) if start <= begin)


def _verdict(output: torch.Tensor, total: Tally, results: Results) -> Verdict:
    """Return the verdict on an output whose elements have all been counted."""
    if total.judged != output.numel():
        raise SuiteError(f"truth: its pieces have {total.judged} elements, the output {output.numel()}")
    max_rel = total.error / total.magnitude if total.magnitude > 0 else total.error
    rms = math.sqrt(total.squares / total.judged) if total.judged else 0.0
    if total.wrong:
        reason = total.reason + (f"; {total.wrong} of {total.judged} are wrong" if total.wrong > 1 else "")
        return Verdict(False, total.ratio, total.ulp, max_rel, reason, rms)
    found = [each.judge(len(results)) for each in total.aggregates]
    ratio, reason = max(found)
    name = results[found.index((ratio, reason))][0]
    return Verdict(ratio <= 1.0, max(total.ratio, ratio), total.ulp, max_rel, reason and named(reason, name), rms)


def refused(reason: str) -> Verdict:
    """Return the verdict on a result that cannot be compared."""
    return Verdict(False, math.inf, math.inf, math.inf, reason, math.inf)


def named(reason: str, name: str) -> str:
    """Name the result in the reason of a statistic, if a call returns several."""
    return reason.replace(": ", f" of {name}: ", 1) if name else reason


@dataclass
class Tally:
    """Counts and maxima over the elements judged so far."""

    judged: int = 0
    wrong: int = 0
    ratio: float = 0.0
    ulp: float = 0.0
    error: float = 0.0
    magnitude: float = 0.0
    reason: str = ""
    """Description of the element with the largest ratio."""
    squares: float = 0.0
    """Sum of the squared errors."""
    aggregates: list[Aggregate] = field(default_factory=list)
    """The statistics of each result."""

    def add(self, other: Tally) -> None:
        if other.ratio > self.ratio:
            self.reason = other.reason
        self.judged += other.judged
        self.wrong += other.wrong
        self.squares += other.squares
        for name in ("ratio", "ulp", "error", "magnitude"):
            setattr(self, name, max(getattr(self, name), getattr(other, name)))


def _judge_piece(output: torch.Tensor, truth: Truth, dtype: str, position: Position = located) -> Tally:
    """Compare one piece of the output with its truth."""
    piece = truth.numbers(output[truth.index])
    if piece.shape != truth.value.shape or piece.shape != truth.limit.shape:
        shapes = f"{tuple(truth.value.shape)} and {tuple(truth.limit.shape)}"
        raise SuiteError(f"truth: value and limit are {shapes}, where the output has {tuple(piece.shape)}")
    if piece.numel() == 0:
        return Tally()
    dtype = truth.dtype or dtype
    if _ordinary(piece, truth, dtype):
        error = _difference(piece, truth).abs_()
        ratios, known = error / truth.limit, None
    else:
        error, ratios, known = _errors(piece, truth, dtype)
    found = Tally(judged=error.numel(), ratio=float(ratios.max()), error=float(error.max()))
    found.squares = float(torch.linalg.vector_norm(error)) ** 2
    if found.ratio > 1.0:
        found.wrong = int((ratios > 1.0).sum())
        found.reason = _describe(ratios, output, truth, position)
    del ratios
    value = truth.value if known is None else torch.where(known, truth.value, 0)
    found.magnitude = float(torch.stack(torch.aminmax(value)).abs().max())
    found.ulp = float(error.div_(ulp(value, dtype)).max())
    return found


def _ordinary(piece: torch.Tensor, truth: Truth, dtype: str) -> bool:
    """True if all values are finite, none may overflow, and every bound is above 0. This usual case skips the tests of
    each element, which take three times as long as the rest."""
    if not truth.value.is_floating_point():
        return False
    extremes = [extreme.double() for x in (piece, truth.value, truth.limit) for extreme in torch.aminmax(x)]
    *_, low, high, strictest, loosest = numbers = torch.stack(extremes).tolist()
    largest = max(-low, high) + loosest
    return all(map(math.isfinite, numbers)) and strictest > 0.0 and largest <= max_finite(dtype)


def error_ratios(piece: torch.Tensor, truth: Truth, dtype: str) -> torch.Tensor:
    """Return the error of each number over its bound; infinite for a misplaced NaN, infinity or number. Above 1 is
    wrong."""
    return _errors(piece, truth, truth.dtype or dtype)[1]


def _errors(piece: torch.Tensor, truth: Truth, dtype: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return three tensors: errors, error ratios, and whether both values are finite.

    The error is 0 where either value is not finite. The ratio is infinite where a NaN, infinity or number is misplaced.
    """
    known = torch.isfinite(truth.value)
    if bool((known & ~((truth.limit >= 0.0) & (truth.limit < math.inf))).any()):
        raise SuiteError(f"truth: a bound is not a number where the truth is, in {truth.index}")
    if not truth.value.is_floating_point():
        error = torch.where(piece == truth.value, 0.0, (piece.double() - truth.value.double()).abs().clamp_min_(1.0))
        return error, torch.where(error == 0.0, 0.0, error / truth.limit), known
    piece = piece.to(torch.float64, copy=True)  # a float64 output must not change
    placed = _well_placed(piece, truth, known, dtype)
    known &= torch.isfinite(piece)
    error = torch.where(known, _difference(piece, truth).abs_(), 0.0)
    ratios = torch.where(error == 0.0, 0.0, error / truth.limit).masked_fill_(~placed, math.inf)
    return error, ratios, known


def _difference(piece: torch.Tensor, truth: Truth) -> torch.Tensor:
    """Return the result minus the exact one. In float64 the first difference has no rounding error that matters: the
    two are close, or one of them outweighs the rest."""
    found = piece - truth.value
    return found if truth.rest is None else found.sub_(truth.rest)


def _misfit(output: object, shape: tuple[int, ...], dtype: str, device: torch.device | None) -> str | None:
    """Return why `output` cannot be compared with the truth; None if it can."""
    if not isinstance(output, torch.Tensor):
        return f"type: the result is a {type(output).__name__}, not an array"
    if tuple(output.shape) != shape:
        return f"shape: the result is {tuple(output.shape)}, expected {shape}"
    if output.dtype != getattr(torch, dtype):
        return f"dtype: the result is {str(output.dtype).removeprefix('torch.')}, expected {dtype}"
    if device is not None and output.device != device:
        return f"device: the result is on {output.device}, expected {device}"
    if not output.is_contiguous():
        return f"strides: the result has strides {output.stride()}, expected row-major without gaps"
    return None


def _well_placed(piece: torch.Tensor, truth: Truth, known: torch.Tensor, dtype: str) -> torch.Tensor:
    """Return for each element whether it is a number, an infinity or NaN as required. known: where the truth is
    finite."""
    value = truth.value
    may_overflow = known & (value.abs() + truth.limit > max_finite(dtype))
    must_overflow = torch.isinf(value) | (known & (value.abs() - truth.limit > max_finite(dtype)))
    same_infinity = torch.isinf(piece) & (torch.sign(piece) == torch.sign(value))
    right = torch.isfinite(piece) | (may_overflow & same_infinity)
    return torch.where(torch.isnan(value), torch.isnan(piece), torch.where(must_overflow, same_infinity, right))


def _describe(ratios: torch.Tensor, output: torch.Tensor, truth: Truth, position: Position) -> str:
    """Describe the first of the worst elements: its index, its value and the truth."""
    flat = int(ratios.argmax())
    local = index_at(flat, ratios.shape)
    at = tuple(i + (s.start or 0) for i, s in zip(local, truth.index, strict=True))
    got, expected, limit = (t.item() for t in (output[at], truth.value[*local], truth.limit[*local]))
    kind = "value" if math.isfinite(got) else "not finite"
    if truth.named is not None:
        number = truth.numbers(output[truth.index])[*local].item()
        none = number == 0.0 if math.isnan(expected) else math.isnan(number)
        what = f"expected an element that stands for {expected:.9g}; it stands for {number:.9g}"
        return f"{kind}: at {position(at)} got {got:.9g}, {what}{NO_NUMBER if none else ''}"
    if isinstance(expected, int):
        return f"{kind}: at {position(at)} got {got}, expected {expected}" + (f" +- {limit:.0f}" if limit else "")
    within = f" +- {limit:.2g}" if math.isfinite(expected) else ""
    overflows = abs(expected) + limit > max_finite(str(output.dtype).removeprefix("torch.")) or math.isinf(expected)
    overflow = f" ({CORRECTION})" if math.isnan(got) and overflows else ""
    return f"{kind}: at {position(at)} got {got:.9g}, expected {expected:.9g}{within}{overflow}"
