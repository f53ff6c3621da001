"""A gated linear unit's product, silu(a) b or gelu(a) b, by torch's elementwise kernels."""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.contract import check_gated

VENDOR = "PyTorch"


def activated(a: Tensor, activation: str) -> Tensor:
    """The activation in float32."""
    return F.silu(a.float()) if activation == "silu" else F.gelu(a.float(), approximate="tanh")


def plain(a: Tensor, b: Tensor, activation: str) -> Tensor:
    """The product in float32, rounded once."""
    return (activated(a, activation) * b.float()).to(a.dtype)


def silu_mul(a: Float[Tensor, "M N"], b: Float[Tensor, "M N"], *, activation: str = "silu") -> Float[Tensor, "M N"]:
    """y = silu(a) b, or gelu(a) b by the approximation with tanh.

    a and b (M, N), any strides; the result is row-major.
    float32, float16 or bfloat16; computed in float32 and rounded once. Raises ValueError for other arguments.
    """
    check_gated("silu_mul", a, b, activation=activation)
    return plain(a, b, activation).contiguous()
