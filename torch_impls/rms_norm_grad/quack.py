"""The gradients of root mean square normalization by quack-kernels: its forward pass and its backward pass."""

from __future__ import annotations

from quack.rmsnorm import rmsnorm_bwd, rmsnorm_fwd
from torch import Tensor

from torch_impls._runtime.contract import check_norm_pair
from torch_impls.rms_norm_grad import Matrix, Vector

PEER = "quack-kernels"
REQUIRES = "sm_90"


def rms_norm_grad(x: Matrix, weight: Vector, dy: Matrix, *, eps: float) -> tuple[Matrix, Vector]:
    """(dx, dweight): gradients of the sum of dy * y, where y is the `rms_norm` of x, in float32, rounded once.

    The backward pass takes the scales of the forward pass, so both run. Raises ValueError for other shapes and dtypes.
    """
    check_norm_pair("rms_norm_grad", x, weight, dy=dy)
    if x.numel() == 0:
        return x.new_empty(x.shape), weight.new_zeros(weight.shape)
    x, weight = x.contiguous(), weight.contiguous()
    scales = rmsnorm_fwd(x, weight, eps=eps, store_rstd=True)[2]
    dx, dweight = rmsnorm_bwd(x, weight, dy.contiguous(), scales)[:2]
    both: tuple[Tensor, Tensor] = (dx, dweight.to(x.dtype))
    return both
