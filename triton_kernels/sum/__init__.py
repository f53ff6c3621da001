"""Sums in Triton: one program adds a few rows, block after block, in float32."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.contract import check_sum, working
from triton_kernels._runtime.interpreter import INTERPRET, empty_output, finished_output, to_working, working_type
from triton_kernels._runtime.launch import device_of, kept, launch

DETERMINISTIC = True
DTYPES_BEYOND = ("float64",)
BLOCK = 2**18 if INTERPRET else 8192  # elements that a program loads at a time
ROWS = 64  # rows per program


@triton.jit
def sum_kernel(x_ptr, out_ptr, M, N, stride_xm, stride_xn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """One program adds BLOCK_M rows, in steps of BLOCK_N columns. Each position of the block keeps its own sum until
    the end."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.arange(0, BLOCK_N)[None, :].to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), working_type(x_ptr.dtype))
    for start in range(0, N, BLOCK_N):
        columns = start + offs_n
        mask = (offs_m < M) & (columns < N)
        acc += to_working(tl.load(x_ptr + offs_m * stride_xm + columns * stride_xn, mask=mask, other=0.0))
    tl.store(out_ptr + offs_m, tl.sum(acc, 1)[:, None], mask=offs_m < M)


@kept
def sum(
    x: Float[Tensor, "M N"], *, axis: int | None = None
) -> Float[Tensor, ""] | Float[Tensor, "M"] | Float[Tensor, "N"]:
    """The sum of all elements (axis None), of each column (0) or of each row (1).

    Sums of columns are computed as sums of rows of the transpose. The sum of all elements adds the rows, then their
    sums.

    Shapes: x (M, N), any strides. The output is contiguous.
    Dtypes: float32, float16, bfloat16; added in float32, in an order that depends on the shape alone, and rounded once.
    Tail: elements beyond the end are masked. Offsets are int64.
    Errors: ValueError for other shapes, dtypes, axes or devices.
    """
    check_sum("sum", x, axis, float64=True)
    out = empty_output(() if axis is None else (x.shape[1 - axis],), x.dtype, x.device)
    if x.numel() == 0:
        return finished_output(out.zero_(), x.dtype)
    with device_of(x):
        if axis is None:
            sums = torch.empty(x.shape[0], dtype=getattr(torch, working(x)), device=x.device)
            _sum_rows(x, sums)
            _sum_rows(sums.view(1, -1), out.view(-1))
        else:
            _sum_rows(x.t() if axis == 0 else x, out)
    return finished_output(out, x.dtype)


def _sum_rows(x: Tensor, out: Tensor) -> None:
    """out[i] = sum over j of x[i, j]."""
    M, N = x.shape
    BLOCK_M = min(triton.next_power_of_2(M), ROWS)
    BLOCK_N = min(triton.next_power_of_2(N), BLOCK // BLOCK_M)
    launch(sum_kernel, (triton.cdiv(M, BLOCK_M),), x, out, M, N, *x.stride(), BLOCK_M, BLOCK_N, num_warps=8)
