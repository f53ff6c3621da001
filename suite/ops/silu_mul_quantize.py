"""silu_mul_quantize: the product of a gated linear unit, silu(a) b, as codes of 8 bits with a scale for each group."""

from __future__ import annotations

from typing import ClassVar

import torch

from suite.numerics.formats import DTYPES
from suite.ops.quantize import GROUP, ODD, Quantize, uneven
from suite.ops.silu_mul import gate, product_error, saturated
from suite.problem import family, numbers
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.option import Option
from suite.problem.shape import Shape


def halves_of_zeros(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Normal numbers; the first 128 columns, and the first rows up to the middle, are zeros."""
    drawn = numbers.normals(shape, case, source)
    drawn[: shape[0] // 2] = 0.0
    drawn[:, :GROUP] = 0.0
    return drawn


class SiluMulQuantize(Quantize):
    rank = 64
    group = "rows"
    name = "silu_mul_quantize"
    formula = "the codes and scales of quantize for y = a * sigmoid(a) * b, which is not rounded before"
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "group", ("row", "128", "128x128"), "elements with one scale: a row, 128 columns of it, 128 x 128", True
        ),
        Option("to", ("float8_e4m3fn", "int8"), "type of the codes"),
    )
    telling_left_out: tuple[str, ...] = ("subnormal@",)
    families: ClassVar = {
        "normal": family.normal(),
        "sizes": family.sizes(*Quantize.ragged),
        "empty": family.empty((0, 5), (5, 0)),
        "int8": Quantize.families["int8"],
        "strided": family.strided_views(ODD),
        "offset": family.offset(ODD),
        "uneven": Family(
            "rows and columns of b of very different sizes, which expose the scale of another group",
            numbers.per_operand(numbers.normals, uneven),
            shapes=((137, 264),),
            options={"to": ("float8_e4m3fn", "int8")},
        ),
        "zero_groups": Family(
            "groups of zeros: their codes are 0", numbers.per_operand(numbers.normals, halves_of_zeros), shapes=(ODD,)
        ),
        "saturated": Family(
            "gates of 0 and of 1, and exponentials that overflow",
            numbers.per_operand(saturated, numbers.normals),
            shapes=(ODD,),
        ),
        "range": family.spread(ODD, 3, 60),
        "large_gate": family.spread(ODD, 20),
        "infinity": family.infinity(ODD, values=numbers.per_operand(numbers.normals, numbers.some_infinite)),
        "nan": family.nan(ODD),
        "nan_int8": Quantize.families["nan_int8"],
        "huge": family.huge((2**16 + 1, 2**15 + 8)),
    }

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a GPU: the feed-forward part of Llama 3's 8B model for 8192 tokens in each group; other types."""
        if device_type != "cuda":
            return super().default_cases(device_type)
        shape = (8192, 14336)
        cases = [self.case(shape, "bfloat16", group=group) for group in self.options[0].values]
        cases.append(self.case(shape, "bfloat16", to="int8"))
        return [*cases, *(self.case(shape, dtype) for dtype in DTYPES if dtype != "bfloat16")]

    def operands(self, case: Case) -> tuple[Shape, ...]:
        return (case.shape, case.shape)

    def numbers(self, inputs: tuple[torch.Tensor, ...], case: Case, rows: slice) -> tuple[torch.Tensor, torch.Tensor]:
        a, b = (each[rows].double() for each in inputs)
        of = gate(a, "silu")
        value = a * of.s * b
        return value, product_error(a, b, of, value)

    def flops(self, case: Case) -> int:
        """Count six for the product, as silu_mul does, beside those of quantize."""
        return super().flops(case) + 6 * case["M"] * case["N"]

    def workspace_bytes(self, case: Case) -> int:
        return super().workspace_bytes(case) * 3 // 2


OP = SiluMulQuantize()
