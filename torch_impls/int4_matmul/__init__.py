"""Product with weights of 4 bits, a scale for each group of 128: weights in x's type, then torch.matmul."""

from __future__ import annotations

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from torch_impls._runtime.products import GROUP, check_int4_matmul

VENDOR = "PyTorch"


def int4_matmul(
    x: Float[Tensor, "M K"],
    weight: UInt8[Tensor, "N K_2"],
    scale: Float[Tensor, "N G_K"],
    zero: UInt8[Tensor, "N G_K"] | None = None,
) -> Float[Tensor, "M N"]:
    """y[m, n] = sum over k of x[m, k] scale[n, k // 128] (code[n, k] - zero[n, k // 128]), in x's type.

    x (M, K) and scale (N, K / 128) float16 or bfloat16; weight (N, K / 2) uint8 has two codes a byte, the lower first;
    zero (N, K / 128) uint8, 8 if not given; sizes are rounded up; any strides. All weights are written to memory,
    rounded once to x's type, and multiplied by torch.matmul. K = 0 gives zeros. Raises ValueError for other arguments.
    """
    _, N, K = check_int4_matmul(x, weight, scale, zero)
    codes = torch.stack((weight & 15, weight >> 4), 2).view(N, 2 * weight.shape[1])[:, :K].to(x.dtype)
    middle = 8 if zero is None else zero.to(x.dtype).repeat_interleave(GROUP, 1)[:, :K]
    return x @ ((codes - middle) * scale.repeat_interleave(GROUP, 1)[:, :K]).mT
