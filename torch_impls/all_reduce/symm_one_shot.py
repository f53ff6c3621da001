"""The sum over all ranks by torch's symmetric memory: every rank reads the vectors of all others."""

from __future__ import annotations

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from torch_impls.all_reduce._symmetric import buffer, checked

VENDOR = "PyTorch symmetric memory"
REQUIRES = "cuda"


def all_reduce(x: Float[Tensor, N], *, group: dist.ProcessGroup) -> Float[Tensor, N]:
    """The sum of x over the ranks of `group`, on every rank. x is (N,), any stride, and stays as it is.

    float32 or bfloat16, a multiple of 16 bytes; other cases raise NotImplementedError.
    """
    x = checked(x, 16)
    if x.numel() == 0:
        return torch.empty_like(x)
    return torch.ops.symm_mem.one_shot_all_reduce_copy(buffer(x, group), x, "sum", group.group_name)
