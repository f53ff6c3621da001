"""rms_norm_quantize: rows over their root mean square, times weights, as codes of 8 bits with group scales."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch

from suite.ops.quantize import GROUP, ODD, Quantize, uneven
from suite.ops.rms_norm import EPS, OTHER_EPS, rms_norm_error, rows_of_scales, scaled
from suite.problem import family, numbers
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.option import Option
from suite.problem.shape import Shape


def zeros_first(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Normal numbers; the first 128 are zeros."""
    drawn = numbers.normals(shape, case, source)
    drawn[:GROUP] = 0.0
    return drawn


def uneven_weights(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Normal numbers times powers of two."""
    return uneven((1, *shape), case, source)[0]


class RmsNormQuantize(Quantize):
    rank = 65
    group = "rows"
    name = "rms_norm_quantize"
    formula = "the codes and scales of quantize for y = rms_norm(x, weight), which is not rounded before"
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "group", ("row", "128", "128x128"), "elements with one scale: a row, 128 columns of it, 128 x 128", True
        ),
        Option("to", ("float8_e4m3fn", "int8"), "type of the codes"),
    )
    telling_left_out: tuple[str, ...] = ("subnormal@",)
    weights = (1,)
    families: ClassVar = {
        "normal": family.normal(),
        "sizes": family.sizes(*Quantize.ragged),
        "empty": family.empty((0, 5), (5, 0)),
        "int8": Quantize.families["int8"],
        "strided": family.strided_views(ODD),
        "offset": family.offset(ODD),
        "uneven": Family(
            "columns and weights of very different sizes, which expose the scale of another group",
            numbers.per_operand(uneven, uneven_weights),
            shapes=((137, 264),),
            options={"to": ("float8_e4m3fn", "int8")},
        ),
        "zero_groups": Family(
            "groups of zeros: their codes are 0", numbers.per_operand(numbers.normals, zeros_first), shapes=(ODD,)
        ),
        "small": Family(
            "mean squares of the size of eps, and rows that differ in size",
            numbers.per_operand(lambda *drawn: rows_of_scales(*drawn) * 2.0**-7, numbers.normals),
            shapes=((136, 264),),
        ),
        "large": Family(
            "numbers whose squares are large, and just in the range",
            numbers.per_operand(scaled(48), numbers.normals),
            shapes=(ODD,),
        ),
        "range": family.spread(ODD, 20, -20),
        "infinity": family.infinity(ODD, values=numbers.per_operand(numbers.some_infinite, numbers.normals)),
        "infinite_weights": Family(
            "infinite weights", numbers.per_operand(numbers.normals, numbers.some_infinite), shapes=(ODD,)
        ),
        "nan": family.nan(ODD, values=numbers.per_operand(numbers.one_nan, numbers.normals)),
        "nan_int8": Quantize.families["nan_int8"],
        "eps": Family(f"eps={OTHER_EPS} instead of {EPS}", family.NORMALS, shapes=(ODD,), arguments={"eps": OTHER_EPS}),
        "huge": family.huge((2**16 + 1, 2**15 + 8)),
    }

    def operands(self, case: Case) -> tuple[Shape, ...]:
        return (case.shape, (case["N"],))

    def arguments(self, case: Case) -> dict[str, Any]:
        return {"eps": EPS, **self.family(case.inputs).arguments, **self.option_values(case)}

    def numbers(self, inputs: tuple[torch.Tensor, ...], case: Case, rows: slice) -> tuple[torch.Tensor, torch.Tensor]:
        x, weight = inputs[0][rows].double(), inputs[1].double()
        scale = x.square().mean(dim=1, keepdim=True).add_(self.arguments(case)["eps"]).rsqrt_()
        value = x * scale * weight
        return value, rms_norm_error(x, weight, scale, value, math.prod(case.shape), case.dtype)

    def flops(self, case: Case) -> int:
        """Count four for each element of the norm, as rms_norm does, beside those of quantize."""
        return super().flops(case) + 4 * case["M"] * case["N"]

    def workspace_bytes(self, case: Case) -> int:
        return super().workspace_bytes(case) * 3 // 2 + 8 * 3 * case["N"]


OP = RmsNormQuantize()
