"""Variants of matmul: other digits, parts of K, operands read with other strides, scales."""

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
from suite.variants._blocks import SIZES, padding_lengths, shortened_lengths, spans
from suite.variants._rounding import coarser_formats, in_parts, rounded, sixteen_bit_formats, truncated
from suite.variants._strides import read_with_strides, row_major

COLUMNS = 64
"""Largest number of columns of the part of a result for which variants are computed."""
MAX_STEPS = 1024
"""Largest number of blocks of K in a simulated sum."""
PARTS_NOTE = ", or split into parts of bfloat16, which has no digits below 2^-133: scale such small operands first"
"""Why a product by three parts is refused for operands whose further parts are 0."""
PARTS = (2, 4, 8, 16)
"""Split-K factors to try."""


@dataclass(frozen=True)
class Product:
    """The factors of a part of the result, float64, and the numbers that its bound needs."""

    a: torch.Tensor
    b: torch.Tensor
    case: Case
    output_dtype: str
    scale: float
    step: float

    def variant(self, mistake: str, a: torch.Tensor, b: torch.Tensor, scale: float | None = None) -> Variant:
        """Return the product of other factors."""
        return self.as_bounded(mistake, (a @ b) * (self.scale if scale is None else scale), a, b, scale)

    def as_bounded(
        self, mistake: str, value: torch.Tensor, a: torch.Tensor, b: torch.Tensor, scale: float | None = None
    ) -> Variant:
        """Return `value` with the bound of a product of these factors."""
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
    product = Product(a, b, case, dtype, math.prod(scales), step)
    yield from _factors(product)
    if scales:
        yield from _scales(inputs, product, scales, part)
    for group in (_float8_sums(product), _readings(inputs, product, part), _term_counts(product), _sums(product)):
        yield from group


def _factors(product: Product) -> Iterator[Variant]:
    """Factors of fewer digits, whose products a tensor core adds."""
    a, b, case = product.a, product.b, product.case
    if case.dtype not in ("float32", "float16") or case.precision == "tf32":
        return
    kinds = [*coarser_formats(case.dtype), *(["tf32"] if case.dtype == "float32" else [])]
    choices = [(f"rounded to {kind}", kind, rounded(a, kind), rounded(b, kind)) for kind in kinds]
    if "tf32" in kinds:
        bits = SIGNIFICANT_BITS["tf32"]
        choices.append(("truncated to tf32", "tf32", truncated(a, bits), truncated(b, bits)))
    choices += [(f"rounded to {kind}, those of a alone", kind, rounded(a, kind), b) for kind in kinds]
    choices += [(f"rounded to {kind}, those of b alone", kind, a, rounded(b, kind)) for kind in kinds]
    parts_are_one = any(torch.equal(in_parts(x), rounded(x, "bfloat16")) for x in (a, b))
    notes = {"rounded to bfloat16": PARTS_NOTE} if parts_are_one and case.dtype == "float32" else {}
    for how, kind, small_a, small_b in choices:
        value, spread, terms = small_a @ small_b, small_a.square() @ small_b.square(), a.shape[1]
        depth = MMA_DEPTH[kind]
        error = sum_variance(value, spread, terms, depth).sqrt() * deviations(case["M"] * case["N"])
        bound = limit(error + sum_shift(value, terms, depth), value, case.dtype)
        yield Variant(f"factors were {how}{notes.get(how, '')}", value, bound)
        if how == f"rounded to {kind}" and kind != "tf32":
            yield Variant(f"factors and the result were {how}", rounded(value, kind), bound)


def _scales(inputs: Inputs, product: Product, scales: list[float], part: Part) -> Iterator[Variant]:
    a, b = product.a, product.b
    for mistake, scale in (
        ("the scale of a was left out", scales[1]),
        ("the scale of b was left out", scales[0]),
        ("both scales were left out", 1.0),
        ("both scales were applied twice", product.scale**2),
        ("it was divided by the scales", 1.0 / product.scale),
    ):
        yield product.variant(mistake, a, b, scale)
    small = rounded(a @ b, "bfloat16") * product.scale
    yield product.as_bounded("sums were rounded to bfloat16 before they were scaled", small, a, b)
    half = rounded((a @ b) * product.scale, "float16")
    yield product.as_bounded("the result was rounded to float16", half, a, b)
    other_a, other_b = (x.view(torch.float8_e5m2).double() for x in inputs[:2])
    yield product.variant("e4m3 was read as e5m2", other_a[part[0]], other_b[:, part[1]])


