"""The gradients of a layer with the batch split over the ranks, by torch: the product for dx hides NCCL's sums."""

from __future__ import annotations

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.contract import check_linear
from torch_impls._runtime.precision import with_precision
from torch_impls.linear_sigmoid import plain

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

    dweight and dbias come first; NCCL sums them on its own stream while dx is computed. Arguments and errors: those of
    the plain implementation.
    """
    check_linear("data_parallel_grad", x, weight, bias, dy, precision=precision)

    def gradients(x: Tensor, weight: Tensor, bias: Tensor, dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        dz = torch.ops.aten.sigmoid_backward(dy, plain(x, weight, bias))
        dweight, dbias = (dz.mT @ x).contiguous(), dz.sum(0)
        sums = [dist.all_reduce(each, group=group, async_op=True) for each in (dweight, dbias) if each.numel()]
        dx = dz @ weight
        for each in sums:
            each.wait()
        return dx, dweight, dbias

    return with_precision(precision, gradients, x, weight, bias, dy)
