"""A linear layer with a sigmoid in CUDA for few rows, as in decoding: adds bias and sigmoid to matmul/skinny.py."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_linear
from cuda_ref._runtime.kept import kept
from cuda_ref.hopper.layouts import tma_layout
from cuda_ref.matmul._plan import best_plan
from cuda_ref.matmul._tiles import SKINNY_COLUMNS, SKINNY_M, Plan, described

REQUIRES = "sm_90"


@kept
def linear_sigmoid(
    x: Float[Tensor, "M K"], weight: Float[Tensor, "N K"], bias: Float[Tensor, "N"], *, precision: str = "ieee"
) -> Float[Tensor, "M N"]:
    """out[m, n] = sigma(sum over k of x[m, k] * weight[n, k] + bias[n]), in one pass.

    Shapes: x (M, K), weight (N, K), bias (N,), M at most 32; the output is contiguous.
    Strides: TMA copies the tiles. x and weight must be contiguous along K; the other stride must be a multiple of 8
    elements, and the first element at a multiple of 16 bytes. A strided bias is copied first.
    Dtypes: float16, bfloat16, the same for all; everything in float32, rounded once at the end.
    Precision: "ieee".
    Plan: a model of the time chooses the tile, and the number of parts in which a cluster divides k; see `config`.
    Tail: TMA pads tiles that overhang the inputs with zeros; outputs beyond the edge are not stored.
    Devices: CUDA, compute capability 9.0.
    Raises: ValueError for other shapes, dtypes and precisions, and for tensors on different devices;
    NotImplementedError for more rows, for float32, for K = 0, for other strides, and on other devices; build.CudaError
    if the launch fails.
    Source: see skinny.cu.
    """
    M, N, K = check_linear("linear_sigmoid", x, weight, bias, precision=precision)
    if x.element_size() != 2:
        raise NotImplementedError(f"linear_sigmoid: written for float16 and bfloat16; got {x.dtype}")
    if not (M <= SKINNY_M and 0 < K <= 2**30 and N <= 2**30):
        raise NotImplementedError(
            f"linear_sigmoid: M must be at most {SKINNY_M}, K at least 1, N and K at most 2^30; got {(M, N, K)}"
        )
    if M == 0 or N == 0:
        return x.new_empty(M, N)
    for name, each in (("x", x), ("weight", weight)):
        tma_layout(name, each, 1, k_major_only=True)
    return run(best_plan(x, weight.t(), ("skinny",)), x, weight, bias.contiguous())


def config(x: Tensor, weight: Tensor, bias: Tensor, *, precision: str = "ieee") -> str:
    """The tile and parts that `linear_sigmoid` runs."""
    return described(best_plan(x, weight.t(), ("skinny",))) if x.shape[0] * weight.shape[0] > 0 else ""


def run(plan: Plan, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The result for arguments that are not empty and that TMA can read, by a plan. bias is contiguous."""
    (M, K), N = x.shape, weight.shape[0]
    _, x_stride = tma_layout("x", x, 1, k_major_only=True)
    _, weight_stride = tma_layout("weight", weight, 1, k_major_only=True)
    out = x.new_empty(M, N)
    build.launch(
        "linear_sigmoid/skinny", "linear_sigmoid_skinny", x.device,
        x, weight, bias, out, M, N, K, x_stride, weight_stride, SKINNY_COLUMNS[plan.tile], plan.parts,
        build.DTYPES[x.dtype],
    )  # fmt: skip
    return out
