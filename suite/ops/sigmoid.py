"""sigmoid: y = 1 / (1 + exp(-x)), any shape; here a vector."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from suite import check
from suite.op import DTYPES, Case, Op
from suite.ops import _draw


class Sigmoid(Op):
    name = "sigmoid"
    formula = "y[i] = 1 / (1 + exp(-x[i]))"
    dims = ("N",)
    sweep = tuple((2**k,) for k in range(10, 29, 3))
    ragged = ((1,), (31,), (1023,), (1025,), (10_007,))

    def default_cases(self, device_type: str) -> list[Case]:
        sizes = (2**20, 2**28) if device_type == "cuda" else (100_003,)
        return [self.case((n,), dtype) for n in sizes for dtype in DTYPES]

    def make_inputs(self, case: Case, seed: int, device: torch.device) -> tuple[torch.Tensor, ...]:
        return (_draw.normal(case.shape, case.dtype, _draw.generator(seed, device)),)

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

    def bytes(self, case: Case) -> int:
        return 2 * case["N"] * case.element_bytes

    def workspace_bytes(self, case: Case) -> int:
        return _draw.block_bytes(self.output_shape(case))


OP = Sigmoid()
