"""Variants of linear_sigmoid: a misplaced bias, other sigmoids, terms of K missing or repeated, other digits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch

from suite.ops.linear_sigmoid import linear_sigmoid_limit, logits
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._blocks import SIZES, shortened_lengths
from suite.variants._rounding import coarser_formats, rounded, sixteen_bit_formats

COLUMNS = 64
"""Largest number of columns of the part of a result for which variants are computed."""
MAX_STEPS = 1024
"""Largest number of additions of a simulated sum."""


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    x, weight, bias = (each.double() for each in (inputs[0][part[0]], inputs[1][part[1]], inputs[2][part[1]]))
    plain = logits(x, weight, bias, case)
    count = math.prod(case.shape[:2])

    def variant(mistake: str, z: torch.Tensor) -> Variant:
        """Return the result of other logits, with errors as large as for the right ones."""
        value = torch.sigmoid(z)
        return Variant(mistake, value, linear_sigmoid_limit(replace(plain, z=z), value, count, case.dtype))

    product = plain.z - bias
    for mistake, added in _biases(inputs, bias, part):
        yield variant(mistake, product + added)
    limit = linear_sigmoid_limit(plain, torch.sigmoid(plain.z), count, case.dtype)
    for mistake, value in _results(product, plain.z, bias):
        yield Variant(mistake, value, limit * (1.0 + value.abs()))
    for mistake, other in _products(inputs, x, weight, case, part):
        yield variant(mistake, other + bias)
    for largest in (1.0, 2.0, 4.0, 8.0, 10.0, 16.0, 20.0):
        yield variant(f"logits were clamped to {largest:g}", plain.z.clamp(-largest, largest))


def _biases(inputs: Inputs, bias: torch.Tensor, part: Part) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield each mistake with the bias that it adds."""
    yield "the bias was left out", torch.zeros_like(bias)
    yield "the bias was added twice", 2.0 * bias
    yield "the bias was subtracted", -bias
    (m, _), n = inputs[0].shape, len(inputs[2])
    if m <= n:
        yield "bias[i] was used instead of bias[j]", inputs[2].double()[:m][part[0], None]
    for kind in coarser_formats("float32" if inputs[2].dtype == torch.float32 else "float16"):
        yield f"the bias was rounded to {kind}", rounded(bias, kind)


def _results(product: torch.Tensor, z: torch.Tensor, bias: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield each mistake with its result."""
    yield "the bias was added after the sigmoid", torch.sigmoid(product) + bias
    yield "the sigmoid was left out", z
    yield "the sigmoid was of the other sign", torch.sigmoid(-z)
    yield "tanh was used instead of the sigmoid", torch.tanh(z)
    yield "the result was its own derivative", torch.sigmoid(z) * torch.sigmoid(-z)


def _products(
    inputs: Inputs, x: torch.Tensor, weight: torch.Tensor, case: Case, part: Part
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield each mistake with its product."""
    k, (n, _) = x.shape[1], inputs[1].shape
    if n == k:
        yield "the weight was read transposed", x @ inputs[1].double()[:, part[1]]
    for kept in shortened_lengths(k):
        yield f"the last {k - kept} of K were left out", x[:, :kept] @ weight[:, :kept].T
    product = x @ weight.T
    for size in SIZES:
        if size < k:
            yield f"the first {size} of K were counted twice", product + x[:, :size] @ weight[:, :size].T
    if case.dtype == "float32" and case.precision == "ieee":
        for kind in ("tf32", "float16", "bfloat16"):
            yield f"factors were rounded to {kind}", rounded(x, kind) @ rounded(weight, kind).T
    for kind in sixteen_bit_formats(case.dtype):
        if k <= MAX_STEPS:
            acc = torch.zeros_like(product)
            for at in range(k):
                acc = rounded(acc + x[:, at, None] * weight[:, at], kind)
            yield f"the sum so far was rounded to {kind}", acc
