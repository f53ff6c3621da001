"""Softmax by quack-kernels: CuTe kernels, in which a cluster shares a long row."""

from __future__ import annotations

from jaxtyping import Float
from quack.softmax import softmax_fwd
from torch import Tensor

from torch_impls._runtime.contract import check_rows

PEER = "quack-kernels"
REQUIRES = "sm_90"


def softmax(x: Float[Tensor, "M N"]) -> Float[Tensor, "M N"]:
    """y[i] = exp(x[i] - max(x[i])) / sum(exp(x[i] - max(x[i]))), in float32, rounded once.

    Raises ValueError for other shapes and dtypes.
    """
    check_rows("softmax", x)
    if x.numel() == 0:
        return x.new_empty(x.shape)
    result: Tensor = softmax_fwd(x.contiguous())
    return result
