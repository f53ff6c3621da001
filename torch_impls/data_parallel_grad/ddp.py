"""The gradients of a layer with the batch split over the ranks, by torch's DistributedDataParallel and its buckets."""

from functools import cache

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from torch_impls._runtime.contract import check_linear
from torch_impls._runtime.precision import with_precision

VENDOR = "PyTorch DDP"


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

    Weight and bias fill one or two buckets, since DDP splits no parameter. Autograd computes dx and dweight together.
    The module is kept between calls. Its communication hook sums gradients; that of DDP averages them. Arguments and
    errors: those of the plain implementation; NotImplementedError also for an empty x or weight.
    """
    check_linear("data_parallel_grad", x, weight, bias, dy, precision=precision)
    if x.numel() == 0 or weight.numel() == 0:
        raise NotImplementedError("data_parallel_grad: DDP takes no empty x or weight")
    module = _module(group, (weight.shape[0], weight.shape[1]), x.dtype, x.device)
    layer = module.module
    layer.weight.data, layer.bias.data = weight.contiguous(), bias.contiguous()

    def gradients(x: Tensor, dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            torch.sigmoid(module(x)).backward(dy)
        return x.grad, layer.weight.grad, layer.bias.grad

    try:
        return with_precision(precision, gradients, x, dy)
    finally:
        layer.weight.grad = layer.bias.grad = None


@cache
def _module(
    group: dist.ProcessGroup, shape: tuple[int, int], dtype: torch.dtype, device: torch.device
) -> DistributedDataParallel:
    """A linear layer whose gradients are summed over the ranks. All ranks create it in the same call."""
    layer = torch.nn.Linear(shape[1], shape[0], dtype=dtype, device=device)
    module = DistributedDataParallel(layer, process_group=group)
    module.register_comm_hook(group, _sum)
    return module


def _sum(group: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])
