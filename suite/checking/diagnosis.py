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
from time import thread_time
from typing import TYPE_CHECKING

import torch

from suite import variants
from suite.checking.candidates import declared, usual
from suite.checking.fits import FITS, Fit, Rank, closest, explaining_both, fit, mean, ratios_of
from suite.checking.memory import elements_between_bands
from suite.checking.places import place
from suite.checking.survey import Piece, Survey, survey
from suite.problem.variant import Inputs, Variant

if TYPE_CHECKING:
    from suite.checking.problem import Problem

EVIDENCE_BITS = 14.0
"""Smallest evidence for a variant: the bits by which the errors exceed its bound, summed over all elements. The
probability that one of a hundred variants explains a single number by coincidence is about a hundred over 2^bits."""
PARTIAL_BITS = 28.0
"""Smallest evidence for a variant that explains the wrong elements alone. No single element has as much."""
WORK = 2**24
"""Flops of the examined part of the result, by the operation's own count. Variants are computed for it alone."""
MAX_ELEMENTS = 2**17
"""Largest number of elements of the examined part, and of results for which variants that move elements are tried."""
BUDGET_S = 1.0
"""Time of this thread after which no further variant of a source is computed. Thread time excludes the load of other
processes."""
MIN_DIGIT_ELEMENTS, DIGIT_TOLERANCE = 8, 0.1
"""Smallest number of elements from which digits are counted, and their largest relative distance from the truth."""
EXACT = 0.995
"""Smallest share of the wrong elements that a variant must explain to be named instead of a property that all of them
have, such as being 0."""
FAILED = "the diagnosis failed:"
UNWRITTEN = "never written, or computed from memory that was never written"
BESIDE = "computed from memory beside an operand, or from shared memory or a lane without a value"
AMBIGUOUS = "never written, or computed from memory beside the operands or without a defined result (inf - inf, 0 / 0)"


Source = Callable[[Piece, bool, int, "Problem", Collection[str]], Iterator[tuple[Rank, Variant]]]


@dataclass(frozen=True)
class Diagnosis:
    """The explanation of a wrong result.

    text: the mistake, `as if ...`; empty if nothing explains the result. error_map: the wrong elements by tile; empty
    for a scalar.
    """

    text: str = ""
    error_map: str = ""


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
    piece = found.part
    wrong = ratios_of(piece, piece.value, piece.limit, problem.output_dtype) > 1.0
    where, is_filled = place(found, wrong, problem.op.outputs, problem.output_shapes)
    text = _certainly_unwritten(found, where, problem.draws[draw])
    if not text and output.is_floating_point():
        kind = _common_kind(found, where)
        fits = _explaining(found, draw, problem, beside, (usual,) if kind else (usual, declared))
        kind = kind or _nan_kind(found, where, problem.draws[draw])
        text, share = closest([fit for fit in fits if _is_whole(fit)])
        if kind and share < EXACT:  # the kind holds for every wrong element
            text = kind
        text = text or _coarse_digits(piece)
        if not text and is_filled:
            text, _ = closest([fit for fit in fits if fit.bits >= PARTIAL_BITS and fit.rank < Rank.FITTED], where)
    return Diagnosis(text, error_map)


