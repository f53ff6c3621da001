"""Variants of conv2d: shifted windows, taps in another order, operands read with other strides, other digits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.nn.functional import pad

from suite.ops.conv2d import OP, products
from suite.ops.matmul import matmul_limit
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._blocks import count_were, shortened_lengths
from suite.variants._rounding import coarser_formats, rounded, sixteen_bit_formats
from suite.variants._strides import read_with_strides, row_major

COLUMNS = 64
"""Largest number of columns of the part of a result for which variants are computed."""


@dataclass(frozen=True)
class Windows:
    """Some images and weights, float64, without padding, and the examined part of their convolution."""

    x: torch.Tensor
    weight: torch.Tensor
    case: Case
    part: Part

    def variant(
        self,
        mistake: str,
        *,
        x: torch.Tensor | None = None,
        weight: torch.Tensor | None = None,
        begin: tuple[int, int] = (0, 0),
        stride: int | None = None,
        filled: str = "constant",
    ) -> Variant:
        """Return the result with other images, weights or strides, or with windows moved by `begin`: down, right.

        filled: the padding mode, as `torch.nn.functional.pad` names it.
        """
        x, weight = (mine if other is None else other for mine, other in ((self.x, x), (self.weight, weight)))
        _, rows, columns, _ = self.part
        stride, padding = self.case["stride"] if stride is None else stride, self.case["padding"]
        last = tuple(
            (each.stop - 1) * stride + taps for each, taps in zip((rows, columns), weight.shape[1:3], strict=True)
        )
        after = tuple(
            max(padding, end + moved - size - padding)
            for end, size, moved in zip(last, x.shape[1:3], begin, strict=True)
        )
        border = (padding - begin[1], after[1], padding - begin[0], after[0])
        channels_first = pad(x.permute(0, 3, 1, 2), border, mode=filled).permute(0, 2, 3, 1)
        value, spread = products(channels_first, weight, rows, columns.stop, stride)
        return self.bounded(mistake, value, spread)

    def bounded(self, mistake: str, value: torch.Tensor, spread: torch.Tensor) -> Variant:
        """Return rows of the result up to the part's last column, with the bound of a convolution."""
        case = self.case
        terms, count = math.prod(OP.operands(case)[1][1:]), math.prod(OP.output_shape(case))
        limit = matmul_limit(value, spread, terms, count, case.dtype, case.precision)
        return Variant(mistake, value[:, :, self.part[2]], limit[:, :, self.part[2]])


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    if math.prod(each.stop - each.start for each in part) == 0 or inputs[1].numel() == 0:
        return
    x, weight = inputs[0][part[0]].double(), inputs[1][part[3]].double()
    windows = Windows(x, weight, case, part)
    for group in (_places(windows), _taps(windows), _layouts(inputs, windows), _digits(windows)):
        yield from group


def _places(windows: Windows) -> Iterator[Variant]:
    """Mistakes in the places of windows and taps."""
    stride, padding, (_, R, S, _) = windows.case["stride"], windows.case["padding"], windows.weight.shape
    if padding:
        if padding > 1:
            yield windows.variant("there was no padding", begin=(padding, padding))
        smallest = min(windows.x.shape[1:3])
        if padding < smallest:
            yield windows.variant("the edge was repeated in the padding", filled="replicate")
            yield windows.variant("the image was mirrored in the padding", filled="reflect")
        yield _wrapped(windows)
    for steps, which in ((1, "late"), (-1, "early")):
        without = ", as without padding" if steps == padding else ""
        yield windows.variant(f"windows began one row and one column {which}{without}", begin=(steps, steps))
        yield windows.variant(f"windows began one row {which}", begin=(steps, 0))
        yield windows.variant(f"windows began one column {which}", begin=(0, steps))
    if stride > 1:
        yield windows.variant("windows were 1 apart", stride=1)
    for apart in {2, stride} - {1}:
        if max(R, S) > 1:
            spread = windows.weight.new_zeros(
                len(windows.weight), (R - 1) * apart + 1, (S - 1) * apart + 1, windows.weight.shape[3]
            )
            spread[:, ::apart, ::apart] = windows.weight
            yield windows.variant(f"taps were {apart} apart", weight=spread)


