"""Product with weights of 4 bits in CUDA, the plain kernel: one thread for each element of the output."""

from jaxtyping import Float, UInt8
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.kept import kept
from cuda_ref._runtime.products import check_int4_matmul

DETERMINISTIC = True


@kept
def int4_matmul(
    x: Float[Tensor, "M K"],
    weight: UInt8[Tensor, "N K_2"],
    scale: Float[Tensor, "N G_K"],
    zero: UInt8[Tensor, "N G_K"] | None = None,
) -> Float[Tensor, "M N"]:
    """out[m, n] = sum over groups g of scale[n, g] * (sum over k in g of x[m, k] * (code[n, k] - zero[n, g])).

    Shapes: x (M, K), weight (N, K / 2) with two codes a byte, the lower first, scale and zero (N, K / 128), rounded up;
    any strides and sizes, K = 0 included. The output is contiguous. zero is 8 if it is not given.
    Dtypes: float16 and bfloat16, weight and zero uint8. Sums are float32, rounded once.
    Tail: threads beyond the edge of the output do nothing; the last group may be shorter. Offsets are int64.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes, dtypes and devices; build.CudaError if the launch fails.
    Source: see int4_matmul.cu.
    """
    M, N, K = check_int4_matmul(x, weight, scale, zero)
    out = x.new_empty(M, N)
    if M > 0 and N > 0:
        build.launch(
            "int4_matmul/int4_matmul", "int4_matmul", x.device, x, weight, scale, zero, out, M, N, K, *x.stride(),
            *weight.stride(), *scale.stride(), *(scale if zero is None else zero).stride(), build.DTYPES[x.dtype],
        )  # fmt: skip
    return out
