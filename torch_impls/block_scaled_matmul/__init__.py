"""Product of float8 codes with a scale for each group of 128 terms: torch.matmul of float32, after scaling."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.precision import with_precision
from torch_impls._runtime.products import GROUP, check_block_scaled_matmul

VENDOR = "PyTorch"
DTYPES_BEYOND = ("float8_e4m3fn",)


def block_scaled_matmul(
    a: Float[Tensor, "M K"],
    scale_a: Float[Tensor, "M G_K"],
    b: Float[Tensor, "N K"],
    scale_b: Float[Tensor, "G_N G_K"],
) -> Float[Tensor, "M N"]:
    """c[i, j] = sum over k of a[i, k] scale_a[i, k // 128] b[j, k] scale_b[j // 128, k // 128], in bfloat16.

    a (M, K) and b (N, K) float8_e4m3fn, scales float32; any strides. Codes are multiplied by their scales in float32,
    products and sums are float32, without tensor cores, and the result is rounded once. K = 0 gives zeros. Raises
    ValueError for other arguments.
    """
    _, N, K = check_block_scaled_matmul(a, scale_a, b, scale_b)
    left = a.float() * scale_a.repeat_interleave(GROUP, 1)[:, :K]
    right = b.float() * scale_b.repeat_interleave(GROUP, 0)[:N].repeat_interleave(GROUP, 1)[:, :K]
    return with_precision("ieee", torch.matmul, left, right.mT).bfloat16()
