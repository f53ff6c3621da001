"""Variants of grouped_matmul_grad: rows of other experts, rows that are left out, means, rounded factors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from suite.core.integers import cdiv
from suite.ops.grouped_matmul import products
from suite.ops.matmul import matmul_limit
from suite.problem.case import Case
from suite.problem.expert_sizes import bounds
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._rounding import coarser_formats, rounded

MAX_PRODUCTS = 2**24
"""Largest number of products of a part with variants: each variant computes them."""
STEPS = (16, 32, 64, 128)
"""Rows of a step."""

Rows = list[tuple[int, int]]
"""For each expert the first of its rows, and the one after its last."""


@dataclass(frozen=True)
class Sums:
    """The factors of a part of the result, and the rows over which each of its experts sums."""

    x: torch.Tensor
    dy: torch.Tensor
    rows: Rows

    def result(self, case: Case, *, mean: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the gradients, and their bounds. mean: divided by the number of rows."""
        values, limits = [], []
        for start, stop in self.rows:
            value, spread, _ = products(self.x[start:stop].mT, self.dy[start:stop])
            terms, count = max(stop - start, 1), case["E"] * case["K"] * case["N"]
            bound = matmul_limit(value, spread, terms, count, case.dtype, case.precision)
            divisor = terms if mean else 1
            values.append(value / divisor)
            limits.append(bound / divisor)
        return torch.stack(values), torch.stack(limits)


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    x, dy, sizes = inputs
    experts, ks, ns = part
    width = (ks.stop - ks.start) * (ns.stop - ns.start)
    if len(x) * width > MAX_PRODUCTS or int(sizes.sum()) != len(x) or not len(sizes) > 0:
        return
    right = bounds(sizes)
    sums = Sums(x[:, ks], dy[:, ns], right[experts])
    for mistake, rows in _mistakes(right, len(x)).items():
        yield Variant(mistake, *replace(sums, rows=rows[experts]).result(case))
    yield Variant("it was divided by the number of rows", *sums.result(case, mean=True))
    if case["K"] == case["N"]:
        exchanged = Sums(dy[:, ks], x[:, ns], right[experts])
        yield Variant("each gradient was transposed", *exchanged.result(case))
    for kind in coarser_formats(case.dtype):
        small = replace(sums, x=rounded(sums.x.double(), kind), dy=rounded(sums.dy.double(), kind))
        yield Variant(f"factors were rounded to {kind}", *small.result(case))


def _mistakes(right: Rows, t: int) -> dict[str, Rows]:
    """Return the rows over which the experts sum, by the mistake. A diagnosis puts `as if` before the name."""
    count = len(right)
    used = [each for each in right if each[0] < each[1]]
    found: dict[str, Rows] = {
        "each expert had the gradient of the next one": [*right[1:], *right[:1]],
        "each expert had the gradient of the one before": [*right[-1:], *right[:-1]],
        "experts without rows were not counted": [*used, *[(t, t)] * (count - len(used))],
        "all experts had the same number of rows": [(i * t // count, (i + 1) * t // count) for i in range(count)],
        "all rows belonged to every expert": [(0, t)] * count,
        "the last row of each expert was left out": [(start, max(stop - 1, start)) for start, stop in right],
        "the first row of each expert was left out": [(min(start + 1, stop), stop) for start, stop in right],
        "the first row of the next expert was added": [(start, min(stop + 1, t)) for start, stop in right],
    }
    for step in STEPS:
        whole = [start + (stop - start) // step * step for start, stop in right]
        found[f"the rows after the last step of {step} were left out"] = [
            (start, end) for (start, _), end in zip(right, whole, strict=True)
        ]
        found[f"the last step of {step} ran into the next expert"] = [
            (start, min(t, start + cdiv(stop - start, step) * step)) for start, stop in right
        ]
    return found
