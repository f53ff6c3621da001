"""data_parallel_grad: the gradients of linear_sigmoid with the batch split over the ranks; x (M, K), dy (M, N)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

import torch

from suite.numerics.bounds import MARGIN
from suite.numerics.formats import DTYPES, half_smallest, unit_roundoff
from suite.ops.linear_sigmoid_grad import LinearSigmoidGrad, Sum, derivative, multiply, sum_over_rows
from suite.problem import outputs
from suite.problem.blocks import rows_per_block
from suite.problem.case import Case
from suite.problem.ranked import RankedOperation, Shard
from suite.problem.shape import Shape
from suite.problem.telling_case import TellingCase
from suite.problem.truth import Truth


class OverRanks:
    """A sum over the rows of all ranks, and the sizes of the ranks' own sums."""

    def __init__(self, shape: Shape, device: torch.device) -> None:
        def zeros() -> torch.Tensor:
            return torch.zeros(shape, dtype=torch.float64, device=device)

        self.total = Sum(zeros(), zeros(), zeros(), zeros())
        self.sizes = zeros()

    def add(self, of_rank: Sum) -> None:
        self.sizes += of_rank.value.abs()
        self.total += of_rank

    def limit(self, terms: int, count: int, case: Case, *, products: bool) -> torch.Tensor:
        """Return the bound of one sum of all terms, with partial sums up to `sizes`, plus that of 2 (ranks - 1)
        roundings: those of the ranks' sums and of their partial sums, without the last one, which is in the former
        bound.
        """
        bound = replace(self.total, value=self.sizes).limit(terms, count, case, products=products)
        u = unit_roundoff(case.dtype)
        return bound + MARGIN * (case.ranks - 1) * (u * self.sizes + 2.0 * half_smallest(case.dtype))


class DataParallelGrad(RankedOperation, LinearSigmoidGrad):
    rank = 230
    group = "ranks"
    name = "data_parallel_grad"
    over_ranks = True
    formula = (
        "dX = dZ W, dW = sum over ranks of dZ^T X, db[j] = sum over ranks and i of dZ[i, j], "
        "where dZ = dY * Y * (1 - Y), Y = sigma(X W^T + b); all ranks have the same W and b"
    )
    dtypes_beyond: tuple[str, ...] = ()  # type: ignore[assignment]
    replicated = (1, 2)
    telling: ClassVar[tuple[TellingCase, ...]] = (TellingCase("many_rows", (1040, 16, 67)),)
    large: ClassVar[tuple[TellingCase, ...]] = ()

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a GPU, of one rank: layers of 4096^2, 8192^2 and 14336 x 4096 with 4096 rows."""
        if device_type != "cuda":
            return [self.case((50, 72, 40), dtype) for dtype in DTYPES]
        shapes = ((4096, 4096, 4096), (4096, 8192, 8192), (4096, 14336, 4096))
        cases = [self.case(shape, "bfloat16") for shape in shapes]
        return [*cases, self.case(shapes[0], "float16"), self.case(shapes[0], "float32", "tf32")]

    def truth_of_rank(self, shards: Sequence[Shard], rank: int, case: Case) -> Iterator[Truth]:
        """Yield dx of this rank in blocks of rows, then dweight and dbias, which are sums over all ranks."""
        m, n, k = case.shape
        count = self.output_shape(case)[0]
        starts = outputs.starts(self.output_shapes(case))

        def piece(begin: int, value: torch.Tensor, bound: torch.Tensor) -> Truth:
            return Truth((slice(begin, begin + value.numel()),), value.reshape(-1), bound.reshape(-1))

        weight, bias = (each.double() for each in shards[rank][1:3])
        dweight, dbias = OverRanks((n, k), weight.device), OverRanks((n,), weight.device)
        together = rows_per_block(max(n, k))
        for each, shard in enumerate(shards):
            of_weight, of_bias = OverRanks((n, k), weight.device).total, OverRanks((n,), weight.device).total
            for start in range(0, m, together):
                x, dy = (shard[i][start : start + together].double() for i in (0, 3))
                gradient = derivative(x, weight, bias, dy, case)
                if each == rank:
                    dx = multiply(gradient, weight)
                    yield piece(starts[0] + start * k, dx.value, dx.limit(n, count, case))
                of_weight += multiply(gradient, x, transposed=True)
                of_bias += sum_over_rows(gradient)
            dweight.add(of_weight)
            dbias.add(of_bias)
        terms = case.ranks * m
        yield piece(starts[1], dweight.total.value, dweight.limit(terms, count, case, products=True))
        yield piece(starts[2], dbias.total.value, dbias.limit(terms, count, case, products=False))

    def transfer_bytes(self, case: Case) -> int:
        """Count a reduce-scatter and an all-gather of dweight and dbias."""
        return 2 * (case.ranks - 1) * case["N"] * (case["K"] + 1) * case.element_bytes // case.ranks

    def workspace_bytes(self, case: Case) -> int:
        """Count the inputs of all ranks, and twice the arrays of linear_sigmoid_grad."""
        return case.ranks * self._input_bytes(case) + 2 * super().workspace_bytes(case)


OP = DataParallelGrad()
