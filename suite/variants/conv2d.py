"""Variants of conv2d: windows that begin elsewhere, taps in another order, operands read otherwise, other digits."""

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
from suite.variants._blocks import kept_without_the_rest, were
from suite.variants._reading import as_read, row_major
from suite.variants._rounding import coarser, rounded, sixteen

COLUMNS = 64
"""Of a part of the result."""


@dataclass(frozen=True)
class Windows:
    """Some images and weights, float64, without padding, and the part of their convolution that is looked at."""

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
        begin: int = 0,
        stride: int | None = None,
        filled: str = "constant",
    ) -> Variant:
        """The result of other images, weights or strides, or of windows that begin `begin` further to the lower right.

        filled: how the padding is, as `torch.nn.functional.pad` calls it.
        """
        x, weight = (mine if other is None else other for mine, other in ((self.x, x), (self.weight, weight)))
        _, rows, columns, _ = self.part
        stride, padding = self.case["stride"] if stride is None else stride, self.case["padding"]
        last = tuple(
            (each.stop - 1) * stride + taps for each, taps in zip((rows, columns), weight.shape[1:3], strict=True)
        )
        after = tuple(max(padding, end + begin - size - padding) for end, size in zip(last, x.shape[1:3], strict=True))
        border = (padding - begin, after[1], padding - begin, after[0])
        channels_first = pad(x.permute(0, 3, 1, 2), border, mode=filled).permute(0, 2, 3, 1)
        value, spread = products(channels_first, weight, rows, columns.stop, stride)
        return self.bounded(mistake, value, spread)

    def bounded(self, mistake: str, value: torch.Tensor, spread: torch.Tensor) -> Variant:
        """Rows of the result, all columns up to the part's end, with the bound of a convolution."""
        case = self.case
        terms, count = math.prod(OP.operands(case)[1][1:]), math.prod(OP.output_shape(case))
        limit = matmul_limit(value, spread, terms, count, case.dtype, case.precision)
        return Variant(mistake, value[:, :, self.part[2]], limit[:, :, self.part[2]])


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    if math.prod(each.stop - each.start for each in part) == 0 or inputs[1].numel() == 0:
        return
    x, weight = inputs[0][part[0]].double(), inputs[1][part[3]].double()
    of = Windows(x, weight, case, part)
    for ways in (_places(of), _taps(of), _read(inputs, of), _digits(of)):
        yield from ways


def _places(of: Windows) -> Iterator[Variant]:
    """Where windows and taps are."""
    stride, padding, (_, R, S, _) = of.case["stride"], of.case["padding"], of.weight.shape
    if padding:
        yield of.variant("there was no padding", begin=padding)
        smallest = min(of.x.shape[1:3])
        if padding < smallest:
            yield of.variant("the edge was repeated in the padding", filled="replicate")
            yield of.variant("the image was mirrored in the padding", filled="reflect")
        yield _wrapped(of)
    yield of.variant("windows began one row and one column late", begin=1)
    yield of.variant("windows began one row and one column early", begin=-1)
    if stride > 1:
        yield of.variant("windows were 1 apart", stride=1)
    for apart in {2, stride} - {1}:
        if max(R, S) > 1:
            spread = of.weight.new_zeros(len(of.weight), (R - 1) * apart + 1, (S - 1) * apart + 1, of.weight.shape[3])
            spread[:, ::apart, ::apart] = of.weight
            yield of.variant(f"taps were {apart} apart", weight=spread)


def _wrapped(of: Windows) -> Variant:
    """Beyond the end of a row the next one goes on, as in memory; only rows are padded."""
    N, H, W, C = of.x.shape
    padding = of.case["padding"]
    flat = pad(of.x.reshape(N, H * W, C), (0, 0, padding, padding))
    wide = torch.stack([flat[:, h * W : h * W + W + 2 * padding] for h in range(H)], dim=1)
    rows = pad(wide, (0, 0, 0, 0, padding, padding))
    value, spread = products(rows, of.weight, of.part[1], of.part[2].stop, of.case["stride"])
    return of.bounded("columns in the padding were those of the rows beside", value, spread)


def _taps(of: Windows) -> Iterator[Variant]:
    """Which taps and channels count."""
    weight, (_, R, S, C) = of.weight, of.weight.shape
    if R * S > 1:
        yield of.variant("the taps were flipped", weight=weight.flip(1, 2))
    if R == S and R > 1:
        yield of.variant("r and s of the weights were exchanged", weight=weight.transpose(1, 2))
    for noun, axis in (("row", 1), ("column", 2)):
        if weight.shape[axis] > 1:
            for which, index in (("first", 0), ("last", -1)):
                without = weight.clone()
                without.select(axis, index).zero_()
                yield of.variant(f"the {which} {noun} of taps was left out", weight=without)
    for kept in kept_without_the_rest(C):
        without = weight.clone()
        without[..., kept:] = 0.0
        yield of.variant(f"the last {were(C - kept, 'channel')} left out", weight=without)


def _read(inputs: Inputs, of: Windows) -> Iterator[Variant]:
    """Operands that are taken to lie otherwise in memory."""
    (N, H, W, C), (K, R, S, _) = (each.shape for each in inputs)
    whole = tuple(slice(0, size) for size in (N, H, W, C))
    images = {
        "x was read as if it was row-major": row_major((N, H, W, C)),
        "x was read as (N, C, H, W)": (C * H * W, W, 1, H * W),
        "rows and columns of x were exchanged": (H * W * C, C, H * C, 1),
    }
    for mistake, strides in images.items():
        if strides != inputs[0].stride():
            yield of.variant(mistake, x=as_read(inputs[0], strides, (of.part[0], *whole[1:])))
    whole = tuple(slice(0, size) for size in (K, R, S, C))
    weights = {
        "the weights were read as if they were row-major": row_major((K, R, S, C)),
        "the weights were read as (K, C, R, S)": (C * R * S, S, 1, R * S),
        "the weights were read as (R, S, C, K)": (1, S * C * K, C * K, K),
    }
    for mistake, strides in weights.items():
        if strides != inputs[1].stride():
            yield of.variant(mistake, weight=as_read(inputs[1], strides, (of.part[3], *whole[1:])))


def _digits(of: Windows) -> Iterator[Variant]:
    """Roundings on the way."""
    case = of.case
    if case.dtype != "bfloat16" and case.precision != "tf32":
        for kind in coarser(case.dtype):
            x, weight = rounded(of.x, kind), rounded(of.weight, kind)
            yield of.variant(f"factors were rounded to {kind}", x=x, weight=weight)
    padding = case["padding"]
    x = pad(of.x, (0, 0, padding, padding, padding, padding))
    value, spread = products(x, of.weight, of.part[1], of.part[2].stop, case["stride"])
    for kind in sixteen(case.dtype):
        if kind != case.dtype:
            yield of.bounded(f"the result was rounded to {kind}", rounded(value, kind), spread)
        total = torch.zeros_like(value)
        for r in range(of.weight.shape[1]):
            for s in range(of.weight.shape[2]):
                alone = torch.zeros_like(of.weight)
                alone[:, r, s] = of.weight[:, r, s]
                total = rounded(total + products(x, alone, of.part[1], of.part[2].stop, case["stride"])[0], kind)
        yield of.bounded(f"the sum was rounded to {kind} after each tap", total, spread)
