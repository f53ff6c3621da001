"""all_reduce: y = the sum of x over all ranks, on every rank; shapes (N,)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import torch

from suite.numerics.bounds import limit
from suite.numerics.formats import DTYPES, unit_roundoff
from suite.problem import family, numbers
from suite.problem.blocks import block_bytes, blocks
from suite.problem.case import Case
from suite.problem.ranked import RankedOperation, Shard
from suite.problem.shape import Shape
from suite.problem.telling_case import TellingCase
from suite.problem.truth import Truth


def large_numbers(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """The largest numbers of one or two ranks, some with infinite sums; of more ranks, numbers whose partial sums are
    finite in any order."""
    if case.ranks <= 2:
        return numbers.extremes(shape, case, source)
    drawn = torch.rand(shape, generator=source, device=source.device, dtype=torch.float64)
    return ((2.0 * drawn - 1.0) * (numbers.largest(case) / case.ranks)).to(numbers.dtype_of(case))


class AllReduce(RankedOperation):
    rank = 200
    group = "ranks"
    name = "all_reduce"
    over_ranks = True
    formula = "y[i] = sum over ranks of x[i], the same on every rank"
    dims = ("N",)
    is_square = True
    sweep = tuple((2**k,) for k in range(10, 28, 3))
    telling = (TellingCase("tail", (65_793,)),)
    ragged = ((1,), (31,), (1023,), (1025,), (10_007,))
    families: ClassVar = {
        "normal": family.normal(),
        "sizes": family.sizes(*ragged),
        "empty": family.empty((0,)),
        "strided": family.strided_views((1,), (1025,)),
        "offset": family.offset((1,), (4097,)),
        "broadcast": family.broadcast((1025,)),
        "subnormal": family.subnormal((1025,)),
        "largest": family.large((1025,), values=numbers.per_operand(large_numbers)),
        "signed_zero": family.signed_zero((1025,)),
        "infinity": family.infinity((1025,)),
        "nan": family.nan((1025,)),
    }

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a GPU: 64 KiB, 1 MiB and 256 MiB, in bytes of a rank."""
        if device_type != "cuda":
            return [self.case((100_003,), dtype) for dtype in DTYPES]
        return [
            self.case((size // (4 if dtype == "float32" else 2),), dtype)
            for size in (2**16, 2**20, 2**28)
            for dtype in DTYPES
        ]

    def operands(self, case: Case) -> tuple[Shape, ...]:
        return (case.shape,)

    def truth_of_rank(self, shards: Sequence[Shard], rank: int, case: Case) -> Iterator[Truth]:
        """Yield pieces of the sum. Its terms may be added in any order, and partial sums rounded to the case's dtype.

        Each of `ranks` - 1 additions but the last leaves a rounding of at most u times the sum of sizes.
        """
        inner = max(0, len(shards) - 2) * unit_roundoff(case.dtype)
        for index in blocks(case.shape):
            value = torch.zeros_like(shards[0][0][index], dtype=torch.float64)
            sizes = torch.zeros_like(value)
            for (x,) in shards:
                value += x[index].double()
                sizes += x[index].double().abs()
            yield Truth(index, value, limit(inner * sizes if inner else 0.0, value, case.dtype))

    def output_shape(self, case: Case) -> Shape:
        return case.shape

    def flops(self, case: Case) -> int:
        """Count the additions of one result."""
        return (case.ranks - 1) * case["N"]

    def transfer_bytes(self, case: Case) -> int:
        """Count a reduce-scatter and an all-gather, of a share of x from each other rank."""
        return 2 * (case.ranks - 1) * case["N"] * case.element_bytes // case.ranks

    def workspace_bytes(self, case: Case) -> int:
        """Count the other ranks' inputs, and one block in float64."""
        return (case.ranks - 1) * case["N"] * case.element_bytes + 2 * block_bytes(case.shape)


OP = AllReduce()
