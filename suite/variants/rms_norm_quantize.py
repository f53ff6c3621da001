"""Variants of rms_norm_quantize: another norm before the codes, and the mistakes of quantize."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from suite import ops
from suite.ops.rms_norm import rms_norm_error
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._rounding import rounded, sixteen_bit_formats
from suite.variants.quantize import MAX_ELEMENTS, code_mistakes, matrix_of
from suite.variants.rms_norm import formulas


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    if inputs[0].numel() > MAX_ELEMENTS:
        return
    x, weight = (each.double() for each in inputs)
    eps = float(ops.get("rms_norm_quantize").arguments(case)["eps"])
    mean = x.square().mean(dim=1, keepdim=True)
    scale = torch.rsqrt(mean + eps)
    right = x * scale * weight

    def error(y: torch.Tensor) -> torch.Tensor:
        return rms_norm_error(x, weight, scale, y, math.prod(case.shape), case.dtype)

    whole = (slice(0, case["M"]), slice(0, case["N"]))
    for mistake, numbers, weights, row_scale in formulas(inputs, x, weight, mean, whole, eps):
        y = numbers * row_scale * weights
        yield matrix_of(y, case, error(y)).plain(mistake, part)
    for kind in sixteen_bit_formats(case.dtype):
        for mistake, y in (
            (f"y was rounded to {kind} before its code", rounded(right, kind)),
            (f"x * scale was rounded to {kind} before the weight", rounded(x * scale, kind) * weight),
            (f"the scale of a row was rounded to {kind}", x * rounded(scale, kind) * weight),
        ):
            yield matrix_of(y, case, error(y)).plain(mistake, part)
    yield from code_mistakes(matrix_of(right, case, error(right)), case, part)
