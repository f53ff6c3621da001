"""grouped_matmul: the products of the rows of each expert with its weights, in a mixture of experts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

import torch

from suite.core.errors import UsageError
from suite.numerics.formats import DTYPES, element_bytes
from suite.numerics.repeats import repeats_of_products
from suite.ops.matmul import (
    halves_that_cancel,
    matmul_limit,
    one_infinity_per_operand,
    product_noise,
    rows_of_extremes,
)
from suite.problem import blocks, family, numbers
from suite.problem.case import Case
from suite.problem.expert_sizes import bounds, draw_sizes, used_experts
from suite.problem.family import Family
from suite.problem.operation import Operation
from suite.problem.option import Option
from suite.problem.shape import Shape
from suite.problem.telling_case import TellingCase
from suite.problem.truth import Truth

ODD = (70, 5, 34, 65)
"""Shape of most families: odd N, and rows of x that are no multiple of 16 bytes."""
ALL = ("uniform", "skewed", "empty", "one", "edges")
UNUSED_NAN = "unused_nan"
"""The family that has NaN in the weights of experts without rows."""


def by_experts(values: numbers.Values) -> numbers.Values:
    """Draw x and the weights by a function for a product (M, K) x (K, N): its N columns are those of all experts."""

    def drawn(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
        x_shape, (e, k, n) = shapes
        x, weight = values((x_shape, (k, e * n)), case, source)
        return x, weight.view(k, e, n).transpose(0, 1).contiguous()

    return drawn


def with_sizes(found: Family) -> Family:
    """Return the family with sizes as the last operand. Sizes are not repeated by strides if that changes them."""

    def values(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
        return (*found.values(shapes[:-1], case, source), draw_sizes(case, source))

    def place(operand: torch.Tensor, position: int) -> torch.Tensor:
        placed = found.place(operand, position)
        return operand if operand.dtype == torch.int32 and not torch.equal(placed, operand) else placed

    return replace(found, values=values, place=place)


class GroupedMatmul(Operation):
    rank = 49
    group = "products"
    name = "grouped_matmul"
    formula = "Y[t, n] = sum over k of X[t, k] W[e, k, n], with row t among the sizes[e] rows of expert e"
    dims = ("T", "E", "K", "N")
    options: ClassVar[tuple[Option, ...]] = (
        Option("sizes", ("uniform", "skewed", "empty", "one", "edges"), "how the rows are divided among the experts"),
        Option("layout", ("nn", "nt"), "weights stored transposed (nt), contiguous along K, or not (nn)"),
    )
    weights: ClassVar[tuple[int, ...]] = (1,)
    sweep = tuple((t, 8, 1024, 1024) for t in (16, 64, 256, 1024, 4096, 16384))
    sizes: ClassVar[Mapping[str, tuple[int, ...]]] = {"E": (1, 5, 8, 67)}
    telling: ClassVar[tuple[TellingCase, ...]] = (
        TellingCase("groups_of_tiles", (1024, 16, 40, 24), options={"sizes": "edges"}),
        TellingCase("many_experts", (300, 259, 16, 8), options={"sizes": "edges"}, first=False),
        TellingCase("rows_of_many_experts", (300, 259, 16, 8), first=False),
        TellingCase("equal_sizes", (60, 5, 16, 8), inputs="dense/dense/repeated0"),
    )
    # XLA multiplies the rows of other experts by 0: a NaN in the weights of one reaches all rows. Sizes are integers.
    telling_left_out: tuple[str, ...] = (
        "nan", "infinity", UNUSED_NAN, "subnormal@", *(f"{kind}@{i}" for kind in ("nan", "infinity") for i in (1, 2)),
    )  # fmt: skip
    large: ClassVar[tuple[TellingCase, ...]] = (
        TellingCase("large", (40, 2, 16_392, 72)),
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
        UNUSED_NAN: Family(
            "NaN in the weights of experts without rows", family.NORMALS, shapes=(ODD,),
            options={"sizes": ("empty", "one")},
        ),
        "long_thin": family.long_thin((1031, 2, 3, 1), (3, 2, 1031, 2)),
        "empty": family.empty((3, 2, 0, 4), (0, 2, 3, 4), (3, 2, 4, 0)),
        "transposed": Family(
            "weights as they are and stored transposed", family.NORMALS, shapes=((64, 2, 128, 32),),
            options={"layout": ("nn", "nt")},
        ),
        "strided": family.strided_views((1, 1, 1, 1), ODD),
        "offset": family.offset(ODD, (64, 2, 128, 32)),
        "misaligned_rows": family.misaligned_rows((33, 2, 64, 64)),
        "broadcast": family.broadcast(ODD),
        "subnormal": family.subnormal(ODD, values=numbers.per_operand(numbers.subnormals, numbers.small_integers)),
        "largest": family.large(ODD, values=by_experts(rows_of_extremes)),
        "range": family.spread(ODD, 20, -20),
        "signed_zero": family.signed_zero(ODD),
        "infinity": family.infinity(ODD, values=by_experts(one_infinity_per_operand)),
        "nan": family.nan(ODD),
        "cancellation": family.cancellation(ODD, values=by_experts(halves_that_cancel)),
        "huge": family.huge((2**16 + 1, 3, 16, 2**15 + 1), (7, 257, 4096, 4096)),
    }  # fmt: skip

    def family(self, inputs: str) -> Family:
        """Return the family with sizes; in `unused_nan` with NaN where no row needs the weights."""
        found = with_sizes(super().family(inputs))
        if UNUSED_NAN not in inputs.split("+"):
            return found

        def values(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
            x, weight, sizes = found.values(shapes, case, source)
            return x, weight.masked_fill_((sizes == 0)[:, None, None], torch.nan), sizes

        return replace(found, values=values)

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a GPU: up projections of Mixtral 8x7B, Qwen3 30B and DeepSeek-V3, for many tokens and for few."""
        if device_type != "cuda":
            return [self.case((96, 4, 72, 40), dtype, sizes="skewed") for dtype in DTYPES]
        mixtral, qwen, deepseek = (32768, 8, 4096, 14336), (32768, 128, 2048, 768), (32768, 256, 7168, 2048)
        cases = [self.case(mixtral, "bfloat16", sizes=sizes) for sizes in ("uniform", "skewed", "empty")]
        cases += [self.case(shape, "bfloat16", sizes=sizes) for shape in (qwen, deepseek) for sizes in ALL[:2]]
        cases += [self.case(mixtral, "bfloat16", layout="nt")]
        cases += [self.case((128, *mixtral[1:]), "bfloat16"), self.case((512, *qwen[1:]), "bfloat16", sizes="skewed")]
        return [*cases, self.case(mixtral, "float16"), self.case((4096, 8, 1024, 2048), "float32", sizes="skewed")]

    def validate(self, dims: Mapping[str, int]) -> None:
        if dims["T"] and not dims["E"]:
            raise UsageError(f"--shape: T={dims['T']} rows need an expert; got E=0")

    def operands(self, case: Case) -> tuple[Shape, ...]:
        t, e, k, n = case.shape
        return ((t, k), (e, k, n), (e,))

    def operand_dtypes(self, case: Case) -> tuple[str, ...]:
        return (case.dtype, case.dtype, "int32")

    def random_shape(self, size: Callable[[], int]) -> Shape:
        return (3 * size(), 1 + size() % 9, size(), size())

    def stored_transposed(self, case: Case) -> tuple[bool, ...]:
        return (False, case.option("layout", "nn") == "nt", False)

    def bytes(self, case: Case) -> int:
        """Count the weights of the experts that have rows."""
        unused = case["E"] - used_experts(case)
        return super().bytes(case) - unused * case["K"] * case["N"] * element_bytes(case.dtype)

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        """Yield blocks of rows, which may belong to several experts."""
        t, _, k, n = case.shape
        x, weight, sizes = inputs
        kind = case.dtype, case.precision
        for rows, columns in blocks.blocks((t, n)):
            found = [
                products(x[max(rows.start, start) : min(rows.stop, stop)], weight[expert][:, columns])
                for expert, (start, stop) in enumerate(bounds(sizes))
                if max(rows.start, start) < min(rows.stop, stop)
            ]
            value, spread, equal = (torch.cat(each) for each in zip(*found, strict=True))
            bound = matmul_limit(value, spread, k, t * n, *kind, equal)
            noise = product_noise(value, spread, (t, n * used_experts(case), k), *kind, equal)
            del spread, equal, found
            yield Truth((rows, columns), value, bound, replace(noise, independent=min(noise.independent, t * n)))
            del value, bound

    def output_shape(self, case: Case) -> Shape:
        return (case["T"], case["N"])

    def flops(self, case: Case) -> int:
        return 2 * case["T"] * case["K"] * case["N"]

    def workspace_bytes(self, case: Case) -> int:
        """Count the arrays of a block of rows, and those of one expert."""
        t, _, k, n = case.shape
        rows = min(t, blocks.rows_per_block(n))
        return 8 * (3 * k * n + 3 * rows * k) + blocks.block_bytes((t, n), arrays=14)


def products(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return x W in float64, the sums of the squares of its terms, and how many terms of each are equal."""
    x, weight = x.double(), weight.double()
    value, equal = x @ weight, repeats_of_products(x, weight)
    return value, x.square() @ weight.square(), torch.ones_like(value) if equal is None else equal


OP = GroupedMatmul()
