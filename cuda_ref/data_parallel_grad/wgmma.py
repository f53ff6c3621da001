"""The gradients of a layer with the batch split over the ranks, by tensor cores: the product for dx hides the sums."""

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from cuda_ref._runtime.symmetric import all_reduce_during
from cuda_ref.all_reduce._add import add_parts
from cuda_ref.linear_sigmoid_grad.wgmma import derivative
from cuda_ref.matmul import wgmma

REQUIRES = "sm_90"


def data_parallel_grad(
    x: Float[Tensor, "M K"],
    weight: Float[Tensor, "N K"],
    bias: Float[Tensor, "N"],
    dy: Float[Tensor, "M N"],
    *,
    group: dist.ProcessGroup,
    precision: str = "ieee",
) -> tuple[Float[Tensor, "M K"], Float[Tensor, "N K"], Float[Tensor, "N"]]:
    """(dx, dweight, dbias) of `linear_sigmoid_grad`, the last two summed over the ranks of `group`.

    The plain implementation with the kernels of linear_sigmoid_grad/wgmma.py. Shapes, dtypes and errors: those of
    that file; NotImplementedError also for more than 16 ranks.
    """
    dz, dbias = derivative(x, weight, bias, dy, precision)
    dx = torch.empty_like(x, memory_format=torch.contiguous_format)

    def product(rows: slice) -> None:
        if dx.numel() > 0:
            wgmma.run(wgmma.choose(dz[rows], weight, precision), dz[rows], weight, precision, out=dx[rows])

    dweight, dbias = all_reduce_during((wgmma.matmul(dz.t(), x), dbias), add_parts, product, len(x), group)
    return dx, dweight, dbias
