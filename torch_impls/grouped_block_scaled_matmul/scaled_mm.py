"""Products of each expert's rows with its weights in float8 by cuBLASLt's scales of blocks, one expert after the other.

PyTorch's own operator for all experts, torch.nn.functional.scaled_grouped_mm, has no scales of 128 terms.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int32
from torch import Tensor

from torch_impls._runtime.experts import check_grouped_block_scaled_matmul
from torch_impls.block_scaled_matmul.scaled_mm import SCALES_TOGETHER, block_scaled_matmul

VENDOR = "PyTorch (cuBLASLt)"
REQUIRES = "sm_90"
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
    their sum is T. The host reads the sizes, and waits for them. cuBLASLt multiplies a multiple of 4 rows: rows of
    other experts fill them up, and their results are dropped.

    x (T, K) and weight (E, N, K) float8_e4m3fn, contiguous along K, scales float32. T is a multiple of 4, N of 128, K
    of 512. Raises ValueError for arguments that break the contract; NotImplementedError where `torch/scaled_mm` of
    block_scaled_matmul does, and for other T.
    """
    T, _, K, N = check_grouped_block_scaled_matmul(x, scale_x, weight, scale_weight, sizes)
    if T % SCALES_TOGETHER != 0:
        raise NotImplementedError(
            f"grouped_block_scaled_matmul: cuBLASLt's T must be a multiple of {SCALES_TOGETHER}; got {T}"
        )
    out = x.new_zeros(T, N, dtype=torch.bfloat16)
    end = 0
    for e, size in enumerate(sizes.tolist() if K > 0 else ()):
        start, end = end, end + size
        rows = -(-size // SCALES_TOGETHER) * SCALES_TOGETHER
        first = min(start, T - rows)
        given = slice(first, first + rows)
        product = block_scaled_matmul(x[given], scale_x[given], weight[e], scale_weight[e])
        out[start:end] = product[start - first : end - first]
    return out
