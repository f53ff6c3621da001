"""Variants of matmul: other digits, parts of K, operands that lie otherwise, scales."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from suite.core.integers import cdiv
from suite.numerics.bounds import MMA_DEPTH, deviations, limit, sum_shift, sum_variance
from suite.numerics.float8 import FLOAT8, FLOAT8_SUM_BITS, MMA_WIDTH, float8_limit
from suite.numerics.formats import SIGNIFICANT_BITS
from suite.ops.matmul import grain, matmul_limit
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._blocks import SIZES, kept_without_the_rest, padded, spans
from suite.variants._reading import as_read, row_major
from suite.variants._rounding import coarser, rounded, sixteen, truncated

COLUMNS = 64
"""Of a part of the result."""
MOST_STEPS = 1024
"""Blocks of K that are added one after the other."""
PARTS = (2, 4, 8, 16)
"""Of K, that are summed apart and added."""


@dataclass(frozen=True)
class Product:
    """The factors of a part of the result, float64, and what its bound needs."""

    a: torch.Tensor
    b: torch.Tensor
    case: Case
    output_dtype: str
    scale: float
    step: float

    def variant(self, mistake: str, a: torch.Tensor, b: torch.Tensor, scale: float | None = None) -> Variant:
        """The product of other factors."""
        return self.as_bounded(mistake, (a @ b) * (self.scale if scale is None else scale), a, b, scale)

    def as_bounded(
        self, mistake: str, value: torch.Tensor, a: torch.Tensor, b: torch.Tensor, scale: float | None = None
    ) -> Variant:
        """`value`, with the bound of a product of these factors."""
        case, k = self.case, max(1, a.shape[1])
        spread = (a.square() @ b.square()) * (self.scale if scale is None else scale) ** 2
        count = case["M"] * case["N"]
        if case.dtype == FLOAT8:
            bound = float8_limit(value, spread, self.step, k, count, self.output_dtype, case.precision)
        else:
            bound = matmul_limit(value, spread, k, count, case.dtype, case.precision)
        return Variant(mistake, value, bound)


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    a, b = inputs[0][part[0]].double(), inputs[1][:, part[1]].double()
    scales = [float(each) for each in inputs[2:]]
    step = math.prod(scales) * grain(inputs[0]) * grain(inputs[1]) if case.dtype == FLOAT8 else 0.0
    dtype = "bfloat16" if case.dtype == FLOAT8 else case.dtype
    of = Product(a, b, case, dtype, math.prod(scales), step)
    yield from _factors(of)
    if scales:
        yield from _scales(inputs, of, scales, part)
    for ways in (_float8_sums(of), _placed(inputs, of, part), _rests(of), _sums(of)):
        yield from ways


def _factors(of: Product) -> Iterator[Variant]:
    """Factors of fewer digits, whose products a tensor core adds."""
    a, b, case = of.a, of.b, of.case
    if case.dtype not in ("float32", "float16") or case.precision == "tf32":
        return
    kinds = [*coarser(case.dtype), *(["tf32"] if case.dtype == "float32" else [])]
    ways = [(f"rounded to {kind}", kind, rounded(a, kind), rounded(b, kind)) for kind in kinds]
    if "tf32" in kinds:
        bits = SIGNIFICANT_BITS["tf32"]
        ways.append(("truncated to tf32", "tf32", truncated(a, bits), truncated(b, bits)))
    ways += [(f"rounded to {kind}, those of a alone", kind, rounded(a, kind), b) for kind in kinds]
    ways += [(f"rounded to {kind}, those of b alone", kind, a, rounded(b, kind)) for kind in kinds]
    for how, kind, small_a, small_b in ways:
        value, spread, terms = small_a @ small_b, small_a.square() @ small_b.square(), a.shape[1]
        depth = MMA_DEPTH[kind]
        error = sum_variance(value, spread, terms, depth).sqrt() * deviations(case["M"] * case["N"])
        bound = limit(error + sum_shift(value, terms, depth), value, case.dtype)
        yield Variant(f"factors were {how}", value, bound)
        if how == f"rounded to {kind}" and kind != "tf32":
            yield Variant(f"factors and the result were {how}", rounded(value, kind), bound)


def _scales(inputs: Inputs, of: Product, scales: list[float], part: Part) -> Iterator[Variant]:
    a, b = of.a, of.b
    for mistake, scale in (
        ("the scale of a was left out", scales[1]),
        ("the scale of b was left out", scales[0]),
        ("both scales were left out", 1.0),
        ("both scales were applied twice", of.scale**2),
        ("it was divided by the scales", 1.0 / of.scale),
    ):
        yield of.variant(mistake, a, b, scale)
    small = rounded(a @ b, "bfloat16") * of.scale
    yield of.as_bounded("sums were rounded to bfloat16 before they were scaled", small, a, b)
    half = rounded((a @ b) * of.scale, "float16")
    yield of.as_bounded("the result was rounded to float16", half, a, b)
    other_a, other_b = (x.view(torch.float8_e5m2).double() for x in inputs[:2])
    yield of.variant("e4m3 was read as e5m2", other_a[part[0]], other_b[:, part[1]])


def _rests(of: Product) -> Iterator[Variant]:
    """Too few or too many terms."""
    a, b, k = of.a, of.b, of.a.shape[1]
    for kept in kept_without_the_rest(k):
        left = f"{k - kept} of K were" if k - kept > 1 else "of K was"
        yield of.variant(f"the last {left} left out", a[:, :kept], b[:kept])
        yield of.variant(f"the first {left} left out", a[:, k - kept :], b[k - kept :])
    for more in padded(k):
        beyond = a[:, -1:].expand(-1, more), b[-1:].expand(more, -1)
        mistake = f"the last of K was counted {more} times more"
        yield of.variant(mistake, torch.cat((a, beyond[0]), 1), torch.cat((b, beyond[1])))
    for size in SIZES:
        rest = k % size
        if rest and k > size:
            old = slice(k - size, k - rest)
            mistake = f"the last block of {size} of K kept what the one before had left there"
            yield of.variant(mistake, torch.cat((a, a[:, old]), 1), torch.cat((b, b[old])))


def _placed(inputs: Inputs, of: Product, part: Part) -> Iterator[Variant]:
    """Operands that are taken to lie otherwise in memory."""
    k = of.a.shape[1]
    for position, name in enumerate("ab"):
        x = inputs[position]
        lead = x.shape[0]
        ways = {
            f"{name} was read transposed": x.stride()[::-1],
            f"{name} was read as if it was row-major": row_major(x.shape),
            f"rows of {name} were read as if they were {lead} apart": (lead, 1),
            f"{name} was read as if it was column-major": (1, x.shape[0]),
        }
        different = {strides: mistake for mistake, strides in reversed(ways.items()) if strides != x.stride()}
        for strides, mistake in different.items():
            if position == 0:
                yield of.variant(mistake, as_read(x, strides, (part[0], slice(0, k))), of.b)
            else:
                yield of.variant(mistake, of.a, as_read(x, strides, (slice(0, k), part[1])))
    if inputs[0].shape == inputs[1].shape and inputs[0].dtype != getattr(torch, FLOAT8):
        rows, columns = (part[0], slice(0, k)), (slice(0, k), part[1])
        exchanged = as_read(inputs[1], inputs[1].stride(), rows), as_read(inputs[0], inputs[0].stride(), columns)
        yield of.variant("a and b were exchanged: B A", *exchanged)
        transposed = (as_read(x, x.stride()[::-1], at) for x, at in zip(inputs, (rows, columns), strict=True))
        yield of.variant("both were read transposed", *transposed)


def _float8_sums(of: Product) -> Iterator[Variant]:
    """Sums of more than 128 products with the bits of a tensor core's."""
    a, b, k = of.a, of.b, of.a.shape[1]
    if of.case.dtype == FLOAT8 and of.case.precision == "promoted" and k <= MMA_WIDTH * MOST_STEPS:
        acc = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float64, device=a.device)
        for span in spans(k, MMA_WIDTH):
            acc = truncated(acc + a[:, span] @ b[span], FLOAT8_SUM_BITS)
        yield of.as_bounded(f"all sums had {FLOAT8_SUM_BITS} bits", acc * of.scale, a, b)


def _sums(of: Product) -> Iterator[Variant]:
    """Sums that are rounded on the way."""
    a, b, case, k = of.a, of.b, of.case, of.a.shape[1]
    if case.dtype == FLOAT8:
        return
    for kind in sixteen(case.dtype):
        if kind != case.dtype:
            yield of.as_bounded(f"the result was rounded to {kind}", rounded(a @ b, kind), a, b)
        for count in PARTS:
            if count < k:
                acc = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float64, device=a.device)
                for span in spans(k, cdiv(k, count)):
                    acc = rounded(acc + rounded(a[:, span] @ b[span], kind), kind)
                yield of.as_bounded(f"the sums of {count} parts of K were rounded to {kind}", acc, a, b)
        for size in reversed(SIZES):
            if size < k <= size * MOST_STEPS:
                acc = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float64, device=a.device)
                for span in spans(k, size):
                    acc = rounded(acc + a[:, span] @ b[span], kind)
                blocks = f"block of {size} of K" if size > 1 else "product"
                yield of.as_bounded(f"the sum was rounded to {kind} after each {blocks}", acc, a, b)
