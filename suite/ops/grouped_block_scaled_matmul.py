"""grouped_block_scaled_matmul: the rows of each expert times its weights, in float8 with scales of groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

import torch

from suite.core.integers import cdiv
from suite.numerics.float8 import FLOAT8
from suite.ops.block_scaled_matmul import (
    GROUP,
    BlockScaledMatmul,
    groups_that_cancel,
    largest_codes,
    quarters,
    scaled_product,
    some_zero_scales,
    uneven_scales,
)
from suite.ops.grouped_matmul import ALL, UNUSED_NAN, with_sizes
from suite.ops.grouped_matmul import OP as GROUPED
from suite.ops.matmul import grain
from suite.problem import blocks, family, numbers
from suite.problem.case import Case
from suite.problem.expert_sizes import bounds, used_experts
from suite.problem.family import Family
from suite.problem.option import Option
from suite.problem.shape import Shape
from suite.problem.telling_case import TellingCase
from suite.problem.truth import Truth

ODD = (70, 5, 304, 140)
"""Shape of most families: a last group that is a part of one, and two rows of scales of each expert."""
UNEVEN_SIZES: Mapping[str, tuple[str, ...]] = {"sizes": ("skewed",)}


class GroupedBlockScaledMatmul(BlockScaledMatmul):
    rank = 52
    group = "products"
    name = "grouped_block_scaled_matmul"
    formula = (
        "Y[t, n] = sum over groups g of scale_x[t, g] scale_weight[e, n // 128, g] times the sum over k in g of "
        "X[t, k] W[e, n, k], with row t among the sizes[e] rows of expert e, where g holds 128 terms of K"
    )
    dims = ("T", "E", "K", "N")
    is_square = False
    options: ClassVar[tuple[Option, ...]] = (
        Option("sizes", ("uniform", "skewed", "empty", "one", "edges"), "how the rows are divided among the experts"),
    )
    sweep = tuple((t, 8, 1024, 1024) for t in (16, 64, 256, 1024, 4096, 16384))
    sizes: ClassVar = {"E": (1, 5, 8, 67), "N": (1, 140, 128, 257), "K": (1, 304, 128, 257, 1024)}
    telling = (
        TellingCase("groups_of_tiles", (1024, 16, 136, 24), options={"sizes": "edges"}),
        TellingCase("last_group", (40, 3, 129, 136)),
        TellingCase("many_experts", (300, 259, 16, 8), options={"sizes": "edges"}, first=False),
        TellingCase("rows_of_many_experts", (300, 259, 16, 8), first=False),
        TellingCase("many_groups", (3, 2, 8_341, 2), first=False),
        TellingCase("many_blocks", (2, 2, 3, 8_341), first=False),
        TellingCase("1024_groups", (2, 1, 131_072, 2), first=False),
        TellingCase("1024_blocks", (2, 1, 2, 131_072), first=False),
        TellingCase("equal_sizes", (60, 5, 16, 8), inputs="dense/dense/dense/dense/repeated0"),
    )
    large = (
        TellingCase("large", (40, 2, 16_392, 72)),
        TellingCase("many_rows", (70_001, 3, 136, 9), options={"sizes": "skewed"}),
    )
    # XLA multiplies the rows of other experts by 0: a NaN in the weights of one reaches all rows. Sizes are integers.
    # Infinite scales, and those below the normal range, depend on the order of products.
    telling_left_out = ("nan", UNUSED_NAN, "nan@2", "nan@4", "infinity@", "subnormal@1", "subnormal@3", "subnormal@4")
    ragged: ClassVar[tuple[Shape, ...]] = (
        (1, 1, 1, 1), (1, 3, 129, 257), (65, 2, 127, 1), (129, 2, 257, 129), (64, 4, 128, 128),
    )  # fmt: skip
    families: ClassVar = {
        name: replace(each, dtypes=(FLOAT8,))
        for name, each in {
            "normal": family.normal(),
            "sizes": family.sizes(*ragged),
            "divided": Family(
                "rows divided among the experts in every way", family.NORMALS, shapes=((200, 5, 144, 33),),
                options={"sizes": ALL},
            ),
            UNUSED_NAN: Family(
                "NaN in the weights of experts without rows", family.NORMALS, shapes=(ODD,),
                options={"sizes": ("empty", "one")},
            ),
            "long_thin": family.long_thin((1031, 2, 3, 1), (3, 2, 1031, 2)),
            "empty": family.empty((3, 2, 0, 4), (0, 2, 3, 4), (3, 2, 4, 0)),
            "strided": family.strided_views(ODD),
            "offset": family.offset(ODD, (64, 2, 128, 32)),
            "misaligned_rows": family.misaligned_rows((33, 2, 256, 64)),
            "broadcast": family.broadcast(ODD),
            "uneven": Family(
                "scales far apart, which expose the scale of another row, expert or group", uneven_scales,
                shapes=(ODD, (300, 3, 520, 264)), options=UNEVEN_SIZES,
            ),
            "zero_scales": Family("groups whose scale is 0", some_zero_scales, shapes=(ODD,)),
            "subnormal": family.subnormal(
                ODD, values=numbers.per_operand(numbers.subnormals, numbers.normals, numbers.small_integers)
            ),
            "largest": Family("the largest codes, 448", numbers.per_operand(largest_codes), shapes=(ODD,)),
            "signed_zero": family.signed_zero(ODD),
            "nan": family.nan(ODD),
            "exact_sums": Family(
                "codes whose sums are exact up to 128 products, and not beyond", numbers.per_operand(quarters),
                shapes=((48, 2, 4096, 32), ODD),
            ),
            "cancellation": Family(
                "exact sums of groups that nearly cancel: expose factors rounded after scaling", groups_that_cancel,
                shapes=((70, 3, 512, 140),),
            ),
            "huge": family.huge((2**16 + 1, 3, 128, 2**15 + 1), (7, 257, 4096, 4096)),
        }.items()
    }  # fmt: skip

    def family(self, inputs: str) -> Family:
        """Return the family with scales and sizes; in `unused_nan` with NaN where no row needs the weights."""
        found = with_sizes(super().family(inputs))
        if UNUSED_NAN not in inputs.split("+"):
            return found

        def values(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
            x, scale_x, weight, scale_weight, sizes = found.values(shapes, case, source)
            weight.view(torch.uint8)[sizes == 0] = 0x7F
            return x, scale_x, weight, scale_weight.masked_fill_((sizes == 0)[:, None, None], torch.nan), sizes

        return replace(found, values=values)

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a GPU: experts as wide as those of Mixtral 8x7B, and a quarter of DeepSeek-V3's, for many tokens and
        for few. The gate and the first product of DeepSeek-V3 are one product."""
        if device_type != "cuda":
            return [self.case((96, 4, 304, 140), FLOAT8, sizes="skewed")]
        mixtral, gate_up, down = (32768, 8, 4096, 14336), (32768, 64, 7168, 4096), (32768, 64, 2048, 7168)
        cases = [self.case(mixtral, FLOAT8, sizes=sizes) for sizes in ("uniform", "skewed", "empty")]
        cases += [self.case(shape, FLOAT8, sizes=sizes) for shape in (gate_up, down) for sizes in ALL[:2]]
        return [*cases, *(self.case((tokens, *gate_up[1:]), FLOAT8, sizes="skewed") for tokens in (512, 4096))]

    def validate(self, dims: Mapping[str, int]) -> None:
        GROUPED.validate(dims)

    def operands(self, case: Case) -> tuple[Shape, ...]:
        t, e, k, n = case.shape
        return ((t, k), (t, cdiv(k, GROUP)), (e, n, k), (e, cdiv(n, GROUP), cdiv(k, GROUP)), (e,))

    def operand_dtypes(self, case: Case) -> tuple[str, ...]:
        return (FLOAT8, "float32", FLOAT8, "float32", "int32")

    def random_shape(self, size: Callable[[], int]) -> Shape:
        return GROUPED.random_shape(size)

    def bytes(self, case: Case) -> int:
        """Count the weights and scales of the experts that have rows."""
        k, n = case["K"], case["N"]
        unused = case["E"] - used_experts(case)
        return super().bytes(case) - unused * (n * k + 4 * cdiv(n, GROUP) * cdiv(k, GROUP))

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        """Yield blocks of rows, which may belong to several experts."""
        t, _, _, n = case.shape
        x, scale_x, weight, scale_weight, sizes = inputs
        grains = (grain(each) for each, size in zip(weight, sizes.tolist(), strict=True) if size)
        step = grain(x) * min(filter(None, grains), default=0.0)
        for rows, columns in blocks.blocks((t, n)):
            found = []
            for expert, (start, stop) in enumerate(bounds(sizes)):
                own = slice(max(rows.start, start), min(rows.stop, stop))
                if own.start < own.stop:
                    of_weight = scale_weight[expert].repeat_interleave(GROUP, 0)[:n][columns]
                    factors = x[own], scale_x[own], weight[expert, columns], of_weight
                    found.append(scaled_product(*factors, step=step, count=t * n))
            value, bound = (torch.cat(each) for each in zip(*found, strict=True))
            del found
            yield Truth((rows, columns), value, bound)
            del value, bound

    def output_shape(self, case: Case) -> Shape:
        return (case["T"], case["N"])

    def flops(self, case: Case) -> int:
        return 2 * case["T"] * case["K"] * case["N"]

    def workspace_bytes(self, case: Case) -> int:
        """Count what one expert with all rows takes: its scales, the codes of a group, float64 arrays of a block."""
        t, _, k, n = case.shape
        rows = min(t, blocks.rows_per_block(n))
        return 4 * n * cdiv(k, GROUP) + 16 * GROUP * (rows + n) + blocks.block_bytes((t, n), arrays=20)


OP = GroupedBlockScaledMatmul()
