"""The gradients of a gated linear unit's product, compiled by torch.compile."""

from __future__ import annotations

from torch_impls._runtime.compiled import compiled
from torch_impls._runtime.contract import check_gated
from torch_impls.silu_mul_grad import Matrix, plain

VENDOR = "PyTorch (Inductor)"
REQUIRES = "cuda"

_gradients = compiled("silu_mul_grad", plain)


def silu_mul_grad(a: Matrix, b: Matrix, dy: Matrix, *, activation: str = "silu") -> tuple[Matrix, Matrix]:
    """(da, db): gradients of the sum of dy * y, where y is the `silu_mul` of a and b; float32 inside, rounded once.

    Row-major a, b and dy. Raises ValueError for other arguments; NotImplementedError for strides and for few elements.
    """
    check_gated("silu_mul_grad", a, b, dy, activation=activation)
    return _gradients(a, b, dy, activation=activation)
