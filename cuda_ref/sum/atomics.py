"""Sums in CUDA by atomics. Unlike in the plain kernel each warp adds its part atomically, in no fixed order."""

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_sum
from cuda_ref._runtime.kept import kept

THREADS = 256
BLOCKS = 1024  # blocks for few outputs: slightly more than a device runs at a time


@kept
def sum(
    x: Float[Tensor, "M N"], *, axis: int | None = None
) -> Float[Tensor, ""] | Float[Tensor, "M"] | Float[Tensor, "N"]:
    """The sum of all elements (axis None), of each column (0) or of each row (1).

    Shapes: x (M, N), any strides; the output is contiguous.
    Dtypes: float32, float16, bfloat16; added in float32 by each warp. The warps' sums are added in float64, in which
    atomic additions keep subnormal numbers. Their order varies: equal inputs may give different last bits.
    Tail: elements beyond the end are left out. Indices are int64.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes, dtypes and axes; build.CudaError if the launch fails.
    """
    check_sum("sum", x, axis)
    out = x.new_empty(() if axis is None else (x.shape[1 - axis],))
    if x.numel() == 0:
        return out.zero_()
    if axis is None and x.is_contiguous():
        x = x.view(1, -1)
    elif axis == 0:
        x = x.t()
    M, N = x.shape
    parts = max(1, min(BLOCKS // M, N // (4 * THREADS)))
    totals = torch.empty(max(out.numel(), 1), dtype=torch.float64, device=x.device)
    build.launch(
        "sum/atomics", "sum_atomics", x.device,
        x, totals, out, M, N, *x.stride(), parts, axis is None, build.DTYPES[x.dtype],
    )  # fmt: skip
    return out
