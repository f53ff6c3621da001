"""The cross entropy of a linear layer's logits with targets, by torch: blocks of columns, each multiplied twice."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from torch_impls._runtime.losses import check_linear_cross_entropy
from torch_impls._runtime.precision import with_precision

VENDOR = "PyTorch (cuBLAS on a GPU)"
LOGITS = 2**23
"""Logits of a block. All arrays of a block are small beside the weight of a large vocabulary."""
Results = tuple[Tensor, Tensor, Tensor]


def product(a: Tensor, b: Tensor) -> Tensor:
    """a b in float32, also of 16-bit matrices."""
    if a.is_cuda and a.element_size() == 2:
        found: Tensor = torch.mm(a, b, out_dtype=torch.float32)
        return found
    return a.float() @ b.float()


def by_blocks(x: Tensor, weight: Tensor, target: Tensor, ignored: Tensor) -> Results:
    """Losses and gradients. The first pass finds the sum of a row's exponentials, the second the gradients."""
    T, H = x.shape
    columns = max(256, LOGITS // max(T, 1))
    counted = target != ignored
    share = torch.where(counted, counted.sum().clamp(min=1).reciprocal(), 0.0)
    log_sum, wanted = (
        x.new_full((T,), -torch.inf, dtype=torch.float32),
        x.new_full((T,), torch.nan, dtype=torch.float32),
    )
    for first in range(0, len(weight), columns):
        z = product(x, weight[first : first + columns].t())
        log_sum = torch.logaddexp(log_sum, torch.logsumexp(z, dim=1))
        inside = (target >= first) & (target < first + z.shape[1])
        wanted = torch.where(inside, z.gather(1, torch.where(inside, target - first, 0)[:, None])[:, 0], wanted)
    loss = torch.where(counted, log_sum - wanted, 0.0)
    share = torch.where(wanted.isnan() & counted, torch.nan, share)[:, None]
    dx, dweight = x.new_zeros((T, H), dtype=torch.float32), weight.new_empty(weight.shape)
    for first in range(0, len(weight), columns):
        block = weight[first : first + columns]
        dz = product(x, block.t()).sub_(log_sum[:, None]).exp_()
        dz -= (torch.arange(first, first + len(block), device=x.device) == target[:, None]).float()
        dz = torch.where(counted[:, None], dz.mul_(share), 0.0).to(x.dtype)
        dx += product(dz, block)
        dweight[first : first + columns] = product(dz.t(), x).to(x.dtype)
    return loss, dx.to(x.dtype), dweight


def linear_cross_entropy(
    x: Float[Tensor, "T H"], weight: Float[Tensor, "V H"], target: Int64[Tensor, T], *, ignore_index: int = -100
) -> tuple[Float[Tensor, T], Float[Tensor, "T H"], Float[Tensor, "V H"]]:
    """(loss, dx, dweight): the `cross_entropy` of x weight^T with target, and the gradients of the mean loss.

    float32, float16 or bfloat16, any strides. Logits and sums are float32, the gradients of logits are rounded as
    factors of products. Raises ValueError for other shapes and dtypes. A target outside [0, V) gives NaN.
    """
    T, V, _ = check_linear_cross_entropy(x, weight, target)
    if T == 0 or V == 0:
        return x.new_zeros(T, dtype=torch.float32), torch.zeros_like(x), torch.zeros_like(weight)
    return with_precision("ieee", by_blocks, x, weight, target, target.new_tensor(ignore_index))
