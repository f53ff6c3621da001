"""A linear layer with a sigmoid in CUDA in two passes: the product of matmul/wgmma.cu, then bias and sigmoid."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_linear
from cuda_ref._runtime.kept import kept
from cuda_ref.linear_sigmoid.wgmma import check_products
from cuda_ref.matmul import wgmma as matmul_wgmma

REQUIRES = "sm_90"


@kept
def linear_sigmoid(
    x: Float[Tensor, "M K"], weight: Float[Tensor, "N K"], bias: Float[Tensor, "N"], *, precision: str = "ieee"
) -> Float[Tensor, "M N"]:
    """out[m, n] = sigma(sum over k of x[m, k] * weight[n, k] + bias[n]), which wgmma.py computes in one pass.

    Shapes, strides, dtypes, precision, devices and errors: those of wgmma.py. The product is rounded to the dtype of
    the inputs between the passes, as it is between two calls of a library.
    """
    M, N, K = check_linear("linear_sigmoid", x, weight, bias, precision=precision)
    check_products("linear_sigmoid", x, precision, (M, N, K))
    if M == 0 or N == 0:
        return x.new_empty(M, N)
    product = matmul_wgmma.matmul(x, weight.t(), precision=precision)
    out = x.new_empty(M, N)
    build.launch(
        "linear_sigmoid/two_passes", "bias_sigmoid", x.device,
        product, bias.contiguous(), out, M, N, build.DTYPES[x.dtype],
    )  # fmt: skip
    return out


def config(x: Tensor, weight: Tensor, bias: Tensor, *, precision: str = "ieee") -> str:
    """The kernels that `linear_sigmoid` runs: those of the product, and `bias_sigmoid`."""
    return "; ".join(filter(None, (matmul_wgmma.config(x, weight.t(), precision=precision), "bias_sigmoid")))
