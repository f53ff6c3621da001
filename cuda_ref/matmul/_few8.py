"""Products in float8 with few rows or columns, by TMA: _skinny8.cu, and _short8.cu for few terms."""

import torch
from torch import Tensor

from cuda_ref import build
from cuda_ref.matmul._tiles import SKINNY_COLUMNS, Plan
from cuda_ref.matmul.wgmma import for_tma


def run(plan: Plan, a: Tensor, b: Tensor, precision: str, scale_a: Tensor | None, scale_b: Tensor | None) -> Tensor:
    """The product of two matrices that are not empty, by a "skinny8" or "short8" plan."""
    (M, K), N = a.shape, b.shape[1]
    a, b, (_, a_stride), (_, b_stride) = for_tma(a, b)
    out = a.new_empty(M, N, dtype=torch.bfloat16)
    operands = (a, b, out, M, N, K, a_stride, b_stride, scale_a, scale_b)
    if plan.kernel == "short8":
        build.launch("matmul/_short8", "matmul_short8", a.device, *operands)
    else:
        build.launch(
            "matmul/_skinny8", "matmul_skinny8", a.device,
            *operands, precision == "promoted", SKINNY_COLUMNS[plan.tile], plan.parts,
        )  # fmt: skip
    return out
