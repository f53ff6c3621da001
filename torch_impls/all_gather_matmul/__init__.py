"""All ranks' rows times this rank's weight by torch: NCCL gathers the rows, then cuBLAS multiplies."""

from __future__ import annotations

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.contract import check_matmul
from torch_impls._runtime.precision import with_precision

VENDOR = "NCCL + PyTorch (cuBLAS on a GPU)"


def all_gather_matmul(
    x: Float[Tensor, "M K"], w: Float[Tensor, "K N"], *, group: dist.ProcessGroup, precision: str = "ieee"
) -> Float[Tensor, "ranks*M N"]:
    """X w, where X has the rows of x of all ranks of `group`, in their order. Any strides; x and w stay as they are.

    float32, float16 or bfloat16. Precision: see `with_precision`.
    Raises ValueError for other shapes, dtypes and precisions, NotImplementedError for "tf32" on a CPU.
    """
    check_matmul(x, w, precision=precision)
    everyone = torch.empty((group.size() * x.shape[0], x.shape[1]), dtype=x.dtype, device=x.device)
    if everyone.numel():
        dist.all_gather_into_tensor(everyone, x.contiguous(), group=group)
    return with_precision(precision, torch.matmul, everyone, w)
