"""Sigmoid in CUDA, the plain kernel: one thread computes one element."""

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_elementwise
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True
DTYPES_BEYOND = ("float64",)


@kept
def sigmoid(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """out = 1 / (1 + exp(-x)), elementwise.

    Shapes: any; the output is contiguous. torch first copies an input that is not contiguous, which costs a second pass
    over memory.
    Dtypes: float32 (subnormal results included), float16, bfloat16 (float32 inside, rounded once).
    Tail: threads beyond the last element do nothing. Indices are int64.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other dtypes; build.CudaError if the launch fails.
    Source: see sigmoid.cu.
    """
    check_elementwise("sigmoid", x, float64=True)
    x = x.contiguous()
    out = torch.empty_like(x)
    N = out.numel()
    if N > 0:
        build.launch("sigmoid/sigmoid", "sigmoid", x.device, x, out, N, build.DTYPES[x.dtype])
    return out
