"""all_gather_matmul: C = X W, where X has the rows of all ranks and W is this rank's; x (M, K), w (K, N)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import torch

from suite.numerics.formats import DTYPES
from suite.ops import matmul
from suite.problem import family, numbers
from suite.problem.case import Case
from suite.problem.ranked import RankedOperation, Shard
from suite.problem.shape import Shape
from suite.problem.telling_case import TellingCase
from suite.problem.truth import Truth

SMALL = (33, 65, 34)


class AllGatherMatmul(RankedOperation):
    rank = 210
    group = "ranks"
    name = "all_gather_matmul"
    over_ranks = True
    formula = "C[r M + i, j] = sum over k of x of rank r[i, k] w[k, j], for all ranks r; w is each rank's own"
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
        "largest": family.large(SMALL, values=matmul.rows_of_extremes),
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
        return [self.case(shape, *kind) for shape in ((2048, 7168, 4096), (4096, 4096, 8192)) for kind in kinds]

    def operands(self, case: Case) -> tuple[Shape, ...]:
        m, n, k = case.shape
        return ((m, k), (k, n))

    def arguments(self, case: Case) -> dict[str, Any]:
        return {"precision": case.precision}

    def _product(self, case: Case) -> Case:
        """The product of one rank, as a case of matmul."""
        m, n, k = case.shape
        return matmul.OP.case((case.ranks * m, n, k), case.dtype, case.precision)

    def truth_of_rank(self, shards: Sequence[Shard], rank: int, case: Case) -> Iterator[Truth]:
        """Yield pieces of the product of all rows with this rank's w: its bound is that of matmul."""
        yield from matmul.OP.truth((torch.cat([x for x, _ in shards]), shards[rank][1]), self._product(case))

    def output_shape(self, case: Case) -> Shape:
        return (case.ranks * case["M"], case["N"])

    def flops(self, case: Case) -> int:
        """Count the product of one rank."""
        return matmul.OP.flops(self._product(case))

    def transfer_bytes(self, case: Case) -> int:
        """Count x of this rank, for each other one."""
        return (case.ranks - 1) * case["M"] * case["K"] * case.element_bytes

    def workspace_bytes(self, case: Case) -> int:
        """Count that of the product, and the inputs of all ranks."""
        rows = 2 * case.ranks * case["M"] * case["K"] * case.element_bytes
        weights = case.ranks * case["K"] * case["N"] * case.element_bytes
        return matmul.OP.workspace_bytes(self._product(case)) + rows + weights


OP = AllGatherMatmul()
