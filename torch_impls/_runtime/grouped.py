"""Limits of PyTorch's grouped products, torch._grouped_mm."""

from __future__ import annotations

import torch
from torch import Tensor


def check_grouped_operator(operation: str, **operands: Tensor) -> None:
    """Raises NotImplementedError unless the operator runs one kernel for all experts with these operands.

    On a GPU that is a kernel of CUTLASS for bfloat16 on compute capability 9.0. Rows or columns of a matrix must be
    contiguous, and begin at multiples of 16 bytes.
    """
    first = next(iter(operands.values()))
    if not hasattr(torch, "_grouped_mm"):
        raise NotImplementedError(f"{operation}: this PyTorch has no torch._grouped_mm; got {torch.__version__}")
    if first.is_cuda and (first.dtype != torch.bfloat16 or torch.cuda.get_device_capability(first.device) != (9, 0)):
        raise NotImplementedError(
            f"{operation}: PyTorch has one kernel for all experts in bfloat16 on compute capability 9.0; "
            f"got {first.dtype} on {torch.cuda.get_device_name(first.device)}"
        )
    for name, x in operands.items():
        if not _is_aligned(x):
            raise NotImplementedError(
                f"{operation}: {name} must have contiguous rows or columns at multiples of 16 bytes; "
                f"got strides {x.stride()} at address {x.data_ptr():#x}"
            )


def _is_aligned(x: Tensor) -> bool:
    """True if the last two dimensions are stored by rows or by columns, all at multiples of 16 bytes."""
    unit = 16 // x.element_size()
    outer = [*x.stride()[:-2]]
    for inner, other in ((-1, -2), (-2, -1)):
        spans = [x.stride(other), *outer]
        if x.stride(inner) == 1 and x.stride(other) >= x.shape[inner] and all(span % unit == 0 for span in spans):
            return x.data_ptr() % 16 == 0
    return False
