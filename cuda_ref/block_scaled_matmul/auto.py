"""Product of float8 codes in CUDA: `few` for at most 32 rows, otherwise `wgmma`."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref._runtime.kept import kept
from cuda_ref.block_scaled_matmul import few, wgmma

REQUIRES = "sm_90"
DETERMINISTIC = True
DTYPES_BEYOND = ("float8_e4m3fn",)
ROWS = 32
"""Most rows for `few`: at 64 rows `wgmma` is faster."""


@kept
def block_scaled_matmul(
    a: Float[Tensor, "M K"],
    scale_a: Float[Tensor, "M G_K"],
    b: Float[Tensor, "N K"],
    scale_b: Float[Tensor, "G_N G_K"],
) -> Float[Tensor, "M N"]:
    """out[m, n] = sum over groups g of scale_a[m, g] * scale_b[n / 128, g] * (sum over k in g of a[m, k] * b[n, k]).

    Shapes, strides, dtypes, devices and errors: those of wgmma.py. `config` names the kernel that runs.
    """
    kernel = few if choose(a, b) == "few" else wgmma
    return kernel.block_scaled_matmul(a, scale_a, b, scale_b)


def config(a: Tensor, scale_a: Tensor, b: Tensor, scale_b: Tensor) -> str:
    """The kernel, its tile or parts, and the operands that it copies."""
    kernel = few if choose(a, b) == "few" else wgmma
    return kernel.config(a, scale_a, b, scale_b)


def choose(a: Tensor, b: Tensor) -> str:
    """`few` for at most ROWS rows if all its blocks are resident at once, else `wgmma`."""
    return "few" if a.ndim == b.ndim == 2 and len(a) <= ROWS and few.fits(b) else "wgmma"
