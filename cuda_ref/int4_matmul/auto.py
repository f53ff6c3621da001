"""Product with weights of 4 bits in CUDA by `few` for at most 32 rows, by `wgmma` for more."""

from jaxtyping import Float, UInt8
from torch import Tensor

from cuda_ref._runtime.kept import kept
from cuda_ref.int4_matmul import few, wgmma

REQUIRES = "sm_90"
DETERMINISTIC = True


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
    kernel = few if choose(x) == "few" else wgmma
    return kernel.int4_matmul(x, weight, scale, zero)


def config(x: Tensor, weight: Tensor, scale: Tensor, zero: Tensor | None = None) -> str:
    """The kernel, its tile or parts, and the operands that it copies."""
    kernel = few if choose(x) == "few" else wgmma
    return kernel.config(x, weight, scale, zero)


def choose(x: Tensor) -> str:
    """`few` for at most 32 rows of x, where reading the weights takes most of the time, else `wgmma`."""
    return "few" if x.ndim == 2 and len(x) <= few.MOST_ROWS else "wgmma"
