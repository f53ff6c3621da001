"""Product with weights of 4 bits in CUDA for up to 64 rows: the weights in registers are an operand of wgmma.

Replaces in few.py mma.sync by the products of wgmma.py: x is read from shared memory by the tensor cores alone.
"""

from jaxtyping import Float, UInt8
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.kept import kept
from cuda_ref.int4_matmul import few
from cuda_ref.int4_matmul._launch import arguments, checked, copies
from cuda_ref.matmul._tiles import Plan, described

REQUIRES = "sm_90"
DETERMINISTIC = True
MOST_ROWS = 64
OF_A_BOX = {
    32: {64: 474.0, 128: 947.0, 192: 1421.0, 224: 1658.0, 256: 1894.0},
    64: {64: 780.0, 128: 1126.0},
}
"""By most rows of x, then by rows of the weights in a tile, of the compiled kernels: ns that a box takes on an H100."""


@kept
def int4_matmul(
    x: Float[Tensor, "M K"],
    weight: UInt8[Tensor, "N K_2"],
    scale: Float[Tensor, "N G_K"],
    zero: UInt8[Tensor, "N G_K"] | None = None,
) -> Float[Tensor, "M N"]:
    """out[m, n] = sum over groups g of scale[n, g] * (sum over k in g of x[m, k] * (code[n, k] - zero[n, g])).

    M is at most 64. Other shapes, strides, dtypes, devices and errors: those of few.py. Source: see few_wgmma.cu.
    """
    M, N, K = checked(x, weight, scale, zero)
    if M > MOST_ROWS:
        raise NotImplementedError(f"int4_matmul: M must be at most {MOST_ROWS}; got M={M}")
    if M == 0 or N == 0 or K == 0:
        return x.new_zeros(M, N)
    return run(choose(x, weight), x, weight, scale, zero)


def config(x: Tensor, weight: Tensor, scale: Tensor, zero: Tensor | None = None) -> str:
    """The kernel, the rows of the weights in a tile, the blocks that divide k, and the operands that it copies."""
    if x.numel() * weight.numel() == 0:
        return ""
    plan = choose(x, weight)
    return described(plan._replace(kernel=f"int4_few_wgmma rows={plan.tile}"), **copies(x, weight))


def choose(x: Tensor, weight: Tensor) -> Plan:
    """The plan with the least time by few.py's model, with this kernel's times."""
    return few.fastest("int4_few_wgmma", OF_A_BOX[32 if len(x) <= 32 else 64], x, weight)


def run(plan: Plan, x: Tensor, weight: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """The product of operands that are not empty, by a plan."""
    out = x.new_empty(len(x), len(weight))
    given = arguments(x, weight, scale, zero, out)
    build.launch("int4_matmul/few_wgmma", "int4_few_wgmma", x.device, *given, plan.tile, plan.parts)
    return out
