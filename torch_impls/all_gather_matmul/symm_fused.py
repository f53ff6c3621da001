"""All ranks' rows times this rank's weight by torch's fused operator: products hide copies over symmetric memory."""

from __future__ import annotations

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.contract import check_matmul
from torch_impls._runtime.precision import with_precision

VENDOR = "PyTorch symmetric memory + cuBLAS"
REQUIRES = "cuda"


def all_gather_matmul(
    x: Float[Tensor, "M K"], w: Float[Tensor, "K N"], *, group: dist.ProcessGroup, precision: str = "ieee"
) -> Float[Tensor, "ranks*M N"]:
    """X w, where X has the rows of x of all ranks of `group`, in their order. Any strides; x and w stay as they are.

    float32, float16 or bfloat16. Precision: see `with_precision`.
    Raises ValueError for other shapes, dtypes and precisions, NotImplementedError for an empty x.
    """
    from torch.distributed import _symmetric_memory  # noqa: F401 (defines the operator)

    check_matmul(x, w, precision=precision)
    if x.numel() == 0 or w.numel() == 0:
        raise NotImplementedError("all_gather_matmul: torch's fused operator takes no empty matrix")
    fused = torch.ops.symm_mem.fused_all_gather_matmul

    def product(rows: Tensor, weight: Tensor) -> Tensor:
        _, (found,) = fused(rows, [weight], 0, group.group_name)
        result: Tensor = found
        return result

    return with_precision(precision, product, x.contiguous(), w).contiguous()
