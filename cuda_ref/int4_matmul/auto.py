"""Product with weights of 4 bits in CUDA by `few` for at most 16 rows, `few_wgmma` up to 64, and `wgmma` for more."""

from jaxtyping import Float, UInt8
from torch import Tensor

from cuda_ref._runtime.kept import kept
from cuda_ref.int4_matmul import few, few_wgmma, wgmma

REQUIRES = "sm_90"
DETERMINISTIC = True
KERNELS = {"few": few, "few_wgmma": few_wgmma, "wgmma": wgmma}


@kept
def int4_matmul(
    x: Float[Tensor, "M K"],
    weight: UInt8[Tensor, "N K_2"],
    scale: Float[Tensor, "N G_K"],
    zero: UInt8[Tensor, "N G_K"] | None = None,
) -> Float[Tensor, "M N"]:
    """out[m, n] = sum over groups g of scale[n, g] * (sum over k in g of x[m, k] * (code[n, k] - zero[n, g])).

    Shapes, strides, dtypes, devices and errors: those of wgmma.py. `config` names the kernel that runs.
    """
    return KERNELS[choose(x)].int4_matmul(x, weight, scale, zero)


def config(x: Tensor, weight: Tensor, scale: Tensor, zero: Tensor | None = None) -> str:
    """The kernel, its tile or parts, and the operands that it copies."""
    return KERNELS[choose(x)].config(x, weight, scale, zero)


def choose(x: Tensor) -> str:
    """The kernel for the number of rows of x: with few rows, reading the weights takes most of the time."""
    if x.ndim != 2 or len(x) > few_wgmma.MOST_ROWS:
        return "wgmma"
    return "few" if len(x) <= few.MOST_ROWS else "few_wgmma"