def _survey(output: torch.Tensor, draw: int, problem: Problem) -> Survey | None:
    case = problem.case
    elements = max(1, math.prod(problem.output_shape))
    room = int(min(MAX_ELEMENTS, max(1024, WORK * elements // max(1, problem.op.flops(case)))))
    columns = variants.columns(case.operation) if case.source is None else None
    return survey(output, problem.truth(draw), problem.output_dtype, room, columns)


def _certainly_unwritten(found: Survey, where: str, inputs: Inputs) -> str:
    """Return the diagnosis if every wrong element holds bits that only unwritten memory has; else an empty text."""
    if found.unwritten < found.wrong:
        return ""
    exact = found.part.output.element_size() > 2 or found.part.output.is_cuda
    return f"as if {where} was {UNWRITTEN}" if exact and not any(map(_has_nan_or_infinity, inputs)) else ""


def _has_nan_or_infinity(x: torch.Tensor) -> bool:
    """True if an operand, or the memory between its elements, holds NaN or infinities."""
    return x.is_floating_point() and not bool(elements_between_bands(x).float().isfinite().all())


def _common_kind(found: Survey, where: str) -> str:
    """Return the property that all wrong elements share; empty if there is none."""
    if found.lost_nan == found.wrong:
        return f"as if NaN was lost: {where} is a number"
    if found.zero == found.wrong:
        return f"as if {where} was left 0"
    if found.saturated == found.wrong:
        return "as if results were clamped to the largest number"
    return ""


def _nan_kind(found: Survey, where: str, inputs: Inputs) -> str:
    """Return the origin of NaN by its bits, if all wrong elements have the same and no input is NaN or infinite."""
    finite = all(bool(x.float().isfinite().all()) for x in inputs)
    if found.beside == found.wrong and finite:
        return f"as if {where} was {BESIDE}"
    if found.unwritten == found.wrong and finite:
        return f"as if {where} was {AMBIGUOUS}"
    return ""


def _coarse_digits(piece: Piece) -> str:
    """Return the diagnosis if a float32 result is near the truth but has only the digits of a 16-bit format."""
    near = piece.output.isfinite() & piece.value.isfinite() & (piece.value != 0.0)
    output, value = piece.output[near], piece.value[near]
    if output.dtype != torch.float32 or len(output) < MIN_DIGIT_ELEMENTS:
        return ""
    for kind in (torch.bfloat16, torch.float16):
        few, expected = (mean(x.to(kind).double() == x) for x in (output.double(), value))
        if few == 1.0 and expected < 0.5 and float((output - value).norm() / value.norm()) < DIGIT_TOLERANCE:
            name = str(kind).removeprefix("torch.")
            return f"as if it was computed in {name}: the result has no more digits"
    return ""


def _explaining(
    found: Survey, draw: int, problem: Problem, beside: torch.Tensor | None, sources: Sequence[Source]
) -> list[Fit]:
    """Return the variants that explain a result, and the other draw's result too if that is wrong.

    A further source is tried if no mistake of the operation's file or of unusual inputs explains the whole result.
    """
    second = None if beside is None else _survey(beside, 1 - draw, problem)
    fits: list[Fit] = []
    for source in sources:
        mine = list(_fits(source, found, draw, problem))
        if second is not None and mine:
            mine = explaining_both(mine, _fits(source, second, 1 - draw, problem, {fit.mistake for fit in mine}))
        fits += mine
        if any(each.rank <= Rank.OPERATION and _is_whole(each) and each.share >= EXACT for each in fits):
            break
    return fits


def _is_whole(found: Fit) -> bool:
    return found.whole and found.bits >= EVIDENCE_BITS


def _fits(source: Source, found: Survey, draw: int, problem: Problem, wanted: Collection[str] = ()) -> Iterator[Fit]:
    """Yield the variants of a source that explain the examined part of a result. wanted: mistakes to consider, or
    all."""
    deadline, left = thread_time() + BUDGET_S, set(wanted)
    piece, dtype = found.part, problem.output_dtype
    wrong = ratios_of(piece, piece.value, piece.limit, dtype) > 1.0
    only_wrong = bool(wrong.all()) and found.wrong < FITS * found.total  # the right elements lie outside of the part
    nan_counts = bool((~wrong & piece.output.isfinite()).any()) or not bool(piece.output.isnan().any())
    for rank, variant in source(piece, piece.output.numel() == found.total, draw, problem, wanted):
        if thread_time() > deadline or (wanted and not left):
            return
        if wanted and variant.mistake not in left:
            continue
        explained = fit(piece, variant, rank, wrong, dtype, nan_counts)
        if explained is not None:
            left.discard(variant.mistake)
            yield replace(explained, whole=explained.whole and not only_wrong)
