"""What launchers share: the current device, the grid of a persistent kernel, and a copy with contiguous columns."""

from contextlib import AbstractContextManager, nullcontext

import torch
import triton
import triton.language as tl
from torch import Tensor

UNCHANGED: AbstractContextManager[None] = nullcontext()


def device_of(x: Tensor) -> AbstractContextManager[None]:
    """Context in which the GPU of x is the current device, on which Triton launches."""
    if x.is_cuda and x.device.index != torch.cuda.current_device():
        return torch.cuda.device(x.device)  # type: ignore[return-value]
    return UNCHANGED


def persistent_grid(tiles: int, multiprocessors: int) -> tuple[int]:
    """Fewest programs with the same number of waves: idle multiprocessors save power."""
    waves = triton.cdiv(tiles, multiprocessors)
    return (triton.cdiv(tiles, waves),)


@triton.jit
def transpose_kernel(x_ptr, y_ptr, R, C, stride_r, stride_c, stride_y, BLOCK: tl.constexpr):
    """y = x^T: x [R, C], y [C, R] with rows stride_y elements apart. One program transposes one block."""
    tiles_c = tl.cdiv(C, BLOCK)
    r = tl.program_id(0) // tiles_c * BLOCK + tl.arange(0, BLOCK)
    c = tl.program_id(0) % tiles_c * BLOCK + tl.arange(0, BLOCK)
    inside = (r[:, None] < R) & (c[None, :] < C)
    x = tl.load(x_ptr + r[:, None].to(tl.int64) * stride_r + c[None, :].to(tl.int64) * stride_c, mask=inside)
    tl.store(y_ptr + c[None, :].to(tl.int64) * stride_y + r[:, None], x, mask=inside)


def column_major(x: Tensor) -> Tensor:
    """Copy of a float32 matrix with contiguous columns, each at a multiple of 16 bytes."""
    R, C = x.shape
    y = torch.empty((C, triton.cdiv(R, 4) * 4), dtype=x.dtype, device=x.device)[:, :R]
    blocks = triton.cdiv(R, 64) * triton.cdiv(C, 64)
    transpose_kernel[(blocks,)](x, y, R, C, *x.stride(), y.stride(0), BLOCK=64, num_warps=4)
    return y.t()
