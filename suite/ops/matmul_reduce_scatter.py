"""matmul_reduce_scatter: this rank's rows of X W, where K is split over the ranks; x (ranks M, K), w (K, N)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import torch

from suite.numerics.bounds import MARGIN
from suite.numerics.formats import DTYPES, half_smallest, unit_roundoff
from suite.numerics.repeats import repeats_of_products
from suite.ops import matmul
from suite.problem import family, numbers
from suite.problem.blocks import block_bytes, blocks
from suite.problem.case import Case
from suite.problem.ranked import RankedOperation, Shard
from suite.problem.shape import Shape
from suite.problem.telling_case import TellingCase
from suite.problem.truth import Truth

SMALL = (33, 65, 34)


def rows_of_extremes(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """The numbers of matmul's family, with the same signs on all ranks: no sum of their products is inf - inf."""
    a, b = matmul.rows_of_extremes(shapes, case, source)
    rows = torch.arange(a.shape[0], device=a.device)[:, None]
    b[:, 1:] /= case.ranks
    return a.abs() * (1 - 2 * (rows % 2)).to(a.dtype), b


class MatmulReduceScatter(RankedOperation):
    rank = 220
    group = "ranks"
    name = "matmul_reduce_scatter"
    over_ranks = True
    formula = "C[i, j] = sum over ranks, and over k, of x[r M + i, k] w[k, j], on rank r; x and w are each rank's own"
    dims = ("M", "N", "K")
    is_square = True
    sweep = tuple((n, n, n) for n in (64, 256, 1024, 4096))
    telling = (TellingCase("many_rows", (1040, 16, 48)),)
    sizes: ClassVar = {"M": (1, 33, 64), "N": (1, 65, 128), "K": (1, 34, 129)}
    ragged = ((1, 1, 1), (1, 129, 65), (37, 41, 1), (64, 64, 64), (127, 65, 33))
    telling_left_out = ("nan",)  # oneDNN multiplies the gaps between rows by 0, so NaN spreads; nan@0 and nan@1 are run
    weights = (1,)
    families: ClassVar = {
        "normal": family.normal(),
        "sizes": family.sizes(*ragged),
        "empty": family.empty((3, 4, 0), (0, 4, 3), (3, 0, 4)),
        "strided": family.strided_views(SMALL),
        "offset": family.offset(SMALL, (64, 32, 128)),
        "subnormal": family.subnormal(SMALL, values=numbers.per_operand(numbers.subnormals, numbers.small_integers)),
        "largest": family.large(SMALL, values=rows_of_extremes),
        "range": family.spread(SMALL, 20, -20),
        "signed_zero": family.signed_zero(SMALL),
        "infinity": family.infinity(SMALL, values=matmul.one_infinity_per_operand),
        "nan": family.nan(SMALL),
        "cancellation": family.cancellation(SMALL, values=matmul.halves_that_cancel),
    }

    def precisions(self, dtype: str) -> tuple[str, ...]:
        return ("ieee", "tf32") if dtype == "float32" else ("ieee",)

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a GPU, on two ranks: M x N x K of 4096 x 14336 x 4096 and 8192^3 in all."""
        if device_type != "cuda":
            return [self.case((64, 96, 128), dtype) for dtype in DTYPES]
        kinds = (("bfloat16", "ieee"), ("float16", "ieee"), ("float32", "tf32"))
        return [self.case(shape, *kind) for shape in ((2048, 14336, 2048), (4096, 8192, 4096)) for kind in kinds]

    def operands(self, case: Case) -> tuple[Shape, ...]:
        m, n, k = case.shape
        return ((case.ranks * m, k), (k, n))

    def arguments(self, case: Case) -> dict[str, Any]:
        return {"precision": case.precision}

    def truth_of_rank(self, shards: Sequence[Shard], rank: int, case: Case) -> Iterator[Truth]:
        """Yield pieces of the sum of all ranks' products, with the rows of `rank`.

        Each rank's product may be rounded to the case's dtype, and so may each partial sum of them. Without the last
        one, which `matmul_limit` has, these are 2 (ranks - 1) roundings, each at most u times the sizes of the products
        that it covers. All products together have the errors of one product of ranks K terms, with partial sums up to
        `sizes`.
        """
        m, n, k = case.shape
        mine = slice(rank * m, (rank + 1) * m)
        x = torch.cat([x[mine] for x, _ in shards], dim=1).double()
        w = torch.cat([w for _, w in shards]).double()
        roundings = case.ranks - 1
        for rows, columns in blocks((m, n)):
            value = torch.zeros(x[rows].shape[0], w[:, columns].shape[1], dtype=torch.float64, device=x.device)
            sizes = torch.zeros_like(value)
            for start in range(0, case.ranks * k, max(k, 1)):
                product = x[rows, start : start + k] @ w[start : start + k, columns]
                value += product
                sizes += product.abs_()
            squares = x[rows].square() @ w[:, columns].square()
            repeated = repeats_of_products(x[rows], w[:, columns])
            kind = case.dtype, case.precision, repeated
            bound = matmul.matmul_limit(sizes, squares, case.ranks * k, m * n, *kind)
            bound += MARGIN * roundings * (unit_roundoff(case.dtype) * sizes + 2.0 * half_smallest(case.dtype))
            yield Truth((rows, columns), value, bound)

    def output_shape(self, case: Case) -> Shape:
        return (case["M"], case["N"])

    def flops(self, case: Case) -> int:
        """Count the product of one rank."""
        return 2 * case.ranks * case["M"] * case["N"] * case["K"]

    def transfer_bytes(self, case: Case) -> int:
        """Count the product of the rows of each other rank."""
        return (case.ranks - 1) * case["M"] * case["N"] * case.element_bytes

    def workspace_bytes(self, case: Case) -> int:
        """Count the inputs of all ranks, x and w of all of them in float64 with squares, and blocks of the output."""
        m, n, k = case.shape
        inputs = case.ranks * (case.ranks * m * k + k * n) * case.element_bytes
        return inputs + 8 * 2 * case.ranks * k * (m + n) + block_bytes((m, n), arrays=12)


OP = MatmulReduceScatter()
