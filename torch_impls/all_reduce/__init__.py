"""The sum over all ranks by torch.distributed: NCCL on GPUs, gloo on a CPU."""

from __future__ import annotations

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.contract import check_all_reduce

VENDOR = "NCCL"


def all_reduce(x: Float[Tensor, N], *, group: dist.ProcessGroup) -> Float[Tensor, N]:
    """The sum of x over the ranks of `group`, on every rank. x is (N,), any stride, and stays as it is.

    float32, float16 or bfloat16; partial sums are rounded to that type. Raises ValueError for other shapes and dtypes.
    """
    check_all_reduce("all_reduce", x)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device).copy_(x)
    if x.numel():
        dist.all_reduce(out, group=group)
    return out
