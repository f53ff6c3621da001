"""Differences between Triton's interpreter, which runs kernels on CPU tensors, and a compiled kernel."""

import torch
import triton
import triton.language as tl
from torch import Tensor

INTERPRET = tl.constexpr(triton.knobs.runtime.interpret)  # TRITON_INTERPRET=1 when this module was imported


@triton.jit
def dot_operand(x):
    """x as an operand of tl.dot: the interpreter's dot is wrong for bfloat16, so it gets float32."""
    if INTERPRET:
        return x.to(tl.float32)
    else:
        return x


def empty_output(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Uninitialised output of a kernel. The interpreter truncates stores of bfloat16, so it stores float32."""
    return torch.empty(shape, dtype=torch.float32 if INTERPRET else dtype, device=device)


def finished_output(out: Tensor, dtype: torch.dtype) -> Tensor:
    """The output in the result's dtype: torch rounds what the interpreter has stored as float32."""
    return out.to(dtype) if INTERPRET else out
