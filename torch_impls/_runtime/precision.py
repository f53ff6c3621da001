"""The arithmetic of PyTorch's matrix products, which is a setting of the process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")
REDUCTION_FLAG = {
    torch.float16: "allow_fp16_reduced_precision_reduction",
    torch.bfloat16: "allow_bf16_reduced_precision_reduction",
}


def with_precision(precision: str, function: Callable[..., Result], x: Tensor, *operands: Tensor) -> Result:
    """Calls function(x, *operands) with products in the dtype of x and with this precision.

    The setting is restored after the call, also after an error. Concurrent calls from several threads with different
    precisions are not supported. float32: `fp32_precision` is "ieee", or "tf32" on a GPU. 16 bits: products are exact
    and sums are float32; on a GPU cuBLAS must not add split-K parts in 16 bits, which PyTorch allows by default.
    float64 has no setting.
    """
    if x.dtype == torch.float32:
        flags = torch.backends.cuda.matmul if x.is_cuda else torch.backends.mkldnn.matmul
        return _with_setting(flags, "fp32_precision", precision, function, x, *operands)
    if x.is_cuda and x.dtype in REDUCTION_FLAG:
        return _with_setting(torch.backends.cuda.matmul, REDUCTION_FLAG[x.dtype], False, function, x, *operands)
    return function(x, *operands)


def _with_setting(
    flags: object, name: str, value: str | bool, function: Callable[..., Result], *operands: Tensor
) -> Result:
    """Calls the function with one setting of the process changed, and restores the setting."""
    before = getattr(flags, name)
    if before == value:
        return function(*operands)
    setattr(flags, name, value)
    try:
        return function(*operands)
    finally:
        setattr(flags, name, before)
