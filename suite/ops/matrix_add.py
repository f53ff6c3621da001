"""matrix_add: C = A + B, shapes (M, N), any strides."""

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
from suite.problem.option import Option
from suite.problem.shape import Shape
from suite.problem.telling_case import TellingCase
from suite.problem.truth import Truth


class MatrixAdd(Operation):
    rank = 20
    group = "elementwise"
    name = "matrix_add"
    formula = "C[i, j] = A[i, j] + B[i, j]"
    dtypes_beyond = (DOUBLE,)
    dims = ("M", "N")
    is_square = True
    options = (Option("layout", ("nn", "nt", "tn", "tt"), "which operands are stored transposed (t)"),)
    sweep = tuple((n, n) for n in (32, 128, 512, 2048, 8192, 16384))
    large = (
        TellingCase("large", (2051, 2049)),
        TellingCase("many_rows", (70_001, 9)),
        TellingCase("many_columns", (9, 70_001)),
    )
    ragged = ((1, 1), (1, 257), (257, 1), (31, 33), (64, 64), (127, 129), (100, 513))
    families: ClassVar = {
        "normal": family.normal(),
        "sizes": family.sizes(*ragged),
        "long_thin": family.long_thin((1, 17_011), (17_011, 1), (11_111, 3), (3, 11_111)),
        "empty": family.empty((0, 5), (5, 0), (0, 0)),
        "transposed": family.transposed(*options, (31, 33), (64, 64), (100, 513)),
        "strided": family.strided_views((1, 1), (65, 33)),
        "offset": family.offset((64, 64), (65, 33)),
        "misaligned_rows": family.misaligned_rows((33, 64)),
        "broadcast": family.broadcast((64, 64), (65, 33)),
        "subnormal": family.subnormal((65, 33)),
        "largest": family.large((65, 33)),
        "signed_zero": family.signed_zero((65, 33)),
        "infinity": family.infinity((65, 33)),
        "nan": family.nan((65, 33)),
        "cancellation": family.cancellation((65, 33)),
        "huge": family.huge((46_341, 46_342), (2**30 + 9, 2)),
    }

    def default_cases(self, device_type: str) -> list[Case]:
        if device_type != "cuda":
            return [self.case((257, 400), dtype, layout=layout) for dtype in DTYPES for layout in ("nn", "nt")]
        kinds = (((1024, 1024), "nn"), ((16384, 16384), "nn"), ((16384, 16384), "nt"))
        return [self.case(shape, dtype, layout=layout) for shape, layout in kinds for dtype in DTYPES]

    def operands(self, case: Case) -> tuple[Shape, ...]:
        return (case.shape, case.shape)

    def stored_transposed(self, case: Case) -> tuple[bool, ...]:
        return tuple(letter == "t" for letter in case.option("layout", "nn"))

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        a, b = inputs
        for index in blocks(case.shape):
            value = a[index].double() + b[index].double()
            yield Truth(index, value, rounding_limit(value, case.dtype))

    def output_shape(self, case: Case) -> Shape:
        return case.shape

    def flops(self, case: Case) -> int:
        return case["M"] * case["N"]

    def workspace_bytes(self, case: Case) -> int:
        return block_bytes(case.shape)


OP = MatrixAdd()
