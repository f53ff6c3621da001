"""The sizes of groups: how many rows each expert has, for each value of the option `sizes`.

The numbers of rows follow from the shape, and the seed chooses which expert gets which number. The least traffic of a
case is therefore known without its inputs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from suite.problem.case import Case

EDGES = (1, 127, 128, 129, 0, 63, 64, 65)
"""Sizes of experts around the tiles of kernels."""


def uniform(rows: int, experts: int) -> list[int]:
    """Return sizes that differ by at most one."""
    return [rows // experts + (i < rows % experts) for i in range(experts)]


def skewed(rows: int, experts: int) -> list[int]:
    """Return sizes in proportion to 1, 1/2, 1/3 ..., rounded down; the first has what is left."""
    total = sum(1.0 / (i + 1) for i in range(experts))
    found = [int(rows / total / (i + 1)) for i in range(experts)]
    found[0] += rows - sum(found)
    return found


def empty(rows: int, experts: int) -> list[int]:
    """Return sizes that are 0 for more than half of the experts, but not for all. The others differ by at most one."""
    used = max(1, (experts - 1) // 2)
    return uniform(rows, used) + [0] * (experts - used)


def one(rows: int, experts: int) -> list[int]:
    """Return sizes with all rows at one expert."""
    return [rows] + [0] * (experts - 1)


def edges(rows: int, experts: int) -> list[int]:
    """Return the sizes EDGES in turn until no rows are left; the last expert has any rest."""
    found: list[int] = []
    for i in range(experts):
        found.append(min(EDGES[i % len(EDGES)], rows - sum(found)))
    found[-1] += rows - sum(found)
    return found


KINDS: dict[str, Callable[[int, int], list[int]]] = {
    "uniform": uniform,
    "skewed": skewed,
    "empty": empty,
    "one": one,
    "edges": edges,
}


def sizes_of(case: Case) -> list[int]:
    """Return the numbers of rows that the experts of a case have, in no order."""
    return KINDS[str(case.option("sizes", "uniform"))](case["T"], case["E"]) if case["E"] else []


def used_experts(case: Case) -> int:
    """Return the number of experts that have rows."""
    return sum(size > 0 for size in sizes_of(case))


def draw_sizes(case: Case, source: torch.Generator) -> torch.Tensor:
    """Draw the rows of each expert, (E,) int32. With `empty` the first, the last and a middle expert have none."""
    found = torch.tensor(sizes_of(case), dtype=torch.int32, device=source.device)
    experts = len(found)
    order = torch.randperm(experts, generator=source, device=source.device)
    if case.option("sizes", "uniform") == "empty" and experts > 1:
        barred = torch.zeros(experts, dtype=torch.int64, device=source.device)
        barred[0], barred[-1] = 1, int(experts > 2)
        barred[experts // 2] |= int(experts > 3)
        order = order[barred[order].sort(stable=True).indices]
    sizes = torch.empty_like(found)
    sizes[order] = found
    return sizes


def bounds(sizes: torch.Tensor) -> list[tuple[int, int]]:
    """Return the first row of each expert, and the row after its last one."""
    ends = sizes.long().cumsum(0).tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True)) if ends else []
