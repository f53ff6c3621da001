"""Layer normalization of long rows in CUDA: adds clusters of blocks that share each row to registers.py."""

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_norm
from cuda_ref._runtime.kept import kept
from cuda_ref.common.rows import are_packed, sharing

DETERMINISTIC = True
REQUIRES = "sm_90"


@kept
def layer_norm(
    x: Float[Tensor, "M N"], weight: Float[Tensor, "N"], bias: Float[Tensor, "N"], *, eps: float
) -> Float[Tensor, "M N"]:
    """out[i, j] = (x[i, j] - mean_i) / sqrt(variance_i + eps) * weight[j] + bias[j].
    The variance is the biased one.

    Shapes: x (M, N), weight and bias (N,), rows of more than 64 KiB and at most 512 KiB; the output is contiguous.
    Strides: each row must be contiguous and begin and end at multiples of 16 bytes. Strided vectors are copied.
    Dtypes: float32, float16, bfloat16; float32 inside, rounded once.
    Tail: columns beyond N are left out. Indices are int64.
    Devices: CUDA, compute capability 9.0.
    Raises: ValueError for other shapes and dtypes; NotImplementedError for other rows and on other devices;
    build.CudaError if the launch fails.
    """
    check_norm("layer_norm", x, weight=weight, bias=bias)
    M, N = x.shape
    out = x.new_empty(M, N)
    if out.numel() > 0:
        weight, bias = weight.contiguous(), bias.contiguous()
        shared = sharing("layer_norm", x, are_packed(x, weight, bias))
        build.launch(
            "layer_norm/cluster", "layer_norm_cluster", x.device,
            x, weight, bias, out, M, N, x.stride(0), eps, *shared, build.DTYPES[x.dtype],
        )  # fmt: skip
    return out
