"""References in float64: kernels in float64 are right, those with float32 inside are not."""

from __future__ import annotations

from pathlib import Path

import torch
from custom_files import CPU, HEAD, operation, verdict

REFERENCE = (
    HEAD + "shapes = ['M=32,N=50']\ndtypes = ('float64', 'float32')\n"
    "def reference(x: Float[Tensor, 'M N'], w: Float[Tensor, 'N']):\n"
    "    return torch.tanh(x) * w + torch.softmax(x, dim=1)\n"
)


def test_float64_arithmetic_is_right_and_float32_is_not(tmp_path: Path) -> None:
    op = operation(tmp_path, REFERENCE)
    assert op.dtypes == ("float64", "float32")
    case = op.case((32, 50), "float64")
    x, w = inputs = op.make_inputs(case, 0, CPU)
    assert x.dtype == torch.float64
    e = torch.exp(x - x.amax(1, keepdim=True))
    right = torch.tanh(x) * w + e / e.sum(1, keepdim=True)
    assert verdict(op, case, right, inputs).error_ratio < 0.7
    for wrong in (
        torch.tanh(x) * w + torch.softmax(x.float(), 1).double(),
        torch.tanh(x.float()).double() * w + torch.softmax(x, 1),
        right.float().double(),
    ):
        assert verdict(op, case, wrong, inputs).error_ratio > 1e3
