"""Root mean square normalization by quack-kernels: CuTe kernels, in which a cluster shares a long row."""

from __future__ import annotations

from jaxtyping import Float
from quack.rmsnorm import rmsnorm_fwd
from torch import Tensor

from torch_impls._runtime.contract import check_norm

PEER = "quack-kernels"
REQUIRES = "sm_90"


def rms_norm(x: Float[Tensor, "M N"], weight: Float[Tensor, N], *, eps: float) -> Float[Tensor, "M N"]:
    """y[i, j] = x[i, j] * weight[j] / sqrt(mean over k of x[i, k]^2 + eps), in float32, rounded once.

    Raises ValueError for other shapes and dtypes.
    """
    check_norm("rms_norm", x, weight=weight)
    if x.numel() == 0:
        return x.new_empty(x.shape)
    result: Tensor = rmsnorm_fwd(x.contiguous(), weight.contiguous(), eps=eps)[0]
    return result
