"""Variants of int4_matmul: codes in another order, other scales and zero points, missing terms, sums in 16 bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from suite.numerics.repeats import repeats_of_products
from suite.ops.int4_matmul import GROUP, MIDDLE, per_term, product, unpacked
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._blocks import shortened_lengths
from suite.variants._rounding import rounded

MAX_PRODUCTS = 2**26
"""Largest number of products of a part with variants: each variant computes its own."""
OTHER_GROUPS = (32, 64, 256)
"""Other numbers of terms that share a scale."""


@dataclass(frozen=True)
class Weights:
    """The weights of a part of the result, float64: codes, and a scale and a zero point for each row and group."""

    codes: torch.Tensor
    scale: torch.Tensor
    zero: torch.Tensor
    packed: torch.Tensor
    """The bytes, two codes in each."""
    scales_of_rows: torch.Tensor
    """The scales of all rows of the weights, with those of this part first."""

    def values(self) -> torch.Tensor:
        k = self.codes.shape[1]
        return (self.codes - per_term(self.zero, k)) * per_term(self.scale, k)

    def by_group(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Weights:
        """Return the weights with scales and zero points changed alike."""
        return replace(self, scale=change(self.scale), zero=change(self.zero))


Mistake = Callable[[Weights], torch.Tensor]


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    given, weight, scale, *zeros = inputs
    x, columns, k = given[part[0]], part[1], given.shape[1]
    if not 0 < len(x) * (columns.stop - columns.start) * k <= MAX_PRODUCTS:
        return
    zero = zeros[0].double() if zeros else torch.full_like(scale, MIDDLE, dtype=torch.float64)
    found, packed = scale.double(), weight[columns]
    rows = found.roll(-columns.start, 0)
    right = Weights(unpacked(packed, k).double(), found[columns], zero[columns], packed, rows)
    w = right.values()
    equal = repeats_of_products(x.double(), w.mT)
    value, bound = product(x, w, case, equal)
    for mistake, change in _mistakes(k).items():
        yield Variant(mistake, *product(x, change(right), case, equal))
    for kept in shortened_lengths(k):
        left = f"the last {k - kept} of K were left out" if k - kept > 1 else "the last of K was left out"
        yield Variant(left, x[:, :kept].double() @ w[:, :kept].mT, bound)
    for mistake, coarse in _coarse(x.double(), right):
        yield Variant(mistake, coarse, bound)
    other = "float16" if case.dtype == "bfloat16" else "bfloat16"
    yield Variant(f"the result was rounded to {other}", rounded(value, other), bound)


def _mistakes(k: int) -> dict[str, Mistake]:
    """Return the mistakes with weights, which change all of them."""
    found: dict[str, Mistake] = {
        "the codes of a byte were exchanged": lambda w: replace(w, codes=_ordered(w.packed >> 4, w.packed, k)).values(),
        "both codes of a byte were the lower one": lambda w: replace(w, codes=_ordered(w.packed, w.packed, k)).values(),
        "the lower halves of bytes were the first half of K": lambda w: replace(
            w, codes=torch.cat((w.packed & 15, w.packed >> 4), 1)[:, :k].double()
        ).values(),
        "the zero points were left out": lambda w: replace(w, zero=torch.zeros_like(w.zero)).values(),
        "the zero points were added": lambda w: replace(w, zero=-w.zero).values(),
        "the zero points were 8": lambda w: replace(w, zero=torch.full_like(w.zero, MIDDLE)).values(),
        "the zero points were 1 too large": lambda w: replace(w, zero=w.zero + 1.0).values(),
        "the zero points were subtracted after scaling": lambda w: w.codes * per_term(w.scale, k) - per_term(w.zero, k),
        "codes were signed: 8 to 15 were -8 to -1": lambda w: replace(
            w, codes=w.codes - 16.0 * (w.codes >= 8), zero=torch.zeros_like(w.zero)
        ).values(),
        "the scales were left out": lambda w: replace(w, scale=torch.ones_like(w.scale)).values(),
        "it was divided by the scales": lambda w: replace(w, scale=1.0 / w.scale).values(),
        "all groups had the scale of the first group": lambda w: replace(
            w, scale=w.scale[:, :1].expand_as(w.scale)
        ).values(),
        "a group had the scale of the next one": lambda w: replace(w, scale=w.scale.roll(-1, 1)).values(),
        "a group had the zero point of the next one": lambda w: replace(w, zero=w.zero.roll(-1, 1)).values(),
        "a group had the scale and the zero point of the next one": lambda w: w.by_group(
            lambda each: each.roll(-1, 1)
        ).values(),
        "the groups were in the opposite order": lambda w: w.by_group(lambda each: each.flip(1)).values(),
        "a row of the weights had the scales of the next one": lambda w: replace(
            w, scale=w.scales_of_rows.roll(-1, 0)[: len(w.scale)]
        ).values(),
    }
    return found | {
        f"groups had {size} terms": lambda w, size=size: _regrouped(w, size) for size in OTHER_GROUPS if size < k
    }  # type: ignore[misc]


def _ordered(first: torch.Tensor, second: torch.Tensor, k: int) -> torch.Tensor:
    """Return the codes in the lower halves of two arrays of bytes, in turns."""
    return torch.stack((first & 15, second & 15), 2).flatten(1)[:, :k].double()


def _regrouped(w: Weights, size: int) -> torch.Tensor:
    """Return the weights with the scale and the zero point of group k // size for term k, or of the last one."""
    at = (torch.arange(w.codes.shape[1], device=w.codes.device) // size).clamp(max=w.scale.shape[1] - 1)
    return (w.codes - w.zero[:, at]) * w.scale[:, at]


def _coarse(x: torch.Tensor, w: Weights) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the results of sums that are rounded to 16 bits: of a group before or after its scale, and of all groups
    so far."""
    k = x.shape[1]
    codes = w.codes - per_term(w.zero, k)
    sums = [x[:, start : start + GROUP] @ codes[:, start : start + GROUP].mT for start in range(0, k, GROUP)]
    for kind in ("bfloat16", "float16"):
        before, after, total = (torch.zeros(len(x), len(codes), dtype=torch.float64, device=x.device) for _ in range(3))
        for group, each in enumerate(sums):
            scale = w.scale[:, group]
            before += rounded(each, kind) * scale
            after += rounded(each * scale, kind)
            total = rounded(total + each * scale, kind)
        yield f"the sum of a group was rounded to {kind} before it was scaled", before
        yield f"the sum of a group was rounded to {kind} after it was scaled", after
        yield f"the sum was rounded to {kind} after each group", total
