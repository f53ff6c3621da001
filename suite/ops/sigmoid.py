"""sigmoid: y = 1 / (1 + exp(-x)), any shape; here a vector."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

import torch

from suite.numerics import check
from suite.problem import families as f
from suite.problem import generators as _draw
from suite.problem.operation import DTYPES, Case, Operation, Shape


def small_results(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Half subnormal numbers, whose sigmoid is 1/2; half numbers whose sigmoid is subnormal, or just above or below."""
    normal = check.MIN_EXPONENT[case.dtype]
    smallest = normal - check.SIGNIFICANT_BITS[case.dtype]
    drawn = torch.rand(shape, generator=source, device=source.device, dtype=torch.float64)
    low = (smallest - 1 + (normal - smallest + 2) * drawn) * math.log(2.0)
    x = f.subnormals(shape, case, source)
    return torch.where(torch.rand(shape, generator=source, device=source.device) < 0.5, low.to(x.dtype), x)


def far_out(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Half the largest numbers, half from 110 to 220 of either sign: exponentials overflow, and sigmoids are 0 or 1."""
    drawn = 220.0 * torch.rand(shape, generator=source, device=source.device) - 110.0
    x = f.extremes(shape, case, source)
    drawn = (drawn + 110.0 * drawn.sign()).to(x.dtype)
    return torch.where(torch.rand(shape, generator=source, device=source.device) < 0.5, drawn, x)


class Sigmoid(Operation):
    name = "sigmoid"
    formula = "y[i] = 1 / (1 + exp(-x[i]))"
    dims = ("N",)
    sweep = tuple((2**k,) for k in range(10, 29, 3))
    ragged = ((1,), (31,), (1023,), (1025,), (10_007,))
    families: ClassVar = {
        "normal": f.normal(),
        "sizes": f.sizes(*ragged),
        "empty": f.empty((0,)),
        "strided": f.strided_views((1,), (1025,)),
        "offset": f.offset((1,), (4097,)),
        "broadcast": f.broadcast((1025,)),
        "subnormal": f.subnormal((1025,), values=f.each(small_results)),
        "largest": f.large((1025,), values=f.each(far_out)),
        "signed_zero": f.signed_zero((1025,)),
        "infinity": f.infinity((1025,)),
        "nan": f.nan((1025,)),
        "huge": f.huge((2**31 + 17,)),
    }

    def default_cases(self, device_type: str) -> list[Case]:
        sizes = (2**20, 2**28) if device_type == "cuda" else (100_003,)
        return [self.case((n,), dtype) for n in sizes for dtype in DTYPES]

    def operands(self, case: Case) -> tuple[Shape, ...]:
        return (case.shape,)

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[check.Truth]:
        (x,) = inputs
        for index in _draw.blocks(self.output_shape(case)):
            value = torch.sigmoid(x[index].double())
            yield check.Truth(index, value, check.sigmoid_limit(value, case.dtype))

    def output_shape(self, case: Case) -> tuple[int, ...]:
        return case.shape

    def flops(self, case: Case) -> int:
        """Negation, exponential, sum and division count one each."""
        return 4 * case["N"]

    def workspace_bytes(self, case: Case) -> int:
        return _draw.block_bytes(self.output_shape(case))


OP = Sigmoid()
