"""Sums in CUDA by 16-byte loads: adds four loads in flight in each thread, shuffles within a warp, and enough blocks
for the device with any shape to tree.py."""

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_sum
from cuda_ref._runtime.device import multiprocessors
from cuda_ref._runtime.kept import kept
from cuda_ref.common.rows import PACK_BYTES, WARP

DETERMINISTIC = True
ROW_THREADS = 512  # threads per block that sums rows, as in vectorized.cu
COLUMN_WARPS = 8  # warps per block that sums columns, as in vectorized.cu
UNROLL = 4  # packs in flight in each thread
SM_THREADS = 2048  # threads per multiprocessor
STRETCH = 2 * ROW_THREADS * UNROLL
"""Packs of a long row per block. Small blocks keep the memory busy until the last one ends."""


@kept
def sum(
    x: Float[Tensor, "M N"], *, axis: int | None = None
) -> Float[Tensor, ""] | Float[Tensor, "M"] | Float[Tensor, "N"]:
    """The sum of all elements (axis None), of each column (0) or of each row (1).

    Shapes: x (M, N), any strides; the output is contiguous.
    Dtypes: float32, float16, bfloat16; added in float32, in an order that depends on the shape alone, rounded once.
    Tail: elements beyond the end are left out. Rows that do not begin and end at multiples of 16 bytes are read element
    by element. Indices are int64.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes, dtypes and axes; build.CudaError if the launch fails.
    """
    check_sum("sum", x, axis)
    out = x.new_empty(() if axis is None else (x.shape[1 - axis],))
    if x.numel() == 0:
        return out.zero_()
    if abs(x.stride(0)) < abs(x.stride(1)):  # stored by columns
        x, axis = x.t(), None if axis is None else 1 - axis
    if axis is None and x.is_contiguous():
        x, axis = x.view(1, -1), 1
    M, N = x.shape
    lanes = PACK_BYTES // x.element_size()
    if axis == 0:
        parts = _parts(x, COLUMN_WARPS * WARP, -(-N // (WARP * lanes)), M // (COLUMN_WARPS * UNROLL))
    else:
        parts = _parts(x, ROW_THREADS, M, N // (ROW_THREADS * UNROLL * lanes))
        if parts > 1:
            parts = max(parts, -(-N // (STRETCH * lanes)))
    room = parts * (N if axis == 0 else M)
    partial = torch.empty(room, dtype=torch.float32, device=x.device) if parts > 1 or axis is None else None
    build.launch(
        "sum/vectorized", "sum_vectorized", x.device,
        x, partial, out, M, N, *x.stride(), 2 if axis is None else axis, parts, build.DTYPES[x.dtype],
    )  # fmt: skip
    return out


def _parts(x: Tensor, threads: int, groups: int, most: int) -> int:
    """Blocks per row, or per group of columns: at most `most`, and in all as many as run at the same time."""
    return max(1, min(SM_THREADS // threads * multiprocessors(x.device) // groups, most))
