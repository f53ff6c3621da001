"""The product with K split over the ranks, by torch's fused operator: products hide the copies."""

from __future__ import annotations

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.contract import check_split_matmul
from torch_impls._runtime.precision import with_precision

VENDOR = "PyTorch symmetric memory + cuBLAS"
REQUIRES = "cuda"


def matmul_reduce_scatter(
    x: Float[Tensor, "ranks*M K"], w: Float[Tensor, "K N"], *, group: dist.ProcessGroup, precision: str = "ieee"
) -> Float[Tensor, "M N"]:
    """The sum of x w over the ranks of `group`: rank r gets rows r M to (r + 1) M - 1.

    float32, float16 or bfloat16, any strides. Precision: see `with_precision`.
    Raises ValueError for other shapes, dtypes and precisions, NotImplementedError for an empty matrix.
    """
    from torch.distributed import _symmetric_memory  # noqa: F401 (defines the operator)

    check_split_matmul(x, w, group.size(), precision=precision)
    if x.numel() == 0 or w.numel() == 0:
        raise NotImplementedError("matmul_reduce_scatter: torch's fused operator takes no empty matrix")

    def product(rows: Tensor, weight: Tensor) -> Tensor:
        found: Tensor = torch.ops.symm_mem.fused_matmul_reduce_scatter(rows, weight, "sum", 0, group.group_name)
        return found

    return with_precision(precision, product, x.contiguous(), w).contiguous()
