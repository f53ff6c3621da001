"""The product alone and the all-gather alone, of the plain implementation."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from torch_impls._runtime.precision import with_precision


def parts(
    x: Tensor, w: Tensor, *, group: dist.ProcessGroup, precision: str = "ieee"
) -> dict[str, Callable[[], object]]:
    """`product`, of as many rows as all ranks have, by cuBLAS; and `communication`, the gathering of x by NCCL."""
    everyone, x = x.repeat(group.size(), 1), x.contiguous()
    gathered = torch.empty_like(everyone)
    return {
        "product": lambda: with_precision(precision, torch.matmul, everyone, w),
        "communication": lambda: dist.all_gather_into_tensor(gathered, x, group=group),
    }
