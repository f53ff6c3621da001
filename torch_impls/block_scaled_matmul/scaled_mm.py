"""Product of float8 codes with scales of groups by torch.nn.functional.scaled_mm: cuBLASLt's scales of blocks."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from torch_impls._runtime.products import GROUP, check_block_scaled_matmul

VENDOR = "PyTorch (cuBLASLt)"
REQUIRES = "sm_90"
DTYPES_BEYOND = ("float8_e4m3fn",)
SCALES_TOGETHER = 4
"""Scales in 16 bytes. In cuBLASLt rows of scales begin at multiples of 16 bytes, and not all versions of PyTorch add
the padding."""


def block_scaled_matmul(
    a: Float[Tensor, "M K"],
    scale_a: Float[Tensor, "M G_K"],
    b: Float[Tensor, "N K"],
    scale_b: Float[Tensor, "G_N G_K"],
) -> Float[Tensor, "M N"]:
    """c[i, j] = sum over k of a[i, k] scale_a[i, k // 128] b[j, k] scale_b[j // 128, k // 128], in bfloat16.

    a (M, K) and b (N, K) float8_e4m3fn, contiguous along K, scales float32. scale_a is copied to columns, as cuBLASLt
    reads it. M is a multiple of 4, N of 128, K of 512.

    Raises ValueError for arguments that break the contract; NotImplementedError for other sizes and strides, without
    `torch.nn.functional.scaled_mm`, and where cuBLASLt is older than CUDA 12.9.
    """
    M, N, K = check_block_scaled_matmul(a, scale_a, b, scale_b)
    if not hasattr(functional, "scaled_mm"):
        raise NotImplementedError(f"block_scaled_matmul: torch {torch.__version__} has no nn.functional.scaled_mm")
    if M == 0 or N == 0 or K == 0:
        return a.new_zeros(M, N, dtype=torch.bfloat16)
    for name, size, by in (("M", M, SCALES_TOGETHER), ("N", N, GROUP), ("K", K, GROUP * SCALES_TOGETHER)):
        if size % by != 0:
            raise NotImplementedError(f"block_scaled_matmul: cuBLASLt's {name} must be a multiple of {by}; got {size}")
    for name, x in (("a", a), ("b", b)):
        if x.stride(1) != 1 or x.stride(0) < K or x.stride(0) % 16 != 0 or x.data_ptr() % 16 != 0:
            raise NotImplementedError(
                f"block_scaled_matmul: {name} must have K contiguous and rows at multiples of 16 bytes; "
                f"got strides {x.stride()} at address {x.data_ptr():#x}"
            )
    kinds = functional.ScalingType
    return functional.scaled_mm(
        a, b.mT, scale_a.mT.contiguous().mT, kinds.BlockWise1x128, scale_b.contiguous().mT, kinds.BlockWise128x128,
        output_dtype=torch.bfloat16,
    )  # fmt: skip
