"""A residual connection, and root mean square normalization of its rows, compiled by torch.compile."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.compiled import compiled
from torch_impls._runtime.contract import check_norm_pair
from torch_impls.add_rms_norm import Matrix, plain

VENDOR = "PyTorch (Inductor)"
REQUIRES = "cuda"

_add_rms_norm = compiled("add_rms_norm", plain)


def add_rms_norm(x: Matrix, residual: Matrix, weight: Float[Tensor, N], *, eps: float) -> tuple[Matrix, Matrix]:
    """(y, r): r = x + residual, and y is the `rms_norm` of r; float32 inside, rounded once.

    Row-major operands. Raises ValueError for other shapes and dtypes; NotImplementedError for strides and for few
    elements.
    """
    check_norm_pair("add_rms_norm", x, weight, residual=residual)
    return _add_rms_norm(x, residual, weight, eps=eps)
