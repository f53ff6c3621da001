"""Variants of grouped_matmul: the weights of other experts, other rows, rows that are left out, rounded factors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from suite.ops.grouped_matmul import products
from suite.ops.matmul import matmul_limit
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._blocks import shortened_lengths
from suite.variants._rounding import coarser_formats, rounded

COLUMNS = 64
"""Largest number of columns of the part of a result for which variants are computed."""
MAX_ROWS = 1024
"""Largest number of rows of a part with variants: each variant multiplies them."""
TILES = (16, 32, 64, 128)
"""Rows of a tile."""


@dataclass(frozen=True)
class Groups:
    """The factors of a result, and for each of its rows the expert, the row of x, and whether it is computed at all."""

    x: torch.Tensor
    weight: torch.Tensor
    expert: torch.Tensor
    row: torch.Tensor
    kept: torch.Tensor

    def result(self, case: Case, rows: slice) -> tuple[torch.Tensor, torch.Tensor]:
        """Return some rows of the result, and their bounds. Rows that are left out are 0."""
        x, expert = self.x[self.row[rows]], self.expert[rows]
        value, bound = (torch.zeros(len(x), self.weight.shape[2], dtype=torch.float64, device=x.device) for _ in "vb")
        for e in expert.unique().tolist():
            at = expert == e
            product, spread, _ = products(x[at], self.weight[e])
            value[at] = product
            count = case["T"] * case["N"]
            bound[at] = matmul_limit(product, spread, max(x.shape[1], 1), count, case.dtype, case.precision)
        left_out = ~self.kept[rows, None]
        return value.masked_fill(left_out, 0.0), bound.masked_fill(left_out, 0.0)


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    x, weight, sizes = inputs
    rows, columns = part
    if rows.stop - rows.start > MAX_ROWS or columns.stop - columns.start > COLUMNS:
        return
    t, experts = len(x), torch.arange(len(sizes), device=x.device)
    expert = experts.repeat_interleave(sizes.long())
    if len(expert) != t:
        return
    row = torch.arange(t, device=x.device)
    right = Groups(x, weight[:, :, columns], expert, row, torch.ones_like(row, dtype=torch.bool))
    for mistake, groups in _mistakes(right, sizes.long(), inputs, columns):
        yield Variant(mistake, *groups.result(case, rows))
    yield from _rounded_factors(right, case, rows)


def _mistakes(right: Groups, sizes: torch.Tensor, inputs: Inputs, columns: slice) -> Iterator[tuple[str, Groups]]:
    """Yield the mistakes by name. A diagnosis puts `as if` before the name."""
    for mistake, expert in other_experts(right.expert, right.row, sizes):
        yield mistake, replace(right, expert=expert)
    t = len(right.row)
    yield "each row of x was the one after it", replace(right, row=(right.row + 1).clamp(max=t - 1))
    yield "each row of x was the one before it", replace(right, row=(right.row - 1).clamp(min=0))
    for mistake, kept_rows in missing_rows(right.expert, right.row, sizes):
        yield mistake, replace(right, kept=kept_rows)
    k = right.x.shape[1]
    for kept in shortened_lengths(k):
        shorter = replace(right, x=right.x[:, :kept], weight=right.weight[:, :kept])
        yield f"the last {k - kept} of K {'were' if k - kept > 1 else 'was'} left out", shorter
    if inputs[1].shape[1] == inputs[1].shape[2]:
        yield "the weights were read transposed", replace(right, weight=inputs[1].mT[:, :, columns])


def rows_within(expert: torch.Tensor, row: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
    """Return the index of each row among those of its expert."""
    return row - (sizes.cumsum(0) - sizes)[expert]


def missing_rows(expert: torch.Tensor, row: torch.Tensor, sizes: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield each mistake, and whether each row is computed."""
    index, own = rows_within(expert, row, sizes), sizes[expert]
    yield "the last row of each expert was left out", index < own - 1
    yield "the first row of each expert was left out", index > 0
    for size in TILES:
        yield f"the rows after an expert's last tile of {size} were left out", index < own // size * size


def other_experts(expert: torch.Tensor, row: torch.Tensor, sizes: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield each mistake, and the expert by whose weights each row is multiplied."""
    t, count = len(row), len(sizes)
    yield "each row had the weights of the next expert", (expert + 1) % count
    yield "each row had the weights of the expert before", (expert - 1) % count
    yield "all rows had the weights of the first expert", torch.zeros_like(expert)
    used = (sizes > 0).long().cumsum(0) - 1
    yield "experts without rows were not counted", used[expert]
    yield "all experts had the same number of rows", (row * count // max(t, 1)).clamp(max=count - 1)
    after, before = (row + 1).clamp(max=max(t - 1, 0)), (row - 1).clamp(min=0)
    yield "the last row of each expert had the weights of the next one", expert[after]
    yield "the first row of each expert had the weights of the one before", expert[before]
    for size in TILES:
        yield f"a tile of {size} rows had the weights of its first row", expert[row // size * size]
        yield f"the last tile of {size} rows of an expert ran into the next expert", _overwritten(expert, sizes, size)


def _overwritten(expert: torch.Tensor, sizes: torch.Tensor, tile: int) -> torch.Tensor:
    """Return the expert that writes each row last, if experts store whole tiles, the last expert first."""
    found = expert.clone()
    for e, size in reversed(list(enumerate(sizes.tolist()))):
        start = int(sizes[:e].sum())
        found[start + size : start + -(-size // tile) * tile] = e
    return found


def _rounded_factors(right: Groups, case: Case, rows: slice) -> Iterator[Variant]:
    for kind in coarser_formats(case.dtype):
        small = replace(right, x=rounded(right.x.double(), kind), weight=rounded(right.weight.double(), kind))
        yield Variant(f"factors were rounded to {kind}", *small.result(case, rows))
