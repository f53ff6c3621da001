"""matrix_add: C = A + B, shapes (M, N), any strides."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from suite import check
from suite.op import DTYPES, Case, Op
from suite.ops import _draw


class MatrixAdd(Op):
    name = "matrix_add"
    formula = "C[i, j] = A[i, j] + B[i, j]"
    dims = ("M", "N")
    layouts = ("nn", "nt", "tn", "tt")
    sweep = tuple((n, n) for n in (32, 128, 512, 2048, 8192, 16384))
    ragged = ((1, 1), (1, 257), (257, 1), (31, 33), (64, 64), (127, 129), (100, 513))

    def default_cases(self, device_type: str) -> list[Case]:
        if device_type != "cuda":
            return [self.case((257, 400), dtype, layout=layout) for dtype in DTYPES for layout in ("nn", "nt")]
        kinds = (((1024, 1024), "nn"), ((16384, 16384), "nn"), ((16384, 16384), "nt"))
        return [self.case(shape, dtype, layout=layout) for shape, layout in kinds for dtype in DTYPES]

    def make_inputs(self, case: Case, seed: int, device: torch.device) -> tuple[torch.Tensor, ...]:
        source = _draw.generator(seed, device)
        return tuple(
            _draw.normal(case.shape, case.dtype, source, transposed=stored == "t") for stored in case.layout or "nn"
        )

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[check.Truth]:
        a, b = inputs
        for index in _draw.blocks(self.output_shape(case)):
            value = a[index].double() + b[index].double()
            yield check.Truth(index, value, check.rounding_limit(value, case.dtype))

    def output_shape(self, case: Case) -> tuple[int, ...]:
        return case.shape

    def flops(self, case: Case) -> int:
        return case["M"] * case["N"]

    def bytes(self, case: Case) -> int:
        return 3 * case["M"] * case["N"] * case.element_bytes

    def workspace_bytes(self, case: Case) -> int:
        return _draw.block_bytes(self.output_shape(case))


OP = MatrixAdd()
