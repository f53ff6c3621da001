"""matrix_add: C = A + B, shapes (M, N), any strides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch

from suite.numerics import check
from suite.problem import families as f
from suite.problem import generators as _draw
from suite.problem.operation import DTYPES, Case, Operation, Shape


class MatrixAdd(Operation):
    name = "matrix_add"
    formula = "C[i, j] = A[i, j] + B[i, j]"
    dims = ("M", "N")
    layouts = ("nn", "nt", "tn", "tt")
    sweep = tuple((n, n) for n in (32, 128, 512, 2048, 8192, 16384))
    ragged = ((1, 1), (1, 257), (257, 1), (31, 33), (64, 64), (127, 129), (100, 513))
    families: ClassVar = {
        "normal": f.normal(),
        "sizes": f.sizes(*ragged),
        "long_thin": f.long_thin((1, 50_021), (50_021, 1), (11_111, 3), (3, 11_111)),
        "empty": f.empty((0, 5), (5, 0), (0, 0)),
        "transposed": f.transposed(layouts, (31, 33), (64, 64), (100, 513)),
        "strided": f.strided_views((1, 1), (65, 33)),
        "offset": f.offset((64, 64), (65, 33)),
        "broadcast": f.broadcast((64, 64), (65, 33)),
        "subnormal": f.subnormal((65, 33)),
        "largest": f.large((65, 33)),
        "signed_zero": f.signed_zero((65, 33)),
        "infinity": f.infinity((65, 33)),
        "nan": f.nan((65, 33)),
        "cancellation": f.cancellation((65, 33)),
        "huge": f.huge((46_341, 46_342), (2**30 + 9, 2)),
    }

    def default_cases(self, device_type: str) -> list[Case]:
        if device_type != "cuda":
            return [self.case((257, 400), dtype, layout=layout) for dtype in DTYPES for layout in ("nn", "nt")]
        kinds = (((1024, 1024), "nn"), ((16384, 16384), "nn"), ((16384, 16384), "nt"))
        return [self.case(shape, dtype, layout=layout) for shape, layout in kinds for dtype in DTYPES]

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
        return case["M"] * case["N"]

    def workspace_bytes(self, case: Case) -> int:
        return _draw.block_bytes(self.output_shape(case))


OP = MatrixAdd()
