"""The gradients of root mean square normalization, by torch's autograd: the forward pass and the backward pass."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.contract import check_norm_pair

VENDOR = "PyTorch"

Matrix = Float[Tensor, "M N"]
Vector = Float[Tensor, "N"]


def rms_norm_grad(x: Matrix, weight: Vector, dy: Matrix, *, eps: float) -> tuple[Matrix, Vector]:
    """(dx, dweight): gradients of the sum of dy * y, where y is the `rms_norm` of x.

    x and dy (M, N), weight (N,), any strides; the results are row-major. The backward pass needs what the forward pass
    computes of each row, so both run.
    float32, float16 or bfloat16; computed in float32 and rounded once. Raises ValueError for other shapes and dtypes.
    """
    check_norm_pair("rms_norm_grad", x, weight, dy=dy)
    with torch.enable_grad():
        x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
        if x.is_cuda:
            y = torch.nn.functional.rms_norm(x, x.shape[1:], weight, eps)
        else:  # on a CPU torch sums dweight in 16 bits
            y = torch.nn.functional.rms_norm(x.float(), x.shape[1:], weight.float(), eps).to(x.dtype)
        dx, dweight = torch.autograd.grad(y, (x, weight), dy)
    return dx.contiguous(), dweight.contiguous()
