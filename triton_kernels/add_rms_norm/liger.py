"""A residual connection and root mean square normalization by liger-kernel: one Triton program holds a row."""

from jaxtyping import Float
from liger_kernel.ops import LigerFusedAddRMSNormFunction
from torch import Tensor

from triton_kernels._runtime.contract import check_norm_pair
from triton_kernels.add_rms_norm import Matrix

PEER = "liger-kernel"
REQUIRES = "cuda"  # Triton's interpreter has no libdevice
LONGEST = 65536


def add_rms_norm(x: Matrix, residual: Matrix, weight: Float[Tensor, "N"], *, eps: float) -> tuple[Matrix, Matrix]:
    """(y, r): r = x + residual, and y is the `rms_norm` of the rounded r in float32, rounded once.

    Raises ValueError for other shapes and dtypes, NotImplementedError for rows that the library refuses.
    """
    check_norm_pair("add_rms_norm", x, weight, residual=residual)
    if x.shape[1] > LONGEST:
        raise NotImplementedError(f"add_rms_norm: liger-kernel takes rows of at most {LONGEST}; got {x.shape[1]}")
    if x.numel() == 0:
        return x.new_empty(x.shape), x.new_empty(x.shape)
    both: tuple[Tensor, Tensor] = LigerFusedAddRMSNormFunction.apply(x, residual, weight, eps, 0.0, "gemma", False)
    return both
