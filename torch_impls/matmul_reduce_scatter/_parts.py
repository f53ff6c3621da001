"""The parts of the plain implementation, each alone: the product and the reduce-scatter."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from torch_impls._runtime.precision import with_precision


def parts(
    x: Tensor, w: Tensor, *, group: dist.ProcessGroup, precision: str = "ieee"
) -> dict[str, Callable[[], object]]:
    """`product`: x w by cuBLAS; `communication`: the reduce-scatter of such a product by NCCL."""
    product = with_precision(precision, torch.matmul, x, w).contiguous()
    out = product.new_empty(x.shape[0] // group.size(), w.shape[1])
    return {
        "product": lambda: with_precision(precision, torch.matmul, x, w),
        "communication": lambda: dist.reduce_scatter_tensor(out, product, group=group),
    }
