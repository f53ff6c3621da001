"""Products in 16 bits with many dense rows, few terms and few columns: memory-bound."""

from torch import Tensor

from cuda_ref import build
from cuda_ref.matmul._narrow_plan import divide
from cuda_ref.matmul._plan import multiprocessors
from cuda_ref.matmul._tiles import Plan

HOST_PROCESSORS = 2
"""Multiprocessors of an emulated device."""


def run(plan: Plan, a: Tensor, b: Tensor) -> Tensor:
    """The product of two matrices that are not empty; a has no gaps and begins at a multiple of 16 bytes."""
    (M, K), N = a.shape, b.shape[1]
    division = divide(M, N, K, plan.tile, multiprocessors(a.device) if a.is_cuda else HOST_PROCESSORS)
    if division is None:
        raise ValueError(f"matmul: no plan {plan} for (M, N, K)={(M, N, K)}")
    out = a.new_empty(M, N)
    build.launch(
        "matmul/_narrow", "matmul_narrow", a.device,
        a, b, out, M, N, K, *b.stride(), *division, build.DTYPES[a.dtype],
    )  # fmt: skip
    return out
