"""Sums in Triton: long rows are divided into parts, unlike in the plain kernel, so that every multiprocessor has work.

A second launch adds the parts of one output.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.contract import check_sum
from triton_kernels._runtime.interpreter import INTERPRET, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch

DETERMINISTIC = True
BLOCK = 2**18 if INTERPRET else 8192  # elements that a program loads at a time
MOST_ROWS = 512  # most rows of a block, if rows are adjacent in memory
PROGRAMS = 8  # programs per multiprocessor


@triton.jit
def sum_parts_kernel(
    x_ptr, out_ptr, M, N, stride_xm, stride_xn, stride_om, stride_op, parts,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program adds every parts-th block of BLOCK_N columns of BLOCK_M rows, in float32."""
    part = tl.program_id(0) % parts
    offs_m = (tl.program_id(0) // parts).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    x_ptr += offs_m * stride_xm
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    offs_n = part.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    for _ in tl.range(part, tl.cdiv(N, BLOCK_N), parts, num_stages=3):
        acc += tl.load(x_ptr + offs_n * stride_xn, mask=(offs_m < M) & (offs_n < N), other=0.0).to(tl.float32)
        offs_n += parts * BLOCK_N
    out_ptrs = out_ptr + offs_m * stride_om + part * stride_op
    tl.store(out_ptrs, tl.sum(acc, 1)[:, None], mask=offs_m < M)


@kept
def sum(
    x: Float[Tensor, "M N"], *, axis: int | None = None
) -> Float[Tensor, ""] | Float[Tensor, "M"] | Float[Tensor, "N"]:
    """The sum of all elements (axis None), of each column (0) or of each row (1).

    Shapes: x (M, N), any strides. The output is contiguous.
    Dtypes: float32, float16, bfloat16; added in float32 and rounded once. The order depends on the shape and on the
    number of multiprocessors.
    Tail: elements beyond the end are masked. Offsets are int64.
    Errors: ValueError for other shapes, dtypes, axes or devices.
    """
    check_sum("sum", x, axis)
    out = empty_output(() if axis is None else (x.shape[1 - axis],), x.dtype, x.device)
    if x.numel() == 0:
        return finished_output(out.zero_(), x.dtype)
    rows = x.view(1, -1) if axis is None and x.is_contiguous() else x.t() if axis == 0 else x
    with device_of(x):
        if axis is None and not x.is_contiguous():
            partial = torch.empty(rows.shape[0], dtype=torch.float32, device=x.device)
            _sum_rows(rows, partial)
            rows = partial.view(1, -1)
        _sum_rows(rows, out.view(-1))
    return finished_output(out, x.dtype)


def _sum_rows(x: Tensor, out: Tensor) -> None:
    """out[i] = sum over j of x[i, j]. Blocks are long in the contiguous dimension of x."""
    M, N = x.shape
    if abs(x.stride(0)) < abs(x.stride(1)):  # adjacent rows are adjacent in memory
        rows = min(triton.next_power_of_2(M), MOST_ROWS)
        columns = min(triton.next_power_of_2(N), max(1, BLOCK // rows))
    else:
        columns = min(triton.next_power_of_2(N), BLOCK)
        rows = min(triton.next_power_of_2(M), max(1, BLOCK // columns))
    groups = triton.cdiv(M, rows)
    parts = max(1, min(triton.cdiv(_programs(x), groups), N // (4 * columns)))
    arguments = (M, N, *x.stride())
    if parts == 1:
        launch(sum_parts_kernel, (groups,), x, out, *arguments, 1, 0, 1, rows, columns, num_warps=8)
        return
    partial = torch.empty((parts, M), dtype=torch.float32, device=x.device).t()
    launch(
        sum_parts_kernel,
        (groups * parts,),
        x,
        partial,
        *arguments,
        *partial.stride(),
        parts,
        rows,
        columns,
        num_warps=8,
    )
    _sum_rows(partial if M > 1 else partial.contiguous(), out)


def _programs(x: Tensor) -> int:
    """Programs that the device runs at the same time."""
    return PROGRAMS * (torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 1)
