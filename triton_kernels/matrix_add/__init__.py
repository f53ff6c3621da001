"""Matrix addition in Triton: a grid of tiles, operands of any strides."""

import triton
import triton.language as tl
from jaxtyping import Shaped
from torch import Tensor

from triton_kernels._runtime.contract import check_add
from triton_kernels._runtime.interpreter import INTERPRET, empty_output, finished_output, to_working
from triton_kernels._runtime.launch import device_of, kept, launch

DETERMINISTIC = True
DTYPES_BEYOND = ("float64",)
BLOCK, ROWS = (2**18, 512) if INTERPRET else (4096, 64)  # elements and most rows of a tile


@triton.jit
def matrix_add_kernel(
    a_ptr, b_ptr, out_ptr, M, N, stride_am, stride_an, stride_bm, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program adds one tile, [BLOCK_M, BLOCK_N]. Tiles are numbered in row-major order."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    offs_m = (tl.program_id(0) // tiles_n).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = (tl.program_id(0) % tiles_n).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    mask = (offs_m < M) & (offs_n < N)
    a = to_working(tl.load(a_ptr + offs_m * stride_am + offs_n * stride_an, mask=mask))
    b = to_working(tl.load(b_ptr + offs_m * stride_bm + offs_n * stride_bn, mask=mask))
    tl.store(out_ptr + offs_m * N + offs_n, a + b, mask=mask)


@kept
def matrix_add(a: Shaped[Tensor, "M N"], b: Shaped[Tensor, "M N"]) -> Shaped[Tensor, "M N"]:
    """out[m, n] = a[m, n] + b[m, n].

    Shapes: a (M, N), b (M, N), any strides: transposed, sliced, broadcast (stride 0). The output is contiguous.
    Dtypes: float32, float16, bfloat16, the same for both; the exact sum is rounded once.
    Tail: elements beyond M and N are masked. Offsets are int64, so M * N may exceed 2**31.
    Errors: ValueError for other shapes, dtypes or devices.
    Source: the vector addition of Triton's tutorials, with two axes.
    """
    check_add("matrix_add", a, b, ndim=2, float64=True)
    M, N = a.shape
    out = empty_output((M, N), a.dtype, a.device)
    if out.numel() > 0:
        BLOCK_M = min(triton.next_power_of_2(M), ROWS)
        BLOCK_N = min(triton.next_power_of_2(N), BLOCK // BLOCK_M)
        grid = (triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N),)
        with device_of(a):
            launch(matrix_add_kernel, grid, a, b, out, M, N, *a.stride(), *b.stride(), BLOCK_M, BLOCK_N)
    return finished_output(out, a.dtype)
