"""Variants of silu_mul_quantize: another product before the codes, and the mistakes of quantize."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from suite.ops.silu_mul import gate, product_error
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._rounding import rounded, sixteen_bit_formats
from suite.variants.quantize import MAX_ELEMENTS, code_mistakes, matrix_of
from suite.variants.silu_mul import activations


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    if inputs[0].numel() > MAX_ELEMENTS:
        return
    a, b = (each.double() for each in inputs)
    of = gate(a, "silu")
    active = a * of.s
    right = matrix_of(active * b, case, product_error(a, b, of, active * b))
    for mistake, y in _products(a, b, of.s, case.dtype):
        yield matrix_of(y, case, product_error(a, b, of, y)).plain(mistake, part)
    yield from code_mistakes(right, case, part)


def _products(a: torch.Tensor, b: torch.Tensor, s: torch.Tensor, dtype: str) -> Iterator[tuple[str, torch.Tensor]]:
    active = a * s
    for mistake, other in activations(a, "silu"):
        yield mistake, other * b
    yield "act(b) a was used instead of act(a) b", b * gate(b, "silu").s * a
    yield "b was left out", active
    yield "the sum was used instead of the product", active + b
    for kind in sixteen_bit_formats(dtype):
        yield f"the product was rounded to {kind} before its code", rounded(active * b, kind)
        yield f"act(a) was rounded to {kind} before the product", rounded(active, kind) * b
        yield f"the sigmoid was rounded to {kind}", rounded(s, kind) * a * b
