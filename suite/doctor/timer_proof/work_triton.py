# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"
"""The kernels of `work.cu` in Triton."""

import triton
import triton.language as tl


@triton.jit
def clock():
    """The clock of the multiprocessor that runs the program."""
    return tl.inline_asm_elementwise("mov.u64 $0, %clock64;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)


@triton.jit(do_not_specialize=["cycles"])
def spin_kernel(cycles, elapsed_ptr):
    """One program waits for `cycles` of its multiprocessor's clock and stores the cycles waited."""
    begin = clock()
    now = begin
    while now - begin < cycles:
        now = clock()
    tl.store(elapsed_ptr, now - begin)


@triton.jit
def add_one_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    """One program adds 1 to BLOCK elements."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < N
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=mask) + 1.0, mask=mask)
