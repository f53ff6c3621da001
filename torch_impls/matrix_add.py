"""Matrix addition by torch.add: c[i, j] = a[i, j] + b[i, j], for any strides."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

VENDOR = "PyTorch"


def matrix_add(a: Float[Tensor, "M N"], b: Float[Tensor, "M N"]) -> Float[Tensor, "M N"]:
    """c = a + b for matrices of float32, float16 or bfloat16: transposed, sliced or broadcast (stride 0) as they
    come.

    16-bit types are added in float32 and rounded once. Left to itself torch.add lays its result out like its inputs,
    so a row-major one is given to it. Raises ValueError for other shapes and dtypes, and for two devices.
    """
    if a.ndim != 2:
        raise ValueError(f"matrix_add: a must be (M, N); got {tuple(a.shape)}")
    if b.shape != a.shape:
        shape = tuple(a.shape)
        raise ValueError(f"matrix_add: a is (M, N)={shape}, so b must be {shape}; got {tuple(b.shape)}")
    if a.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError(f"matrix_add: a must be float32, float16 or bfloat16; got {a.dtype}")
    if b.dtype != a.dtype:
        raise ValueError(f"matrix_add: a is {a.dtype}, so b must be {a.dtype}; got {b.dtype}")
    if b.device != a.device:
        raise ValueError(f"matrix_add: a is on {a.device}, so b must be on {a.device}; got {b.device}")
    return torch.add(a, b, out=a.new_empty(a.shape))
