"""grouped_matmul_grad: the gradient of grouped_matmul with respect to the weights of each expert."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch

from suite.numerics.formats import DTYPES
from suite.ops.grouped_matmul import ALL, ODD, GroupedMatmul, products, with_sizes
from suite.ops.matmul import matmul_limit, one_infinity_per_operand, product_noise, rows_of_extremes
from suite.problem import blocks, family, numbers
from suite.problem.case import Case
from suite.problem.expert_sizes import bounds
from suite.problem.family import Family
from suite.problem.operation import Operation
from suite.problem.option import Option
from suite.problem.shape import Shape
from suite.problem.telling_case import TellingCase
from suite.problem.truth import Truth


def transposed(values: numbers.Values) -> numbers.Values:
    """Draw x and dy by a function for a product (M, K) x (K, N): its first factor is the transpose of x."""

    def drawn(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
        (t, k), dy_shape = shapes
        a, dy = values(((k, t), dy_shape), case, source)
        return a.mT.contiguous(), dy

    return drawn


class GroupedMatmulGrad(GroupedMatmul):
    rank = 51
    group = "products"
    name = "grouped_matmul_grad"
    formula = "dW[e, k, n] = sum over the sizes[e] rows t of expert e of X[t, k] dY[t, n]; 0 without rows"
    dims = ("T", "E", "K", "N")
    options: ClassVar[tuple[Option, ...]] = (
        Option("sizes", ("uniform", "skewed", "empty", "one", "edges"), "how the rows are divided among the experts"),
    )
    weights: ClassVar[tuple[int, ...]] = ()
    sweep = tuple((t, 8, 1024, 1024) for t in (16, 64, 256, 1024, 4096, 16384))
    telling: ClassVar[tuple[TellingCase, ...]] = (
        TellingCase("groups_of_tiles", (1024, 16, 40, 24), options={"sizes": "edges"}),
        TellingCase("many_experts", (300, 259, 16, 8), options={"sizes": "edges"}, first=False),
        TellingCase("rows_of_many_experts", (300, 259, 16, 8), first=False),
        TellingCase("equal_sizes", (60, 5, 16, 8), inputs="dense/dense/repeated0"),
    )
    telling_left_out: tuple[str, ...] = ("subnormal@", "nan@2", "infinity@2")  # the sizes are integers
    large: ClassVar[tuple[TellingCase, ...]] = (
        TellingCase("large", (16_392, 2, 40, 72)),
        TellingCase("many_rows", (70_001, 3, 8, 9), options={"sizes": "skewed"}),
    )
    ragged: ClassVar[tuple[Shape, ...]] = ((1, 1, 1, 1), (1, 3, 65, 129), (129, 2, 100, 257), (64, 4, 64, 64))
    families: ClassVar = {
        "normal": family.normal(),
        "sizes": family.sizes(*ragged),
        "divided": Family(
            "rows divided among the experts in every way", family.NORMALS, shapes=((200, 5, 34, 33),),
            options={"sizes": ALL},
        ),
        "long_thin": family.long_thin((1031, 2, 3, 1), (3, 2, 1031, 2)),
        "empty": family.empty((0, 2, 3, 4), (3, 2, 0, 4), (3, 2, 4, 0)),
        "strided": family.strided_views((1, 1, 1, 1), ODD),
        "offset": family.offset(ODD, (64, 2, 128, 32)),
        "misaligned_rows": family.misaligned_rows((33, 2, 64, 64)),
        "broadcast": family.broadcast(ODD),
        "largest": family.large(ODD, values=transposed(rows_of_extremes)),
        "range": family.spread(ODD, 20, -20),
        "signed_zero": family.signed_zero(ODD),
        "infinity": family.infinity(ODD, values=transposed(one_infinity_per_operand)),
        "nan": family.nan(ODD),
        "huge": family.huge((40, 2**9 + 1, 2**11, 2**11 + 8)),
    }  # fmt: skip

    def family(self, inputs: str) -> Family:
        return with_sizes(Operation.family(self, inputs))

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a GPU: up projections of Mixtral 8x7B, Qwen3 30B and DeepSeek-V3."""
        if device_type != "cuda":
            return [self.case((96, 4, 72, 40), dtype, sizes="skewed") for dtype in DTYPES]
        mixtral, qwen, deepseek = (32768, 8, 4096, 14336), (32768, 128, 2048, 768), (32768, 256, 7168, 2048)
        cases = [self.case(mixtral, "bfloat16", sizes=sizes) for sizes in ("uniform", "skewed", "empty")]
        cases += [self.case(shape, "bfloat16", sizes="skewed") for shape in (qwen, deepseek)]
        return [*cases, self.case(mixtral, "float16"), self.case((4096, 8, 1024, 2048), "float32", sizes="skewed")]

    def operands(self, case: Case) -> tuple[Shape, ...]:
        t, e, k, n = case.shape
        return ((t, k), (t, n), (e,))

    def stored_transposed(self, case: Case) -> tuple[bool, ...]:
        return (False, False, False)

    def bytes(self, case: Case) -> int:
        """Count rows and gradients once; experts without rows are written too."""
        return Operation.bytes(self, case)

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        """Yield the gradient of one expert after the other."""
        _, e, k, n = case.shape
        x, dy, sizes = inputs
        kind = case.dtype, case.precision
        for expert, (start, stop) in enumerate(bounds(sizes)):
            for rows, columns in blocks.blocks((k, n)):
                value, spread, equal = products(x[start:stop, rows].mT, dy[start:stop, columns])
                terms = max(stop - start, 1)
                bound = matmul_limit(value, spread, terms, e * k * n, *kind, equal)
                noise = product_noise(value, spread, (k, e * n, terms), *kind, equal)
                index = (slice(expert, expert + 1), rows, columns)
                del spread, equal
                yield Truth(index, value[None], bound[None], noise)
                del value, bound

    def output_shape(self, case: Case) -> Shape:
        return (case["E"], case["K"], case["N"])

    def workspace_bytes(self, case: Case) -> int:
        """Count the arrays of one expert, which may have all rows."""
        t, _, k, n = case.shape
        return 8 * 3 * t * (k + n) + blocks.block_bytes((k, n), arrays=14)


OP = GroupedMatmulGrad()
