"""Device functions of pipelined products: offsets for which the compiler emits copies of 16 bytes, and waits."""

import triton
import triton.language as tl
from torch import Tensor

from triton_kernels._runtime.interpreter import INTERPRET


@triton.jit
def opaque_offsets(offs, ALIGN: tl.constexpr, ROWS: tl.constexpr):
    """Returns offs (runs of ALIGN consecutive numbers along rows or columns) after a no-op instruction.

    The compiler cannot look through the instruction. Without it, it recomputes the offsets of every copy within the
    loop, and the next product waits for those addresses.
    """
    if INTERPRET or ALIGN == 1:
        return offs
    else:
        offs = tl.inline_asm_elementwise("mov.b64 $0, $1;", "=l,l", [offs], tl.int64, is_pure=True, pack=1)
        if ROWS:
            return tl.max_contiguous(tl.multiple_of(offs, (1, ALIGN)), (1, ALIGN))
        else:
            return tl.max_contiguous(tl.multiple_of(offs, (ALIGN, 1)), (ALIGN, 1))


@triton.jit
def awaited(acc):
    """acc, float32 sums of a product whose left operand is in registers, after a no-op instruction that reads them.

    The compiler then waits for wgmma in the step that started it. Otherwise three wgmmas are still running when the
    next step begins, and ptxas of Triton 3.6 (CUDA 12.8) gives the registers of their operands to that step
    (triton-lang/triton#9433).
    """
    if INTERPRET:
        return acc
    else:
        return tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [acc], tl.float32, is_pure=True, pack=1)


@triton.jit
def known_multiple(x, ALIGN: tl.constexpr):
    """Returns x, a multiple of ALIGN, in a form from which the compiler infers this. By itself it tests for 16 only."""
    return x // ALIGN * ALIGN


def alignment(*matrices: Tensor) -> int:
    """Elements in 16 bytes if every contiguous row or column starts and ends at a multiple of 16 bytes; otherwise 1."""
    vector = 16 // matrices[0].element_size()
    for matrix in matrices:
        along = 1 if matrix.stride(1) == 1 else 0
        if matrix.stride(along) != 1 or matrix.shape[along] % vector != 0 or matrix.stride(1 - along) % vector != 0:
            return 1
    return vector
