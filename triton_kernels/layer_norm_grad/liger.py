"""The gradients of layer normalization by liger-kernel: its forward pass and its backward pass."""

import torch
from liger_kernel.ops import LigerLayerNormFunction
from torch import Tensor

from triton_kernels._runtime.contract import check_norm_pair
from triton_kernels.layer_norm_grad import Matrix, Vector

PEER = "liger-kernel"
REQUIRES = "cuda"  # Triton's interpreter has no libdevice
LONGEST = 65536


def layer_norm_grad(x: Matrix, weight: Vector, dy: Matrix, *, eps: float) -> tuple[Matrix, Vector, Vector]:
    """(dx, dweight, dbias): gradients of the sum of dy * y, where y is the `layer_norm` of x, in float32.

    The backward pass takes the means and scales of the forward pass, so both run. Raises ValueError for other shapes
    and dtypes, NotImplementedError for rows that the library refuses.
    """
    check_norm_pair("layer_norm_grad", x, weight, dy=dy)
    if x.shape[1] > LONGEST:
        raise NotImplementedError(f"layer_norm_grad: liger-kernel takes rows of at most {LONGEST}; got {x.shape[1]}")
    if x.numel() == 0:
        return x.new_empty(x.shape), weight.new_zeros(weight.shape), weight.new_zeros(weight.shape)
    with torch.enable_grad():
        x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
        bias = torch.zeros_like(weight).requires_grad_()
        y = LigerLayerNormFunction.apply(x, weight, bias, eps)
        all_three: tuple[Tensor, Tensor, Tensor] = torch.autograd.grad(y, (x, weight, bias), dy)
    return all_three
