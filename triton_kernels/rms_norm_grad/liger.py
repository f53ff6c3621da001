"""The gradients of root mean square normalization by liger-kernel: its forward pass and its backward pass."""

import torch
from liger_kernel.ops import LigerRMSNormFunction
from torch import Tensor

from triton_kernels._runtime.contract import check_norm_pair
from triton_kernels.rms_norm_grad import Matrix, Vector

PEER = "liger-kernel"
REQUIRES = "cuda"  # Triton's interpreter has no libdevice
LONGEST = 65536


def rms_norm_grad(x: Matrix, weight: Vector, dy: Matrix, *, eps: float) -> tuple[Matrix, Vector]:
    """(dx, dweight): gradients of the sum of dy * y, where y is the `rms_norm` of x, in float32, rounded once.

    The backward pass takes the scales of the forward pass, so both run. Raises ValueError for other shapes and dtypes,
    NotImplementedError for rows that the library refuses.
    """
    check_norm_pair("rms_norm_grad", x, weight, dy=dy)
    if x.shape[1] > LONGEST:
        raise NotImplementedError(f"rms_norm_grad: liger-kernel takes rows of at most {LONGEST}; got {x.shape[1]}")
    if x.numel() == 0:
        return x.new_empty(x.shape), weight.new_zeros(weight.shape)
    with torch.enable_grad():
        x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
        y = LigerRMSNormFunction.apply(x, weight, eps, 0.0, "gemma", False)
        both: tuple[Tensor, Tensor] = torch.autograd.grad(y, (x, weight), dy)
    return both
