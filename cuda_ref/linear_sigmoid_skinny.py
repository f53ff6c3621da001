"""A linear layer with a sigmoid in CUDA for few rows, as in decoding: limited by the reading of the weights."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._arguments import check_linear, tma_layout
from cuda_ref._kept import kept

REQUIRES = "sm_90"
MAX_M = 64


@kept
def linear_sigmoid(
    x: Float[Tensor, "M K"], weight: Float[Tensor, "N K"], bias: Float[Tensor, "N"], *, precision: str = "ieee"
) -> Float[Tensor, "M N"]:
    """out[m, n] = sigma(sum over k of x[m, k] * weight[n, k] + bias[n]), in one pass.

    Shapes: x (M, K), weight (N, K), bias (N,), M at most 64; the output is contiguous.
    Strides: TMA copies the tiles. x and weight must be contiguous along K; the other stride must be a multiple of 8
    elements, and the first element at a multiple of 16 bytes. A strided bias is copied first.
    Dtypes: float16, bfloat16, the same for all; everything in float32, rounded once at the end.
    Precision: "ieee".
    Tail: TMA pads tiles that overhang the inputs with zeros; outputs beyond the edge are not stored.
    Devices: CUDA, compute capability 9.0.
    Raises: ValueError for other shapes, dtypes and precisions, and for two devices; NotImplementedError for more rows,
    for float32, for K = 0, for other strides, and on other devices; build.CudaError if the launch fails.
    Source: see linear_sigmoid_skinny.cu.
    """
    M, N, K = check_linear("linear_sigmoid", x, weight, bias, precision=precision)
    if x.element_size() != 2:
        raise NotImplementedError(f"linear_sigmoid: written for float16 and bfloat16; got {x.dtype}")
    if not (M <= MAX_M and 0 < K <= 2**30 and N <= 2**30):
        raise NotImplementedError(
            f"linear_sigmoid: M must be at most {MAX_M}, K at least 1, N and K at most 2^30; got {(M, N, K)}"
        )
    out = x.new_empty(M, N)
    if M == 0 or N == 0:
        return out
    (_, x_stride), (_, weight_stride) = (
        tma_layout(name, each, 1, k_major_only=True) for name, each in (("x", x), ("weight", weight))
    )
    build.launch(
        "linear_sigmoid_skinny", "linear_sigmoid_skinny", x.device,
        x, weight, bias.contiguous(), out, M, N, K, x_stride, weight_stride, build.DTYPES[x.dtype],
    )  # fmt: skip
    return out
