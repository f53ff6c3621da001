"""Explains a wrong result: it is compared with variants of the truth, and the closest that explains it is named.

    as if factors were tf32 (fits 99.8%)

A variant is the result after a known mistake, with an error bound of its own (`suite/variants`, and
`suite/checking/general_variants.py` for mistakes in any operation). It explains a result if

- nearly all wrong elements, and nearly all right ones, are within the variant's bound (FITS);
- the explained errors are too many, or too far above the bound of a right result, for a coincidence (EVIDENCE_BITS).

If the results of both draws are wrong, a variant must explain both. If none explains the whole result, one may explain
the wrong elements alone: a mistake in some tiles. The closest variant is named, with a second one if it is as close.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from time import thread_time
from typing import TYPE_CHECKING

import torch

from suite import variants
from suite.checking import general_variants
from suite.checking.judge import error_ratios
from suite.checking.survey import Piece, Survey, survey
from suite.numerics.bounds import MARGIN
from suite.numerics.formats import MAX_FINITE, MIN_EXPONENT
from suite.problem.truth import Truth
from suite.problem.variant import Variant

if TYPE_CHECKING:
    from suite.checking.problem import Problem

FITS = 0.9
"""Smallest share of the wrong elements, and of the right ones, that a variant must explain. Intermediate roundings
explain the others: a sum nearly halfway between two numbers is rounded to either."""
EVIDENCE_BITS = 14.0
"""Smallest evidence for a variant: the bits by which the errors exceed its bound, summed over all elements. The
probability that one of a hundred variants explains a single number by coincidence is about a hundred over 2^bits."""
PARTIAL_BITS = 28.0
"""Smallest evidence for a variant that explains the wrong elements alone. No single element has as much."""
MAX_ELEMENT_BITS, NAN_BITS = 20.0, 4.0
"""Largest evidence of one element, and the evidence of a NaN or an infinity. The latter counts only if the variant
explains the right elements too, and if the result or the inputs also have finite numbers."""
TIE_RATIO = 1.02
"""Two distances count as equal up to this ratio."""
WORK = 2**23
"""Flops of the examined part of the result, by the operation's own count. Variants are computed for it alone."""
MAX_ELEMENTS = 2**17
"""Largest number of elements of the examined part, and of results for which variants that move elements are tried."""
BUDGET_S = 1.0
"""Time of this thread after which no further variant is computed. Thread time excludes the load of other processes."""
MIN_DIGIT_ELEMENTS, DIGIT_TOLERANCE = 8, 0.1
"""Smallest number of elements from which digits are counted, and their largest relative distance from the truth."""
FAILED = "the diagnosis failed:"
UNWRITTEN = "never written, or computed from memory that was never written"


@dataclass(frozen=True)
class Diagnosis:
    """The explanation of a wrong result.

    text: the mistake, `as if ...`; empty if nothing explains the result. error_map: the wrong elements by tile; empty
    for a scalar.
    """

    text: str = ""
    error_map: str = ""


@dataclass(frozen=True)
class Fit:
    """Measures of how well a variant explains a result.

    share, share_of_wrong: the share of all elements, and of the wrong ones, within the variant's bound. bits: the
    evidence. distance, distance_of_wrong: root mean square of the error over the bound. whole: the right elements are
    explained too. fitted: a number of the variant was chosen from the result.
    """

    mistake: str
    share: float
    share_of_wrong: float
    bits: float
    distance: float
    distance_of_wrong: float
    whole: bool
    fitted: bool


def diagnose(output: torch.Tensor, draw: int, problem: Problem, *, beside: torch.Tensor | None = None) -> Diagnosis:
    """Diagnose a wrong result of a draw. beside: the result of the other draw, if that is wrong too.

    Returns an empty diagnosis if the device lacks memory for it. An error in the diagnosis becomes its text; the
    result is wrong in any case.
    """
    try:
        return _diagnose(output, draw, problem, beside)
    except torch.OutOfMemoryError:
        return Diagnosis()
    except Exception as error:
        return Diagnosis(f"{FAILED} {type(error).__name__}: {error}")


def _diagnose(output: torch.Tensor, draw: int, problem: Problem, beside: torch.Tensor | None) -> Diagnosis:
    found = _survey(output, draw, problem)
    if found is None:
        return Diagnosis()
    error_map = str(found.map) if output.ndim else ""
    has_nan = any(bool(x.float().isnan().any()) for x in problem.draws[draw])
    text = "" if has_nan else _unwritten(found)  # NaN in the inputs has the bits of unwritten memory
    if not text and output.is_floating_point():
        fits = list(_fits(found, draw, problem))
        second = None if beside is None or not fits else _survey(beside, 1 - draw, problem)
        if second is not None:
            fits = _explaining_both(fits, _fits(second, 1 - draw, problem, {fit.mistake for fit in fits}))
        text = _name_closest([fit for fit in fits if fit.whole and fit.bits >= EVIDENCE_BITS])
        text = text or _coarse_digits(found.part)
        text = text or _name_closest(
            [fit for fit in fits if fit.bits >= PARTIAL_BITS and not fit.fitted], _share(found)
        )
    return Diagnosis(text or _common_kind(found), error_map)


