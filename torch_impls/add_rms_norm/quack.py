"""A residual connection and root mean square normalization by quack-kernels: CuTe kernels, clusters for long rows."""

from __future__ import annotations

from jaxtyping import Float
from quack.rmsnorm import rmsnorm_fwd
from torch import Tensor

from torch_impls._runtime.contract import check_norm_pair
from torch_impls.add_rms_norm import Matrix

PEER = "quack-kernels"
REQUIRES = "sm_90"


def add_rms_norm(x: Matrix, residual: Matrix, weight: Float[Tensor, N], *, eps: float) -> tuple[Matrix, Matrix]:
    """(y, r): r = x + residual, and y is the `rms_norm` of r in float32, rounded once.

    Raises ValueError for other shapes and dtypes.
    """
    check_norm_pair("add_rms_norm", x, weight, residual=residual)
    if x.numel() == 0:
        return x.new_empty(x.shape), x.new_empty(x.shape)
    y, r, _ = rmsnorm_fwd(x.contiguous(), weight.contiguous(), residual=residual.contiguous(), eps=eps)
    both: tuple[Tensor, Tensor] = (y, r)
    return both
