"""A linear layer with a sigmoid in CUDA: tiles in shared memory; bias and sigmoid are applied before the store."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_linear
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True


@kept
def linear_sigmoid(
    x: Float[Tensor, "M K"], weight: Float[Tensor, "N K"], bias: Float[Tensor, "N"], *, precision: str = "ieee"
) -> Float[Tensor, "M N"]:
    """out[m, n] = sigma(sum over k of x[m, k] * weight[n, k] + bias[n]).

    Shapes: x (M, K), weight (N, K), bias (N,), any strides, any sizes, K = 0 included; the output is contiguous.
    Dtypes: float32, float16, bfloat16, the same for all; everything in float32, rounded once at the end.
    Precision: "ieee" multiplies the inputs as they are; "tf32", for float32 only, first rounds them to tf32 (11
    significant bits, to nearest, ties away from zero). Sums are in order of k, without tensor cores.
    Tail: tiles of 32 x 32 that overhang are padded with zeros; outputs beyond the edge are not stored.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes, dtypes and precisions, and for tensors on different devices; build.CudaError if
    the launch fails.
    Source: see linear_sigmoid.cu.
    """
    M, N, K = check_linear("linear_sigmoid", x, weight, bias, precision=precision)
    out = x.new_empty(M, N)
    if M > 0 and N > 0:
        build.launch(
            "linear_sigmoid/linear_sigmoid", "linear_sigmoid", x.device,
            x, weight, bias, out, M, N, K, *x.stride(), *weight.stride(), *bias.stride(), precision == "tf32",
            build.DTYPES[x.dtype],
        )  # fmt: skip
    return out