def _survey(output: torch.Tensor, draw: int, problem: Problem) -> Survey | None:
    case = problem.case
    elements = max(1, math.prod(problem.output_shape))
    room = int(min(MAX_ELEMENTS, max(1024, WORK * elements // max(1, problem.op.flops(case)))))
    columns = variants.columns(case.operation) if case.source is None else None
    return survey(output, problem.truth(draw), problem.output_dtype, room, columns)


def _unwritten(found: Survey) -> str:
    """Return the diagnosis if every wrong element holds the bits of unwritten memory; else an empty text."""
    if found.unwritten < found.wrong:
        return ""
    return f"as if {_share(found)} was {UNWRITTEN}"


def _common_kind(found: Survey) -> str:
    """Return the property that all wrong elements share, where no variant explains them; empty if there is none."""
    if found.lost_nan == found.wrong:
        return f"as if NaN was lost: {_share(found)} is a number"
    if found.zero == found.wrong:
        return f"as if {_share(found)} was left 0"
    if found.saturated == found.wrong:
        return "as if results were clamped to the largest number"
    return ""


def _coarse_digits(piece: Piece) -> str:
    """Return the diagnosis if a float32 result is near the truth but has only the digits of a 16-bit format."""
    near = piece.output.isfinite() & piece.value.isfinite() & (piece.value != 0.0)
    output, value = piece.output[near], piece.value[near]
    if output.dtype != torch.float32 or len(output) < MIN_DIGIT_ELEMENTS:
        return ""
    for kind in (torch.bfloat16, torch.float16):
        few, expected = (_mean(x.to(kind).double() == x) for x in (output.double(), value))
        if few == 1.0 and expected < 0.5 and float((output - value).norm() / value.norm()) < DIGIT_TOLERANCE:
            name = str(kind).removeprefix("torch.")
            return f"as if it was computed in {name}: the result has no more digits"
    return ""


def _share(found: Survey) -> str:
    """Describe the wrong elements in words: `[64:65, 0:64]`, `12.5% of the result`."""
    if found.wrong == found.total:
        return "the whole result"
    if found.is_box:
        return f"[{', '.join(f'{begin}:{end}' for begin, end in zip(found.begins, found.ends, strict=True))}]"
    return f"{100 * found.wrong / found.total:.3g}% of the result"


def _name_closest(fits: Sequence[Fit], where: str = "") -> str:
    """Name the closest variant, and a second one that is as close. Fitted variants are named only if no other explains
    the result.

    where: the elements that are explained; empty for all.
    """
    plain = [fit for fit in fits if not fit.fitted]
    distances = [(fit.distance_of_wrong if where else fit.distance, fit) for fit in plain or fits]
    nearest = min((distance for distance, _ in distances), default=0.0)
    close = [fit for distance, fit in distances if distance <= nearest * TIE_RATIO]
    mistakes = list(dict.fromkeys(fit.mistake for fit in close))
    if not mistakes:
        return ""
    share = math.floor(1000 * min(fit.share_of_wrong if where else fit.share for fit in close)) / 10
    place = f", in {where}," if where else ""
    return f"as if{place} {' or '.join(mistakes[:2])} (fits {share:g}%)"


def _explaining_both(fits: Sequence[Fit], others: Iterator[Fit]) -> list[Fit]:
    """Return the fits of the variants that explain both results, with the numbers of both combined."""
    by_name = {fit.mistake: fit for fit in others}
    return [
        replace(
            fit,
            share=min(fit.share, other.share),
            share_of_wrong=min(fit.share_of_wrong, other.share_of_wrong),
            whole=fit.whole and other.whole,
            bits=fit.bits + other.bits if fit.whole == other.whole else min(fit.bits, other.bits),
            distance=math.hypot(fit.distance, other.distance),
            distance_of_wrong=math.hypot(fit.distance_of_wrong, other.distance_of_wrong),
        )
        for fit in fits
        if (other := by_name.get(fit.mistake)) is not None
    ]


def _fits(found: Survey, draw: int, problem: Problem, wanted: Collection[str] = ()) -> Iterator[Fit]:
    """Yield the variants that explain the examined part of a result. wanted: mistakes to consider, or all."""
    deadline, left = thread_time() + BUDGET_S, set(wanted)
    piece, dtype = found.part, problem.output_dtype
    wrong = _ratios(piece, piece.value, piece.limit, dtype) > 1.0
    only_wrong = bool(wrong.all()) and found.wrong < FITS * found.total  # the right elements lie outside of the part
    finite = bool(piece.output.isfinite().any()) or all(bool(x.float().isfinite().all()) for x in problem.draws[draw])
    nan_counts = finite and not only_wrong
    for variant in _candidates(piece, found, draw, problem):
        if thread_time() > deadline or (wanted and not left):
            return
        if wanted and variant.mistake not in left:
            continue
        fit = _fit(piece, variant, wrong, dtype, nan_counts)
        if fit is not None:
            left.discard(variant.mistake)
            yield replace(fit, whole=fit.whole and not only_wrong)


def _candidates(piece: Piece, found: Survey, draw: int, problem: Problem) -> Iterator[Variant]:
    inputs = problem.draws[draw]
    is_ours = problem.op.source is None  # a user's operation may have any name
    given = variants.find(problem.case.operation) if is_ours else None
    own = given(inputs, problem.case, piece.part) if given is not None else iter(())
    is_whole = piece.output.numel() == found.total
    sources: list[Callable[[], Iterator[Variant]]] = [
        lambda: own,
        lambda: general_variants.scaled(piece, problem.output_dtype),
    ]
    if is_whole:
        sources.insert(0, lambda: _unusual_inputs(problem, draw))
    if is_whole and piece.output.ndim:
        sources += [lambda: general_variants.moved(piece), lambda: general_variants.accumulated(piece)]
    if is_whole and draw:
        sources.append(lambda: _earlier_inputs(problem, draw))
    return chain.from_iterable(source() for source in sources)


def _unusual_inputs(problem: Problem, draw: int) -> Iterator[Variant]:
    """Yield the results of inputs in which subnormals, NaN or infinities are replaced by other numbers."""
    dtype = problem.case.dtype
    smallest, largest = 2.0 ** MIN_EXPONENT[dtype], MAX_FINITE[dtype]
    given = [x.double() for x in problem.draws[draw]]
    replacements = {
        "subnormal inputs were taken for 0": [torch.where(x.abs() < smallest, 0.0, x) for x in given],
        "NaN was taken for 0, infinity for the largest number": [x.nan_to_num(0.0, largest, -largest) for x in given],
    }
    for mistake, changed in replacements.items():
        if not all(map(torch.equal, changed, given)):
            inputs = tuple(other.to(x.dtype) for other, x in zip(changed, problem.draws[draw], strict=True))
            whole = _whole(problem.op.truth(inputs, problem.case), problem)
            yield Variant(mistake, whole.value, whole.limit)


def _earlier_inputs(problem: Problem, draw: int) -> Iterator[Variant]:
    """Yield the results with some or all arguments of the first call."""
    now, before = problem.draws[draw], problem.draws[draw - 1]
    count = len(now)
    for chosen in (*general_variants.subsets(count), tuple(range(count))):
        inputs = tuple(before[i] if i in chosen else now[i] for i in range(count))
        whole = _whole(problem.op.truth(inputs, problem.case), problem)
        names = " and ".join(str(i + 1) for i in chosen)
        which = f"arguments {names} were" if len(chosen) > 1 else f"argument {names} was"
        mistake = "it was the result of an earlier call" if len(chosen) == count else f"{which} of an earlier call"
        yield Variant(mistake, whole.value, whole.limit)


def _whole(truths: Iterator[Truth], problem: Problem) -> Truth:
    value, limit = (torch.zeros(problem.output_shape, dtype=torch.float64, device=problem.device) for _ in range(2))
    for truth in truths:
        value[truth.index], limit[truth.index] = truth.value, truth.limit
    return Truth((), value, limit)


def _ratios(piece: Piece, value: torch.Tensor, limit: torch.Tensor, dtype: str) -> torch.Tensor:
    return error_ratios(piece.output, Truth(piece.part, value, limit), dtype)


def _fit(piece: Piece, variant: Variant, wrong: torch.Tensor, dtype: str, nan_counts: bool) -> Fit | None:
    """Return None if the variant does not explain the part. nan_counts: NaN and infinities are evidence."""
    limit = torch.where(torch.isfinite(variant.limit), variant.limit, 0.0).clamp(min=0.0)
    ratios = _ratios(piece, variant.value, limit, dtype)
    explained = ratios <= 1.0
    share_of_wrong = _mean(explained[wrong])
    if share_of_wrong < FITS:
        return None
    whole = _mean(explained[~wrong]) >= FITS
    return Fit(
        variant.mistake,
        _mean(explained),
        share_of_wrong,
        _bits(piece, variant, limit, explained if whole and nan_counts else explained & piece.output.isfinite()),
        _distance(ratios),
        _distance(ratios[wrong]),
        whole=whole,
        fitted=variant.fitted,
    )


def _distance(ratios: torch.Tensor) -> float:
    return float(ratios.clamp(max=2.0).square().mean().sqrt())


def _bits(piece: Piece, variant: Variant, limit: torch.Tensor, explained: torch.Tensor) -> float:
    """Return the bits by which the explained errors exceed the bound of a right result."""
    error = (piece.output.double() - piece.value).abs()
    error = torch.where(piece.value.isfinite(), error, variant.value.abs())
    ratios = torch.log2(MARGIN * error / limit).nan_to_num(NAN_BITS, NAN_BITS, 0.0)
    return float(ratios.clamp(0.0, MAX_ELEMENT_BITS)[explained].sum())


def _mean(mask: torch.Tensor) -> float:
    return float(mask.double().mean()) if mask.numel() else 1.0
