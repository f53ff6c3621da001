"""vector_add: c = a + b, shapes (N,)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch

from suite.numerics import check
from suite.problem import families as f
from suite.problem import generators as _draw
from suite.problem.operation import DTYPES, Case, Operation, Shape


class VectorAdd(Operation):
    name = "vector_add"
    formula = "c[i] = a[i] + b[i]"
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
        "subnormal": f.subnormal((1025,)),
        "largest": f.large((1025,)),
        "signed_zero": f.signed_zero((1025,)),
        "infinity": f.infinity((1025,)),
        "nan": f.nan((1025,)),
        "cancellation": f.cancellation((1025,)),
        "huge": f.huge((2**31 + 17,)),
    }

    def default_cases(self, device_type: str) -> list[Case]:
        sizes = (2**20, 2**28) if device_type == "cuda" else (100_003,)
        return [self.case((n,), dtype) for n in sizes for dtype in DTYPES]

    def operands(self, case: Case) -> tuple[Shape, ...]:
        return (case.shape, case.shape)

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[check.Truth]:
        a, b = inputs
        for index in _draw.blocks(self.output_shape(case)):
            value = a[index].double() + b[index].double()
            yield check.Truth(index, value, check.rounding_limit(value, case.dtype))

    def output_shape(self, case: Case) -> tuple[int, ...]:
        return case.shape

    def flops(self, case: Case) -> int:
        return case["N"]

    def workspace_bytes(self, case: Case) -> int:
        return _draw.block_bytes(self.output_shape(case))


OP = VectorAdd()
