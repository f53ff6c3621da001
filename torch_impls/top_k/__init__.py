"""The k largest numbers of each row and their indices, by torch.topk."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from torch_impls._runtime.contract import check_top_k

VENDOR = "PyTorch"

Values = Float[Tensor, "M k"]
Indices = Int64[Tensor, "M k"]


def plain(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    values, indices = torch.topk(x, k, dim=1)
    return values, indices


def top_k(x: Float[Tensor, "M N"], *, k: int) -> tuple[Values, Indices]:
    """(values, indices) of the k largest numbers of each row, in descending order; NaN is larger than all others.

    x (M, N), any strides, k from 1 to N; the results are row-major.
    float32, float16 or bfloat16. Raises ValueError for other arguments.
    """
    check_top_k(x, k)
    values, indices = plain(x, k)
    return values.contiguous(), indices.contiguous()
