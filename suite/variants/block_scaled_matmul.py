"""Variants of block_scaled_matmul: other scales, missing terms, sums and factors of fewer digits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch

from suite.ops.block_scaled_matmul import GROUP, groups, scaled_product
from suite.ops.matmul import grain
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._blocks import shortened_lengths
from suite.variants._rounding import rounded

MAX_PRODUCTS = 2**26
"""Largest number of products of a part with variants: each variant computes its own."""
OTHER_GROUPS = (32, 64, 256)
"""Other numbers of terms that share a scale."""


@dataclass(frozen=True)
class Factors:
    """The codes of a part of the result and a scale for each of their rows and groups, float64."""

    a: torch.Tensor
    scale_a: torch.Tensor
    b: torch.Tensor
    scale_b: torch.Tensor
    of_blocks: torch.Tensor
    """The scales of b as given, (N / 128, K / 128)."""
    columns: torch.Tensor
    """The columns of this part."""

    def value(self, step: float, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        return scaled_product(self.a, self.scale_a, self.b, self.scale_b, step=step, count=count)

    def with_blocks(self, blocks: torch.Tensor) -> Factors:
        """Return the factors with another scale for each block of rows of b."""
        return replace(self, scale_b=blocks[self.columns // GROUP])


Mistake = Callable[[Factors], Factors]


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    codes_a, given_a, codes_b, given_b = inputs
    a, b, given_a, given_b = codes_a[part[0]].double(), codes_b[part[1]].double(), given_a.double(), given_b.double()
    k = a.shape[1]
    if not 0 < len(a) * len(b) * k <= MAX_PRODUCTS:
        return
    columns = torch.arange(part[1].start, part[1].stop, device=b.device)
    right = Factors(a, given_a[part[0]], b, given_b[columns // GROUP], given_b, columns)
    step, count = grain(codes_a) * grain(codes_b), case["M"] * case["N"]
    for mistake, change in mistakes(k).items():
        yield Variant(mistake, *change(right).value(step, count))
    next_rows = replace(right, scale_a=given_a.roll(-1, 0)[part[0]])
    yield Variant("a row of a had the scales of the next one", *next_rows.value(step, count))
    other_a, other_b = (x.view(torch.float8_e5m2).double() for x in (codes_a, codes_b))
    yield Variant("e4m3 was read as e5m2", *replace(right, a=other_a[part[0]], b=other_b[part[1]]).value(0.0, count))
    if case["M"] == case["N"]:
        exchanged = replace(right, scale_a=given_b[_places(part[0], a) // GROUP], scale_b=given_a[columns])
        yield Variant("the scales of a and b were exchanged", *exchanged.value(step, count))
    value, bound = right.value(step, count)
    for kept in shortened_lengths(k):
        left = f"the last {k - kept} of K were left out" if k - kept > 1 else "the last of K was left out"
        fewer = replace(right, a=right.a[:, :kept], b=right.b[:, :kept])
        yield Variant(left, *fewer.value(step, count))
    for mistake, coarse in COARSE.items():
        yield Variant(mistake, coarse(right), bound)
    yield Variant("the result was rounded to float16", rounded(value, "float16"), bound)


def _places(rows: slice, a: torch.Tensor) -> torch.Tensor:
    return torch.arange(rows.start, rows.stop, device=a.device)


def mistakes(k: int, a: str = "a", b: str = "b") -> dict[str, Mistake]:
    """The mistakes by name, with the names of both matrices. A diagnosis puts `as if` before the name."""
    found: dict[str, Mistake] = {
        f"the scales of {a} were left out": lambda x: replace(x, scale_a=torch.ones_like(x.scale_a)),
        f"the scales of {b} were left out": lambda x: replace(x, scale_b=torch.ones_like(x.scale_b)),
        "it was divided by the scales": lambda x: replace(x, scale_a=1.0 / x.scale_a, scale_b=1.0 / x.scale_b),
        "all groups had the scales of the first group": lambda x: replace(
            x, scale_a=x.scale_a[:, :1].expand_as(x.scale_a), scale_b=x.scale_b[:, :1].expand_as(x.scale_b)
        ),
        f"all groups of {a} had the scale of the first group": lambda x: replace(
            x, scale_a=x.scale_a[:, :1].expand_as(x.scale_a)
        ),
        f"all groups of {b} had the scale of the first group": lambda x: replace(
            x, scale_b=x.scale_b[:, :1].expand_as(x.scale_b)
        ),
        "a group had the scales of the next one": lambda x: replace(
            x, scale_a=x.scale_a.roll(-1, 1), scale_b=x.scale_b.roll(-1, 1)
        ),
        "the scales of the groups were in the opposite order": lambda x: replace(
            x, scale_a=x.scale_a.flip(1), scale_b=x.scale_b.flip(1)
        ),
        f"the rows of {b} had the scales of the first 128": lambda x: x.with_blocks(
            x.of_blocks[:1].expand_as(x.of_blocks)
        ),
        f"the rows of {b} had the scales of the next 128": lambda x: x.with_blocks(x.of_blocks.roll(-1, 0)),
        "the scales were rounded up to powers of two": lambda x: replace(
            x, scale_a=x.scale_a.log2().ceil().exp2(), scale_b=x.scale_b.log2().ceil().exp2()
        ),
        "the scales were rounded to bfloat16": lambda x: replace(
            x, scale_a=rounded(x.scale_a, "bfloat16"), scale_b=rounded(x.scale_b, "bfloat16")
        ),
    }
    return found | {
        f"groups had {size} terms": lambda x, size=size: _regrouped(x, size) for size in OTHER_GROUPS if size < k
    }  # type: ignore[misc]


def _regrouped(x: Factors, size: int) -> Factors:
    """Return the factors with the scales of group k // size for term k, or of the last one, as codes times scales."""
    at = (torch.arange(x.a.shape[1], device=x.a.device) // size).clamp(max=x.scale_a.shape[1] - 1)
    ones_a, ones_b = torch.ones_like(x.scale_a), torch.ones_like(x.scale_b)
    return replace(x, a=x.a * x.scale_a[:, at], b=x.b * x.scale_b[:, at], scale_a=ones_a, scale_b=ones_b)


def _with_rounded_factors(x: Factors, kind: str) -> torch.Tensor:
    at = torch.arange(x.a.shape[1], device=x.a.device) // GROUP
    return rounded(x.a * x.scale_a[:, at], kind) @ rounded(x.b * x.scale_b[:, at], kind).mT


def _with_rounded_sums(x: Factors, kind: str) -> torch.Tensor:
    acc = torch.zeros(len(x.a), len(x.b), dtype=torch.float64, device=x.a.device)
    for number, span in groups(x.a.shape[1]):
        scale = x.scale_a[:, number, None] * x.scale_b[:, number]
        acc = rounded(acc + x.a[:, span] @ x.b[:, span].mT * scale, kind)
    return acc


COARSE: dict[str, Callable[[Factors], torch.Tensor]] = {
    **{
        f"codes times scales were rounded to {kind}": partial(_with_rounded_factors, kind=kind)
        for kind in ("bfloat16", "float16", "tf32")
    },
    **{
        f"the sum was rounded to {kind} after each group": partial(_with_rounded_sums, kind=kind)
        for kind in ("bfloat16", "float16")
    },
}
"""Results of factors that are rounded after scaling, and of sums that are rounded after each group, by the mistake."""
