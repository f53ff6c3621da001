"""The exact result, in pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from suite.problem.outputs import joined

if TYPE_CHECKING:
    import torch

    from suite.exact.double_double import DoubleDouble
    from suite.numerics.noise import Noise
    from suite.numerics.weak_bound import WeakBound


@dataclass(frozen=True)
class Truth:
    """One piece of the exact result.

    index: the place of the piece in the output, one slice a dimension. value: the exact result there, float64. limit:
    the largest allowed error of each element, float64, of the same shape. noise: the errors of right results on the
    average of many elements; None if only single elements are judged. dtype: the type of the result here, where one
    output joins results of several types; else empty. weak: the reason why the bound of the whole result accepts wrong
    results; None if it does not.

    named: None if the elements of the output are compared with the value. Otherwise they stand for numbers, as an index
    stands for the number at its position. `named` turns the piece of the output into these numbers, float64, which are
    compared with the value. An element that stands for no number gives NaN, or 0 where the value is NaN.

    rest: for results in float64, the part of the exact result below the last place of its value; else None.

    The value is of an integer type where whole numbers are compared exactly.

    expected: kept by the judge for the next output: what statistics of results are compared with, by dtype.
    """

    index: tuple[slice, ...]
    value: torch.Tensor
    limit: torch.Tensor
    noise: Noise | None = None
    dtype: str = ""
    weak: WeakBound | None = None
    rest: torch.Tensor | None = None
    named: Callable[[torch.Tensor], torch.Tensor] | None = None
    expected: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def numbers(self, piece: torch.Tensor) -> torch.Tensor:
        """Return the numbers that a piece of an output gives or stands for, on the device of the truth."""
        piece = piece.to(self.value.device)
        return piece if self.named is None else self.named(piece)


def in_two_parts(pieces: Iterable[Truth], exact: Sequence[DoubleDouble]) -> Iterator[Truth]:
    """Yield the pieces of a truth with the values of exact results. Infinities and NaN stay as they are."""
    high, low = (joined(parts) for parts in ([each.high for each in exact], [each.low for each in exact]))
    for piece in pieces:
        first, rest = high[piece.index], low[piece.index]
        known = piece.value.isfinite() & first.isfinite()
        yield replace(piece, value=first.where(known, piece.value), rest=rest.masked_fill(~known, 0.0))
