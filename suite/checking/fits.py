"""Measures how well a variant of the truth explains a wrong result, and names the closest."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import torch

from suite.checking.judge import error_ratios
from suite.checking.survey import Piece
from suite.numerics.bounds import MARGIN
from suite.numerics.formats import MAX_FINITE
from suite.problem.truth import Truth
from suite.problem.variant import UNKNOWN, Variant

FITS = 0.9
"""Smallest share of the wrong elements, and of the right ones, that a variant must explain. Intermediate roundings
explain the others: a sum nearly halfway between two numbers is rounded to either."""
SAMPLE = 256
"""Number of wrong elements that are compared first. Most variants explain fewer than half of them."""
KNOWN = 0.5
"""Smallest share of the wrong elements for which a variant must predict a number."""
MAX_ELEMENT_BITS, NAN_BITS = 20.0, 4.0
"""Largest evidence of one element, and the evidence of a NaN or an infinity. The latter counts only if the variant
explains the right elements too, and if some of these are numbers."""
TIE_RATIO = 1.02
"""Two distances count as equal up to this ratio."""
KIND_RATIO = 2.0
"""A variant of a later kind must be nearer by this ratio. Bounds of the same mistake differ by less."""
MAX_NAMES = 3
"""Largest number of mistakes that are named if they are equally close. With more of them, none is named."""


class Rank(IntEnum):
    """The kind of a variant.

    Among variants that are about equally close, only those of the first kind are named: a mistake that needs the inputs
    of this case explains why other cases are right.
    """

    INPUTS = 0
    OPERATION = 1
    OPERANDS = 2
    RESULT = 3
    FITTED = 4


@dataclass(frozen=True)
class Fit:
    """Measures of how well a variant explains a result.

    share, share_of_wrong: the share of all elements, and of the wrong ones, within the variant's bound. bits: the
    evidence. distance, distance_of_wrong: root mean square of the error over the bound. whole: the right elements are
    explained too.
    """

    mistake: str
    rank: Rank
    share: float
    share_of_wrong: float
    bits: float
    distance: float
    distance_of_wrong: float
    whole: bool


def ratios_of(piece: Piece, value: torch.Tensor, limit: torch.Tensor, dtype: str) -> torch.Tensor:
    """Return the error of each element of a part over a variant's bound, as the judge computes it."""
    return error_ratios(piece.output, Truth(piece.part, value, limit), dtype)


def fit(piece: Piece, variant: Variant, rank: Rank, wrong: torch.Tensor, dtype: str, nan_counts: bool) -> Fit | None:
    """Measure how well a variant explains a part; None if it does not. nan_counts: NaN and infinities are evidence."""
    sample = wrong.flatten().nonzero()[:: max(1, int(wrong.sum()) // SAMPLE)].flatten()
    output, value, bound = (x.flatten()[sample] for x in (piece.output, variant.value, variant.limit))
    if _surely_apart(output, value, bound, dtype):
        return None
    known = variant.limit < UNKNOWN
    known |= ~torch.isfinite(variant.limit)
    if not bool(known.all()):
        if float((known & wrong).sum()) < KNOWN * float(wrong.sum()):
            return None
        piece = Piece(piece.part, piece.output[known], piece.value[known], piece.limit[known])
        variant, wrong = replace(variant, value=variant.value[known], limit=variant.limit[known]), wrong[known]
    limit = torch.where(torch.isfinite(variant.limit), variant.limit, 0.0).clamp(min=0.0)
    ratios = ratios_of(piece, variant.value, limit, dtype)
    explained = ratios <= 1.0
    share_of_wrong = mean(explained[wrong])
    if share_of_wrong < FITS:
        return None
    whole = mean(explained[~wrong]) >= FITS
    return Fit(
        variant.mistake,
        Rank.FITTED if variant.fitted else rank,
        mean(explained),
        share_of_wrong,
        _bits(piece, variant, limit, explained if whole and nan_counts else explained & piece.output.isfinite()),
        _distance(ratios),
        _distance(ratios[wrong]),
        whole=whole,
    )


def _surely_apart(output: torch.Tensor, value: torch.Tensor, limit: torch.Tensor, dtype: str) -> bool:
    """True if most of a sample of the wrong elements is not explained. Infinite bounds leave the question open."""
    number = output.isfinite() & value.isfinite() & limit.isfinite() & (value.abs() < MAX_FINITE[dtype])
    apart = number & ((output.double() - value).abs() > limit)
    return bool(apart.sum() * 2 > len(apart))


def _distance(ratios: torch.Tensor) -> float:
    return float(ratios.clamp(max=2.0).square().mean().sqrt())


def _bits(piece: Piece, variant: Variant, limit: torch.Tensor, explained: torch.Tensor) -> float:
    """Return the evidence: log2(MARGIN * error / bound of the variant), summed over the explained elements."""
    error = (piece.output.double() - piece.value).abs()
    error = torch.where(piece.value.isfinite(), error, variant.value.abs())
    ratios = torch.log2(MARGIN * error / limit).nan_to_num(NAN_BITS, NAN_BITS, 0.0)
    return float(ratios.clamp(0.0, MAX_ELEMENT_BITS)[explained].sum())


def mean(mask: torch.Tensor) -> float:
    """Return the share of true elements; 1 if there are none."""
    return float(mask.double().mean()) if mask.numel() else 1.0


def closest(fits: Sequence[Fit], where: str = "") -> tuple[str, float]:
    """Name the closest variant, and others that are as close. Returns the text and the share of the wrong elements
    that it explains; an empty text if more than MAX_NAMES are as close.

    where: the elements that are explained; empty for all. Fitted variants are named only if no other explains the
    result.
    """
    plain = [each for each in fits if each.rank < Rank.FITTED] or list(fits)
    distances = [(each.distance_of_wrong if where else each.distance, each) for each in plain]
    nearest = min((distance for distance, _ in distances), default=0.0)
    first = min((each.rank for distance, each in distances if distance <= nearest * KIND_RATIO), default=Rank.FITTED)
    of_kind = [(distance, each) for distance, each in distances if each.rank == first]
    nearest = min((distance for distance, _ in of_kind), default=0.0)
    close = [each for distance, each in of_kind if distance <= nearest * TIE_RATIO]
    mistakes = list(dict.fromkeys(each.mistake for each in close))
    if not 0 < len(mistakes) <= MAX_NAMES:
        return "", 0.0
    share_of_wrong = min(each.share_of_wrong for each in close)
    share = math.floor(1000 * (share_of_wrong if where else min(each.share for each in close))) / 10
    place = f", in {where}," if where else ""
    return f"as if{place} {' or '.join(mistakes)} (fits {share:g}%)", share_of_wrong


def explaining_both(fits: Sequence[Fit], others: Iterator[Fit]) -> list[Fit]:
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
