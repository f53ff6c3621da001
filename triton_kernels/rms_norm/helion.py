"""Root mean square normalization in Helion, which compiles tiles of PyTorch operators to Triton: a program per row."""

import helion
import helion.language as hl
import torch
from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.contract import check_norm

PEER = "helion"
REQUIRES = "cuda"


@helion.kernel(static_shapes=True, config=helion.Config(block_sizes=[1], num_warps=8))
def rows(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """A program holds a whole row in registers. There is one configuration: a search takes minutes for each shape."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        wide = x[tile, :].to(torch.float32)
        scale = torch.rsqrt(torch.mean(wide * wide, dim=-1) + eps)
        out[tile, :] = (wide * scale[:, None] * weight[:].to(torch.float32)).to(x.dtype)
    return out


def rms_norm(x: Float[Tensor, "M N"], weight: Float[Tensor, "N"], *, eps: float) -> Float[Tensor, "M N"]:
    """y[i, j] = x[i, j] * weight[j] / sqrt(mean over k of x[i, k]^2 + eps), in float32, rounded once.

    Raises ValueError for other shapes and dtypes.
    """
    check_norm("rms_norm", x, weight=weight)
    if x.numel() == 0:
        return x.new_empty(x.shape)
    result: Tensor = rows(x.contiguous(), weight.contiguous(), eps)
    return result
