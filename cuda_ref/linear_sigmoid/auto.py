"""A linear layer with a sigmoid in CUDA: skinny.py or wgmma.py, whichever has the least predicted time."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref._runtime.contract import check_linear
from cuda_ref._runtime.kept import kept
from cuda_ref.linear_sigmoid import skinny, wgmma
from cuda_ref.matmul._tiles import Plan, described

REQUIRES = "sm_90"


@kept
def linear_sigmoid(
    x: Float[Tensor, "M K"], weight: Float[Tensor, "N K"], bias: Float[Tensor, "N"], *, precision: str = "ieee"
) -> Float[Tensor, "M N"]:
    """out[m, n] = sigma(sum over k of x[m, k] * weight[n, k] + bias[n]), in one pass.

    Shapes, strides, dtypes, precisions, devices and errors: those of wgmma.py. `config` names the kernels that run.
    """
    M, N, K = check_linear("linear_sigmoid", x, weight, bias, precision=precision)
    wgmma.check_products("linear_sigmoid", x, precision, (M, N, K))
    if M == 0 or N == 0:
        return x.new_empty(M, N)
    plan = choose(x, weight)
    (x, x_stride), (weight, weight_stride) = wgmma.rows_for_tma(x, weight)
    if plan.kernel == "skinny":
        return skinny.run(plan, x, weight, bias.contiguous())
    return wgmma.run(plan, x, x_stride, weight, weight_stride, bias.contiguous())


def config(x: Tensor, weight: Tensor, bias: Tensor, *, precision: str = "ieee") -> str:
    """The kernel, its tile and parts that `linear_sigmoid` runs, and the operands that it copies for TMA."""
    return described(choose(x, weight), **wgmma.copies(x, weight)) if x.numel() * weight.numel() > 0 else ""


def choose(x: Tensor, weight: Tensor) -> Plan:
    """The plan with the least predicted time. In tf32 only wgmma.py has plans."""
    return wgmma.choose(x, weight, ("wgmma", "skinny"))
