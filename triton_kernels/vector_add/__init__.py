"""Vector addition in Triton: a memory-bound elementwise kernel with 16-byte loads."""

import triton
import triton.language as tl
from jaxtyping import Shaped
from torch import Tensor

from triton_kernels._runtime.contract import check_add
from triton_kernels._runtime.interpreter import INTERPRET, empty_output, finished_output, to_working
from triton_kernels._runtime.launch import device_of, kept, launch

DETERMINISTIC = True
DTYPES_BEYOND = ("float64",)
LARGE_BYTES = 2**26  # operands from this size on have enough programs for large blocks
BLOCK_BYTES = (2**18, 2**18) if INTERPRET else (4096, 16384)  # per operand and program: small, large operands
NUM_WARPS = (8, 32)  # one 16-byte load per thread and operand


@triton.jit(do_not_specialize=["N"])
def vector_add_kernel(a_ptr, b_ptr, out_ptr, N, stride_a, stride_b, BLOCK: tl.constexpr):
    """One program adds BLOCK consecutive elements.

    Triton compiles strides of 1 as constants, which gives 16-byte loads. Only the last program masks, because a mask
    would make loads narrower if N is not a multiple of 16.
    """
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offs = tl.arange(0, BLOCK)
    a_ptrs = a_ptr + start * stride_a + offs.to(tl.int64) * stride_a
    b_ptrs = b_ptr + start * stride_b + offs.to(tl.int64) * stride_b
    out_ptrs = out_ptr + start + offs
    if start + BLOCK <= N:
        a = to_working(tl.load(a_ptrs))
        b = to_working(tl.load(b_ptrs))
        tl.store(out_ptrs, a + b)
    else:
        mask = offs < (N - start).to(tl.int32)
        a = to_working(tl.load(a_ptrs, mask=mask))
        b = to_working(tl.load(b_ptrs, mask=mask))
        tl.store(out_ptrs, a + b, mask=mask)


@kept
def vector_add(a: Shaped[Tensor, "N"], b: Shaped[Tensor, "N"]) -> Shaped[Tensor, "N"]:
    """out[i] = a[i] + b[i].

    Shapes: a (N,), b (N,), any strides. The output is contiguous.
    Dtypes: float32, float16, bfloat16, the same for both; the exact sum is rounded once.
    Tail: the last program masks the elements beyond N. Offsets are int64, so N may exceed 2**31.
    Errors: ValueError for other shapes, dtypes or devices.
    Source: the vector addition of Triton's tutorials, with the mask moved to the last block.
    """
    check_add("vector_add", a, b, ndim=1, float64=True)
    N = a.shape[0]
    out = empty_output((N,), a.dtype, a.device)
    if N > 0:
        large = N * a.element_size() >= LARGE_BYTES
        BLOCK = BLOCK_BYTES[large] // a.element_size()
        with device_of(a):
            launch(
                vector_add_kernel,
                (triton.cdiv(N, BLOCK),),
                a,
                b,
                out,
                N,
                a.stride(0),
                b.stride(0),
                BLOCK,
                num_warps=NUM_WARPS[large],
            )
    return finished_output(out, a.dtype)
