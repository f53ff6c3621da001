"""Product with weights of 4 bits by torch's own operator, torch.ops.aten._weight_int4pack_mm."""

from __future__ import annotations

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from torch_impls._runtime.products import GROUP, check_int4_matmul

VENDOR = "PyTorch (tinygemm)"
INNER_K_TILES = 8
"""Tiles of 16 terms that the GPU's operator keeps together."""
ROWS = 16
"""N, the number of rows of the weights, must be a multiple of this."""


def int4_matmul(
    x: Float[Tensor, "M K"],
    weight: UInt8[Tensor, "N K_2"],
    scale: Float[Tensor, "N G_K"],
    zero: UInt8[Tensor, "N G_K"] | None = None,
) -> Float[Tensor, "M N"]:
    """y[m, n] = sum over k of x[m, k] scale[n, k // 128] (code[n, k] - 8), in bfloat16.

    x (M, K) and scale (N, K / 128) bfloat16, weight (N, K / 2) uint8; M at least 1, N a multiple of 16, K of 128. The
    operator needs another order of codes, so each call packs the weights again, which takes most of the time for few
    rows.

    Raises ValueError for arguments that break the contract; NotImplementedError for float16, other sizes, and `zero`:
    the operator cannot subtract it from codes. It adds bfloat16 numbers to weights, so scale (8 - zero) would be
    rounded.
    """
    M, N, K = check_int4_matmul(x, weight, scale, zero)
    if zero is not None:
        raise NotImplementedError("int4_matmul: torch's operator takes no zero points")
    if x.dtype != torch.bfloat16:
        raise NotImplementedError(f"int4_matmul: torch's operator is for bfloat16; got {x.dtype}")
    if M == 0 or N == 0 or K == 0 or N % ROWS != 0 or K % GROUP != 0:
        raise NotImplementedError(f"int4_matmul: torch's operator needs N % {ROWS} = K % {GROUP} = 0; got {(M, N, K)}")
    added = torch.stack((scale.mT, torch.zeros_like(scale.mT)), 2).contiguous()
    if x.is_cuda:
        packed = torch.ops.aten._convert_weight_to_int4pack(weight << 4 | weight >> 4, INNER_K_TILES)
        found: Tensor = torch.ops.aten._weight_int4pack_mm(x.contiguous(), packed, GROUP, added)
        return found
    codes = torch.stack((weight & 15, weight >> 4), 2).view(N, K).int()
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, INNER_K_TILES)
    found = torch.ops.aten._weight_int4pack_mm_for_cpu(x.contiguous(), packed, GROUP, added)
    return found
