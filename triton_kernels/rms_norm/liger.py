"""Root mean square normalization by liger-kernel: one Triton program holds a row in registers."""

from jaxtyping import Float
from liger_kernel.ops import LigerRMSNormFunction
from torch import Tensor

from triton_kernels._runtime.contract import check_norm

PEER = "liger-kernel"
REQUIRES = "cuda"  # Triton's interpreter has no libdevice
LONGEST = 65536


def rms_norm(x: Float[Tensor, "M N"], weight: Float[Tensor, "N"], *, eps: float) -> Float[Tensor, "M N"]:
    """y[i, j] = x[i, j] * weight[j] / sqrt(mean over k of x[i, k]^2 + eps).

    Computed in float32, and rounded once. Raises ValueError for other shapes and dtypes, NotImplementedError for rows
    that the library refuses.
    """
    check_norm("rms_norm", x, weight=weight)
    if x.shape[1] > LONGEST:
        raise NotImplementedError(f"rms_norm: liger-kernel takes rows of at most {LONGEST}; got {x.shape[1]}")
    if x.numel() == 0:
        return x.new_empty(x.shape)
    result: Tensor = LigerRMSNormFunction.apply(x, weight, eps, 0.0, "gemma", False)
    return result
