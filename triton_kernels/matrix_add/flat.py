"""Matrix addition in Triton: adds contiguous operands as two vectors, without the tiles of the plain kernel."""

import triton
import triton.language as tl
from jaxtyping import Shaped
from torch import Tensor

from triton_kernels._runtime.contract import check_add
from triton_kernels._runtime.interpreter import INTERPRET, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch

DETERMINISTIC = True
LARGE_BYTES = 2**26  # operands from this size on have enough programs for large blocks
BLOCK_BYTES = (2**18, 2**18) if INTERPRET else (4096, 16384)  # per operand and program: small, large operands
NUM_WARPS = (8, 32)  # one 16-byte load per thread and operand


@triton.jit(do_not_specialize=["N"])
def flat_add_kernel(a_ptr, b_ptr, out_ptr, N, BLOCK: tl.constexpr):
    """One program adds BLOCK consecutive elements of contiguous operands. Only the last program masks, as in
    `vector_add`."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offs = tl.arange(0, BLOCK)
    a_ptrs = a_ptr + start + offs
    b_ptrs = b_ptr + start + offs
    out_ptrs = out_ptr + start + offs
    if start + BLOCK <= N:
        a = tl.load(a_ptrs).to(tl.float32)
        b = tl.load(b_ptrs).to(tl.float32)
        tl.store(out_ptrs, a + b)
    else:
        mask = offs < (N - start).to(tl.int32)
        a = tl.load(a_ptrs, mask=mask).to(tl.float32)
        b = tl.load(b_ptrs, mask=mask).to(tl.float32)
        tl.store(out_ptrs, a + b, mask=mask)


def covers(a: Tensor, b: Tensor) -> bool:
    """True if both operands are contiguous."""
    return a.is_contiguous() and b.is_contiguous()


@kept
def matrix_add(a: Shaped[Tensor, "M N"], b: Shaped[Tensor, "M N"]) -> Shaped[Tensor, "M N"]:
    """out[m, n] = a[m, n] + b[m, n].

    Shapes: a (M, N), b (M, N), both contiguous; the output is contiguous.
    Dtypes: float32, float16, bfloat16, the same for both; the exact sum is rounded once.
    Tail: the last program masks the elements beyond M * N. Offsets are int64, so M * N may exceed 2**31.
    Errors: ValueError for other shapes, dtypes or devices; NotImplementedError for operands that are not contiguous.
    """
    check_add("matrix_add", a, b, ndim=2)
    if not covers(a, b):
        raise NotImplementedError(
            f"matrix_add: both operands must be contiguous; got strides {tuple(a.stride())} and {tuple(b.stride())}"
        )
    N = a.numel()
    out = empty_output(tuple(a.shape), a.dtype, a.device)
    if N > 0:
        large = N * a.element_size() >= LARGE_BYTES
        BLOCK = BLOCK_BYTES[large] // a.element_size()
        with device_of(a):
            launch(flat_add_kernel, (triton.cdiv(N, BLOCK),), a, b, out, N, BLOCK, num_warps=NUM_WARPS[large])
    return finished_output(out, a.dtype)
