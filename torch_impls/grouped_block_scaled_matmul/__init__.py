"""Products of each expert's rows with its weights in float8 with scales of groups, one expert after the other."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int32
from torch import Tensor

from torch_impls._runtime.experts import check_grouped_block_scaled_matmul
from torch_impls.block_scaled_matmul import block_scaled_matmul

VENDOR = "PyTorch"
DTYPES_BEYOND = ("float8_e4m3fn",)


def grouped_block_scaled_matmul(
    x: Float[Tensor, "T K"],
    scale_x: Float[Tensor, "T G_K"],
    weight: Float[Tensor, "E N K"],
    scale_weight: Float[Tensor, "E G_N G_K"],
    sizes: Int32[Tensor, E],
) -> Float[Tensor, "T N"]:
    """y[t, n] = sum over k of x[t, k] scale_x[t, k // 128] weight[e, n, k] scale_weight[e, n // 128, k // 128].

    Row t is among the sizes[e] rows of expert e. The rows are in the order of the experts; sizes are not negative, and
    their sum is T. The host reads the sizes, and waits for them on a GPU.

    x (T, K) and weight (E, N, K) float8_e4m3fn, scales float32, sizes int32; any strides. Products and sums are those
    of `torch` of block_scaled_matmul, the result is bfloat16. K = 0 gives zeros. Raises ValueError for other arguments.
    """
    T, _, _, N = check_grouped_block_scaled_matmul(x, scale_x, weight, scale_weight, sizes)
    out = x.new_empty(T, N, dtype=torch.bfloat16)
    end = 0
    for e, size in enumerate(sizes.tolist()):
        start, end = end, end + size
        out[start:end] = block_scaled_matmul(x[start:end], scale_x[start:end], weight[e], scale_weight[e])
    return out
