"""Layer normalization by liger-kernel: one Triton program holds a row in registers."""

from jaxtyping import Float
from liger_kernel.ops import LigerLayerNormFunction
from torch import Tensor

from triton_kernels._runtime.contract import check_norm

PEER = "liger-kernel"
REQUIRES = "cuda"  # Triton's interpreter has no libdevice
LONGEST = 65536


def layer_norm(
    x: Float[Tensor, "M N"], weight: Float[Tensor, "N"], bias: Float[Tensor, "N"], *, eps: float
) -> Float[Tensor, "M N"]:
    """y[i, j] = (x[i, j] - mean of x[i]) / sqrt(variance of x[i] + eps) * weight[j] + bias[j].

    Computed in float32, and rounded once. Raises ValueError for other shapes and dtypes, NotImplementedError for rows
    that the library refuses.
    """
    check_norm("layer_norm", x, weight=weight, bias=bias)
    if x.shape[1] > LONGEST:
        raise NotImplementedError(f"layer_norm: liger-kernel takes rows of at most {LONGEST}; got {x.shape[1]}")
    if x.numel() == 0:
        return x.new_empty(x.shape)
    result: Tensor = LigerLayerNormFunction.apply(x, weight, bias, eps)
    return result
