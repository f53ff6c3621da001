"""The gradients of a gated linear unit's product, by torch's elementwise kernels."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.contract import check_gated
from torch_impls.silu_mul import activated

VENDOR = "PyTorch"

Matrix = Float[Tensor, "M N"]


def plain(a: Tensor, b: Tensor, dy: Tensor, activation: str) -> tuple[Tensor, Tensor]:
    """The gradients in float32, rounded once."""
    wide, factor = a.float(), dy.float() * b.float()
    if activation == "silu":
        da = torch.ops.aten.silu_backward(factor, wide)
    else:
        da = torch.ops.aten.gelu_backward(factor, wide, approximate="tanh")
    return da.to(a.dtype), (dy.float() * activated(a, activation)).to(a.dtype)


def silu_mul_grad(a: Matrix, b: Matrix, dy: Matrix, *, activation: str = "silu") -> tuple[Matrix, Matrix]:
    """(da, db): gradients of the sum of dy * y, where y is the `silu_mul` of a and b.

    a, b and dy (M, N), any strides; the results are row-major.
    float32, float16 or bfloat16; computed in float32 and rounded once. Raises ValueError for other arguments.
    """
    check_gated("silu_mul_grad", a, b, dy, activation=activation)
    da, db = plain(a, b, dy, activation)
    return da.contiguous(), db.contiguous()
