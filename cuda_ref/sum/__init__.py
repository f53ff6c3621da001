"""Sums in CUDA, the plain kernel: one thread adds one output, or a part of it, one element after the other."""

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_sum, working
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True
DTYPES_BEYOND = ("float64",)
THREADS = 16384  # fewest threads of a launch, if each then has at least PART elements
PART = 64  # fewest elements of a part


@kept
def sum(
    x: Float[Tensor, "M N"], *, axis: int | None = None
) -> Float[Tensor, ""] | Float[Tensor, "M"] | Float[Tensor, "N"]:
    """The sum of all elements (axis None), of each column (0) or of each row (1).

    Shapes: x (M, N), any strides; the output is contiguous.
    Dtypes: float32, float16, bfloat16; added in float32, in an order that depends on the shape alone, rounded once.
    Tail: threads beyond the last part do nothing. Indices are int64.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes, dtypes and axes; build.CudaError if a launch fails.
    Source: see sum.cu.
    """
    check_sum("sum", x, axis, float64=True)
    out = x.new_empty(() if axis is None else (x.shape[1 - axis],))
    if x.numel() == 0:
        return out.zero_()
    if axis is None and x.is_contiguous():
        x, axis = x.view(1, -1), 1
    M, N = x.shape
    groups, length = (N, M) if axis == 0 else (M, N)  # columns or rows, and their lengths
    parts = max(1, min(THREADS // groups, length // PART))
    partial = (
        torch.empty(groups * parts, dtype=getattr(torch, working(x)), device=x.device)
        if parts > 1 or axis is None
        else None
    )
    build.launch(
        "sum/sum", "sum", x.device,
        x, partial, out, M, N, *x.stride(), 2 if axis is None else axis, parts, build.DTYPES[x.dtype],
    )  # fmt: skip
    return out
