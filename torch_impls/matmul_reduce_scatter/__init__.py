"""The product with K split over the ranks, by torch: cuBLAS multiplies, then NCCL adds and scatters the rows."""

from __future__ import annotations

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.contract import check_split_matmul
from torch_impls._runtime.precision import with_precision

VENDOR = "NCCL + PyTorch (cuBLAS on a GPU)"


def matmul_reduce_scatter(
    x: Float[Tensor, "ranks*M K"], w: Float[Tensor, "K N"], *, group: dist.ProcessGroup, precision: str = "ieee"
) -> Float[Tensor, "M N"]:
    """The sum of x w over the ranks of `group`: rank r gets rows r M to (r + 1) M - 1.

    float32, float16 or bfloat16, any strides; the ranks' products and their sums are rounded to that type. Precision:
    see `with_precision`.
    Raises ValueError for other shapes, dtypes and precisions, NotImplementedError for "tf32" on a CPU.
    """
    M, N, _ = check_split_matmul(x, w, group.size(), precision=precision)
    product = with_precision(precision, torch.matmul, x, w)
    out = product.new_empty(M, N)
    if out.numel():
        dist.reduce_scatter_tensor(out, product.contiguous(), group=group)
    return out
