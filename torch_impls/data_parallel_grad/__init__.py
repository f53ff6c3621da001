"""The gradients of a layer with the batch split over the ranks, by torch: the products, then NCCL's sums."""

from __future__ import annotations

import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.contract import check_linear
from torch_impls._runtime.precision import with_precision
from torch_impls.linear_sigmoid_grad import gradients

VENDOR = "NCCL + PyTorch (cuBLAS on a GPU)"


def data_parallel_grad(
    x: Float[Tensor, "M K"],
    weight: Float[Tensor, "N K"],
    bias: Float[Tensor, N],
    dy: Float[Tensor, "M N"],
    *,
    group: dist.ProcessGroup,
    precision: str = "ieee",
) -> tuple[Float[Tensor, "M K"], Float[Tensor, "N K"], Float[Tensor, N]]:
    """(dx, dweight, dbias) of `linear_sigmoid_grad`, the last two summed over the ranks of `group`.

    x and dy are this rank's rows; weight and bias are the same on all ranks. float32, float16 or bfloat16, any strides;
    sums over ranks are rounded to that type. Precision: see `with_precision`.
    Raises ValueError for other shapes, dtypes and precisions, NotImplementedError for "tf32" on a CPU.
    """
    check_linear("data_parallel_grad", x, weight, bias, dy, precision=precision)
    dx, *sums = with_precision(precision, gradients, x, weight, bias, dy)
    dweight, dbias = (each.contiguous() for each in sums)
    for each in (dweight, dbias):
        if each.numel():
            dist.all_reduce(each, group=group)
    return dx, dweight, dbias
