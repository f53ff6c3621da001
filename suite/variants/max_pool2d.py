"""Variants of max_pool2d: zeros in the padding, shifted windows, taps that are left out, another statistic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch.nn.functional import pad

from suite.numerics.bounds import rounding_limit
from suite.numerics.formats import unit_roundoff
from suite.ops.max_pool2d import pooled
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._rounding import coarser_formats, rounded
from suite.variants._strides import read_with_strides, row_major

Reduce = Callable[[torch.Tensor, tuple[int, int], slice, int, int], torch.Tensor]


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    if math.prod(each.stop - each.start for each in part) == 0:
        return
    x = inputs[0][part[0]].double()[..., part[3]]
    window, stride, padding = (case["R"], case["S"]), case["stride"], case["padding"]
    slack = math.prod(window) * unit_roundoff("float32") * float(x.nan_to_num(0.0, 0.0, 0.0).abs().amax())

    def variant(
        mistake: str,
        *,
        x: torch.Tensor = x,
        window: tuple[int, int] = window,
        stride: int = stride,
        begin: tuple[int, int] = (0, 0),
        fill: float = -math.inf,
        reduce: Reduce = pooled,
    ) -> Variant:
        """The result with other pixels or windows, moved by `begin`: down, right."""
        rows, columns = part[1], part[2]
        last = [(each.stop - 1) * stride + taps for each, taps in zip((rows, columns), window, strict=True)]
        after = [
            max(padding, end + moved - size - padding)
            for end, size, moved in zip(last, x.shape[1:3], begin, strict=True)
        ]
        border = (0, 0, padding - begin[1], after[1], padding - begin[0], after[0])
        value = reduce(pad(x, border, value=fill), window, rows, columns.stop, stride)[:, :, columns]
        exact = reduce is pooled
        return Variant(mistake, value, torch.zeros_like(value) if exact else rounding_limit(value, case.dtype) + slack)

    if padding:
        yield variant("padding was 0, not left out", fill=0.0)
    for steps, which in ((1, "late"), (-1, "early")):
        yield variant(f"windows began one row and one column {which}", begin=(steps, steps))
        yield variant(f"windows began one row {which}", begin=(steps, 0))
        yield variant(f"windows began one column {which}", begin=(0, steps))
    if padding > 1:
        yield variant("there was no padding", begin=(padding, padding))
    for apart in {1, *window} - {stride}:
        yield variant(f"windows were {apart} apart", stride=apart)
    r, s = window
    if r != s:
        yield variant("R and S were exchanged", window=(s, r))
    for noun, smaller, step in (("row", (r - 1, s), (1, 0)), ("column", (r, s - 1), (0, 1))):
        if min(smaller) > 0:
            yield variant(f"the last {noun} of windows was left out", window=smaller)
            yield variant(f"the first {noun} of windows was left out", window=smaller, begin=step)
    yield from (variant(mistake, x=other) for mistake, other in _pixels(inputs[0], x, case, part))
    for mistake, reduce in _statistics(padding > 0):
        yield variant(mistake, reduce=reduce, fill=math.nan)


def _pixels(given: torch.Tensor, x: torch.Tensor, case: Case, part: Part) -> Iterator[tuple[str, torch.Tensor]]:
    """Other pixels: other values of NaN, fewer digits, or other places in memory."""
    yield "NaN was left out", torch.where(x.isnan(), -math.inf, x)
    yield "the largest magnitude was taken", x.abs()
    for kind in coarser_formats(case.dtype):
        yield f"pixels were rounded to {kind}", rounded(x, kind)
    N, H, W, C = given.shape
    whole = (part[0], slice(0, H), slice(0, W), part[3])
    for mistake, strides in (
        ("x was read as if it was row-major", row_major((N, H, W, C))),
        ("x was read as (N, C, H, W)", (C * H * W, W, 1, H * W)),
        ("rows and columns of x were exchanged", (H * W * C, C, H * C, 1)),
    ):
        if strides != given.stride():
            yield mistake, read_with_strides(given, strides, whole)


def _statistics(padded: bool) -> Iterator[tuple[str, Reduce]]:
    """Other statistics of the taps of a window, of which those in the padding are NaN."""
    yield "the smallest number was taken", _reduced(lambda taps: taps.nan_to_num(math.inf).amin(0))
    yield "the mean was used instead of the maximum", _reduced(lambda taps: taps.nanmean(0))
    if padded:
        yield (
            "the mean of pixels and padding was used instead of the maximum",
            _reduced(lambda taps: taps.nansum(0) / len(taps)),
        )
    yield "the sum was used instead of the maximum", _reduced(lambda taps: taps.nansum(0))
    yield "the maximum began with 0", _reduced(lambda taps: taps.nan_to_num(0.0).amax(0).clamp(min=0.0))


def _reduced(statistic: Callable[[torch.Tensor], torch.Tensor]) -> Reduce:
    def reduce(x: torch.Tensor, window: tuple[int, int], rows: slice, columns: int, stride: int) -> torch.Tensor:
        taps = [pooled(x[:, r:, s:], (1, 1), rows, columns, stride) for r in range(window[0]) for s in range(window[1])]
        return statistic(torch.stack(taps))

    return reduce
