"""A gated linear unit's product, compiled by torch.compile."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.compiled import compiled
from torch_impls._runtime.contract import check_gated
from torch_impls.silu_mul import plain

VENDOR = "PyTorch (Inductor)"
REQUIRES = "cuda"

_silu_mul = compiled("silu_mul", plain)


def silu_mul(a: Float[Tensor, "M N"], b: Float[Tensor, "M N"], *, activation: str = "silu") -> Float[Tensor, "M N"]:
    """y = silu(a) b, or gelu(a) b by the approximation with tanh; float32 inside, rounded once.

    Row-major a and b. Raises ValueError for other arguments; NotImplementedError for strides and for few elements.
    """
    check_gated("silu_mul", a, b, activation=activation)
    return _silu_mul(a, b, activation=activation)
