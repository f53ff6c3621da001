"""Vector addition by torch.add: c[i] = a[i] + b[i]."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

VENDOR = "PyTorch"


def vector_add(a: Float[Tensor, " N"], b: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
    """c = a + b for vectors of float32, float16 or bfloat16 with any stride, on the GPU or the CPU.

    16-bit types are added in float32 and rounded once. Raises ValueError for other shapes and dtypes, and for two
    devices.
    """
    if a.ndim != 1:
        raise ValueError(f"vector_add: a must be (N,); got {tuple(a.shape)}")
    if b.shape != a.shape:
        shape = tuple(a.shape)
        raise ValueError(f"vector_add: a is (N,)={shape}, so b must be {shape}; got {tuple(b.shape)}")
    if a.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError(f"vector_add: a must be float32, float16 or bfloat16; got {a.dtype}")
    if b.dtype != a.dtype:
        raise ValueError(f"vector_add: a is {a.dtype}, so b must be {a.dtype}; got {b.dtype}")
    if b.device != a.device:
        raise ValueError(f"vector_add: a is on {a.device}, so b must be on {a.device}; got {b.device}")
    return torch.add(a, b)