def _term_counts(product: Product) -> Iterator[Variant]:
    """Too few or too many terms."""
    a, b, k = product.a, product.b, product.a.shape[1]
    for kept in shortened_lengths(k):
        left = f"{k - kept} of K were" if k - kept > 1 else "of K was"
        yield product.variant(f"the last {left} left out", a[:, :kept], b[:kept])
        yield product.variant(f"the first {left} left out", a[:, k - kept :], b[k - kept :])
    for more in padding_lengths(k):
        beyond = a[:, -1:].expand(-1, more), b[-1:].expand(more, -1)
        mistake = f"the last of K was counted {more} times more"
        yield product.variant(mistake, torch.cat((a, beyond[0]), 1), torch.cat((b, beyond[1])))
    for size in SIZES:
        rest = k % size
        if rest and k > size:
            old = slice(k - size, k - rest)
            mistake = f"the last block of {size} of K kept values of the block before"
            yield product.variant(mistake, torch.cat((a, a[:, old]), 1), torch.cat((b, b[old])))


def _readings(inputs: Inputs, product: Product, part: Part) -> Iterator[Variant]:
    """Operands read with other strides."""
    k = product.a.shape[1]
    for position, name in enumerate("ab"):
        x = inputs[position]
        lead = x.shape[0]
        readings = {
            f"{name} was read transposed": x.stride()[::-1],
            f"{name} was read as if it was row-major": row_major(x.shape),
            f"rows of {name} were read as if they were {lead} apart": (lead, 1),
            f"{name} was read as if it was column-major": (1, x.shape[0]),
        }
        different = {strides: mistake for mistake, strides in reversed(readings.items()) if strides != x.stride()}
        for strides, mistake in different.items():
            if position == 0:
                yield product.variant(mistake, read_with_strides(x, strides, (part[0], slice(0, k))), product.b)
            else:
                yield product.variant(mistake, product.a, read_with_strides(x, strides, (slice(0, k), part[1])))
    if inputs[0].shape == inputs[1].shape and inputs[0].dtype != getattr(torch, FLOAT8):
        rows, columns = (part[0], slice(0, k)), (slice(0, k), part[1])
        exchanged = (
            read_with_strides(inputs[1], inputs[1].stride(), rows),
            read_with_strides(inputs[0], inputs[0].stride(), columns),
        )
        yield product.variant("a and b were exchanged: B A", *exchanged)
        transposed = (read_with_strides(x, x.stride()[::-1], at) for x, at in zip(inputs, (rows, columns), strict=True))
        yield product.variant("both were read transposed", *transposed)


def _float8_sums(product: Product) -> Iterator[Variant]:
    """Tensor-core accumulation over more than 128 products."""
    a, b, k = product.a, product.b, product.a.shape[1]
    if product.case.dtype == FLOAT8 and product.case.precision == "promoted" and k <= MMA_WIDTH * MAX_STEPS:
        acc = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float64, device=a.device)
        for span in spans(k, MMA_WIDTH):
            acc = truncated(acc + a[:, span] @ b[span], FLOAT8_SUM_BITS)
        yield product.as_bounded(f"all sums had {FLOAT8_SUM_BITS} bits", acc * product.scale, a, b)


def _sums(product: Product) -> Iterator[Variant]:
    """Intermediate roundings of the sums."""
    a, b, case, k = product.a, product.b, product.case, product.a.shape[1]
    if case.dtype == FLOAT8:
        return
    for kind in sixteen_bit_formats(case.dtype):
        if kind != case.dtype:
            yield product.as_bounded(f"the result was rounded to {kind}", rounded(a @ b, kind), a, b)
        for count in PARTS:
            if count < k:
                acc = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float64, device=a.device)
                for span in spans(k, cdiv(k, count)):
                    acc = rounded(acc + rounded(a[:, span] @ b[span], kind), kind)
                yield product.as_bounded(f"the sums of {count} parts of K were rounded to {kind}", acc, a, b)
        for size in reversed(SIZES):
            if size < k <= size * MAX_STEPS:
                acc = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float64, device=a.device)
                for span in spans(k, size):
                    acc = rounded(acc + a[:, span] @ b[span], kind)
                blocks = f"block of {size} of K" if size > 1 else "product"
                yield product.as_bounded(f"the sum was rounded to {kind} after each {blocks}", acc, a, b)
