"""vector_add: c = a + b, shapes (N,)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch

from suite.numerics.bounds import rounding_limit
from suite.numerics.formats import DOUBLE, DTYPES
from suite.problem import family
from suite.problem.blocks import block_bytes, blocks
from suite.problem.case import Case
from suite.problem.operation import Operation
from suite.problem.shape import Shape
from suite.problem.telling_case import TellingCase
from suite.problem.truth import Truth


class VectorAdd(Operation):
    rank = 10
    group = "elementwise"
    name = "vector_add"
    formula = "c[i] = a[i] + b[i]"
    dtypes_beyond = (DOUBLE,)
    dims = ("N",)
    is_square = True
    sweep = tuple((2**k,) for k in range(10, 29, 3))
    telling = (TellingCase("tail", (65_793,)),)
    large = (TellingCase("large", (2**21 + 5,)),)
    ragged = ((1,), (31,), (1023,), (1025,), (10_007,))
    families: ClassVar = {
        "normal": family.normal(),
        "sizes": family.sizes(*ragged),
        "empty": family.empty((0,)),
        "strided": family.strided_views((1,), (1025,)),
        "offset": family.offset((1,), (4097,)),
        "broadcast": family.broadcast((1025,)),
        "subnormal": family.subnormal((1025,)),
        "largest": family.large((1025,)),
        "signed_zero": family.signed_zero((1025,)),
        "infinity": family.infinity((1025,)),
        "nan": family.nan((1025,)),
        "cancellation": family.cancellation((1025,)),
        "huge": family.huge((2**31 + 17,)),
    }

    def default_cases(self, device_type: str) -> list[Case]:
        sizes = (2**20, 2**28) if device_type == "cuda" else (100_003,)
        return [self.case((n,), dtype) for n in sizes for dtype in DTYPES]

    def operands(self, case: Case) -> tuple[Shape, ...]:
        return (case.shape, case.shape)

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        a, b = inputs
        for index in blocks(case.shape):
            value = a[index].double() + b[index].double()
            yield Truth(index, value, rounding_limit(value, case.dtype))

    def output_shape(self, case: Case) -> Shape:
        return case.shape

    def flops(self, case: Case) -> int:
        return case["N"]

    def workspace_bytes(self, case: Case) -> int:
        return block_bytes(case.shape)


OP = VectorAdd()