def _wrapped(windows: Windows) -> Variant:
    """Padding that continues with the next row in memory; only rows are padded."""
    N, H, W, C = windows.x.shape
    padding = windows.case["padding"]
    flat = pad(windows.x.reshape(N, H * W, C), (0, 0, padding, padding))
    wide = torch.stack([flat[:, h * W : h * W + W + 2 * padding] for h in range(H)], dim=1)
    rows = pad(wide, (0, 0, 0, 0, padding, padding))
    value, spread = products(rows, windows.weight, windows.part[1], windows.part[2].stop, windows.case["stride"])
    return windows.bounded("columns in the padding were those of the rows beside", value, spread)


def _taps(windows: Windows) -> Iterator[Variant]:
    """Mistakes in taps and channels."""
    weight, (_, R, S, C) = windows.weight, windows.weight.shape
    if R * S > 1:
        yield windows.variant("the taps were flipped", weight=weight.flip(1, 2))
    if R == S and R > 1:
        yield windows.variant("r and s of the weights were exchanged", weight=weight.transpose(1, 2))
    for noun, axis in (("row", 1), ("column", 2)):
        if weight.shape[axis] > 1:
            for which, index in (("first", 0), ("last", -1)):
                without = weight.clone()
                without.select(axis, index).zero_()
                yield windows.variant(f"the {which} {noun} of taps was left out", weight=without)
    for kept in shortened_lengths(C):
        without = weight.clone()
        without[..., kept:] = 0.0
        yield windows.variant(f"the last {count_were(C - kept, 'channel')} left out", weight=without)


def _layouts(inputs: Inputs, windows: Windows) -> Iterator[Variant]:
    """Operands read with other strides."""
    (N, H, W, C), (K, R, S, _) = (each.shape for each in inputs)
    whole = tuple(slice(0, size) for size in (N, H, W, C))
    images = {
        "x was read as if it was row-major": row_major((N, H, W, C)),
        "x was read as (N, C, H, W)": (C * H * W, W, 1, H * W),
        "rows and columns of x were exchanged": (H * W * C, C, H * C, 1),
    }
    for mistake, strides in images.items():
        if strides != inputs[0].stride():
            yield windows.variant(mistake, x=read_with_strides(inputs[0], strides, (windows.part[0], *whole[1:])))
    whole = tuple(slice(0, size) for size in (K, R, S, C))
    weights = {
        "the weights were read as if they were row-major": row_major((K, R, S, C)),
        "the weights were read as (K, C, R, S)": (C * R * S, S, 1, R * S),
        "the weights were read as (R, S, C, K)": (1, S * C * K, C * K, K),
    }
    for mistake, strides in weights.items():
        if strides != inputs[1].stride():
            yield windows.variant(mistake, weight=read_with_strides(inputs[1], strides, (windows.part[3], *whole[1:])))


def _digits(windows: Windows) -> Iterator[Variant]:
    """Intermediate roundings."""
    case = windows.case
    if case.dtype != "bfloat16" and case.precision != "tf32":
        for kind in coarser_formats(case.dtype):
            x, weight = rounded(windows.x, kind), rounded(windows.weight, kind)
            yield windows.variant(f"factors were rounded to {kind}", x=x, weight=weight)
    padding = case["padding"]
    x = pad(windows.x, (0, 0, padding, padding, padding, padding))
    value, spread = products(x, windows.weight, windows.part[1], windows.part[2].stop, case["stride"])
    for kind in sixteen_bit_formats(case.dtype):
        if kind != case.dtype:
            yield windows.bounded(f"the result was rounded to {kind}", rounded(value, kind), spread)
        total = torch.zeros_like(value)
        for r in range(windows.weight.shape[1]):
            for s in range(windows.weight.shape[2]):
                alone = torch.zeros_like(windows.weight)
                alone[:, r, s] = windows.weight[:, r, s]
                total = rounded(
                    total + products(x, alone, windows.part[1], windows.part[2].stop, case["stride"])[0], kind
                )
        yield windows.bounded(f"the sum was rounded to {kind} after each tap", total, spread)
