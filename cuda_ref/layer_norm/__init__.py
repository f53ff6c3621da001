"""Layer normalization of each row of a matrix in CUDA, the plain kernel: a warp reads its row three times."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_norm
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True
DTYPES_BEYOND = ("float64",)


@kept
def layer_norm(
    x: Float[Tensor, "M N"], weight: Float[Tensor, "N"], bias: Float[Tensor, "N"], *, eps: float
) -> Float[Tensor, "M N"]:
    """out[i, j] = (x[i, j] - mean_i) / sqrt(variance_i + eps) * weight[j] + bias[j].
    The variance is the biased one.

    Shapes: x (M, N), weight and bias (N,), any strides; the output is contiguous. Strided vectors are copied.
    Dtypes: float32, float16, bfloat16; float32 inside, rounded once.
    Tail: the lanes of a warp take every 32nd column up to N. Indices are int64.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes and dtypes; build.CudaError if the launch fails.
    """
    check_norm("layer_norm", x, weight=weight, bias=bias, float64=True)
    M, N = x.shape
    out = x.new_empty(M, N)
    if out.numel() > 0:
        weight, bias = weight.contiguous(), bias.contiguous()
        build.launch(
            "layer_norm/layer_norm", "layer_norm", x.device,
            x, weight, bias, out, M, N, *x.stride(), eps, build.DTYPES[x.dtype],
        )  # fmt: skip
    return out
