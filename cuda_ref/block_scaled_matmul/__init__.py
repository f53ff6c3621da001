"""Product of float8 codes with scales of groups in CUDA, the plain kernel: one thread for each output element."""

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.kept import kept
from cuda_ref._runtime.products import check_block_scaled_matmul

DETERMINISTIC = True
DTYPES_BEYOND = ("float8_e4m3fn",)


@kept
def block_scaled_matmul(
    a: Float[Tensor, "M K"],
    scale_a: Float[Tensor, "M G_K"],
    b: Float[Tensor, "N K"],
    scale_b: Float[Tensor, "G_N G_K"],
) -> Float[Tensor, "M N"]:
    """out[m, n] = sum over groups g of scale_a[m, g] * scale_b[n / 128, g] * (sum over k in g of a[m, k] * b[n, k]).

    Shapes: a (M, K), b (N, K), scale_a (M, K / 128), scale_b (N / 128, K / 128), rounded up; any strides and sizes,
    K = 0 included. The output is contiguous.
    Dtypes: float8_e4m3fn, scales float32, output bfloat16. Products are exact, sums float32, rounded once.
    Tail: threads beyond the edge of the output do nothing; the last group may be shorter. Offsets are int64.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes, dtypes and devices; build.CudaError if the launch fails.
    Source: see block_scaled_matmul.cu.
    """
    M, N, K = check_block_scaled_matmul(a, scale_a, b, scale_b)
    out = a.new_empty(M, N, dtype=torch.bfloat16)
    if M > 0 and N > 0:
        build.launch(
            "block_scaled_matmul/block_scaled_matmul", "block_scaled_matmul", a.device,
            a, scale_a, b, scale_b, out, M, N, K, *a.stride(), *scale_a.stride(), *b.stride(), *scale_b.stride(),
        )  # fmt: skip
    return out
