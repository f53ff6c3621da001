"""Matrix addition in Triton: adds to the plain kernel a tile order that suits operands of any layout."""

import triton
import triton.language as tl
from jaxtyping import Shaped
from torch import Tensor

from triton_kernels._common.tiles import grouped_tile_any
from triton_kernels._runtime.contract import check_add
from triton_kernels._runtime.interpreter import empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch

DETERMINISTIC = True
TILE_BYTES = 256  # bytes of a row of the square tile
NUM_WARPS = 8
GROUP_M = 8  # tile rows per group of the tile scheduler


@triton.jit
def grouped_add_kernel(
    a_ptr, b_ptr, out_ptr, M, N, stride_am, stride_an, stride_bm, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One program adds one tile, [BLOCK_M, BLOCK_N]. Only tiles at the edge are masked.

    Grouped tiles keep the region in flight close to square, so that row-major and column-major operands are both read
    in long runs of memory. Triton compiles a stride of 1 as a constant and assigns elements to threads for 16-byte
    accesses along that axis, for each load separately. It converts a transposed operand to the layout of the store
    through shared memory.
    """
    pid_m, pid_n = grouped_tile_any(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    start_m = pid_m.to(tl.int64) * BLOCK_M
    start_n = pid_n.to(tl.int64) * BLOCK_N

    offs_m = tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
    offs_n = tl.arange(0, BLOCK_N)[None, :].to(tl.int64)
    a_ptrs = a_ptr + start_m * stride_am + start_n * stride_an + (offs_m * stride_am + offs_n * stride_an)
    b_ptrs = b_ptr + start_m * stride_bm + start_n * stride_bn + (offs_m * stride_bm + offs_n * stride_bn)
    out_ptrs = out_ptr + start_m * N + start_n + (offs_m * N + offs_n)
    if (start_m + BLOCK_M <= M) & (start_n + BLOCK_N <= N):
        a = tl.load(a_ptrs).to(tl.float32)
        b = tl.load(b_ptrs).to(tl.float32)
        tl.store(out_ptrs, a + b)
    else:
        mask = (offs_m < M - start_m) & (offs_n < N - start_n)
        a = tl.load(a_ptrs, mask=mask).to(tl.float32)
        b = tl.load(b_ptrs, mask=mask).to(tl.float32)
        tl.store(out_ptrs, a + b, mask=mask)


@kept
def matrix_add(a: Shaped[Tensor, "M N"], b: Shaped[Tensor, "M N"]) -> Shaped[Tensor, "M N"]:
    """out[m, n] = a[m, n] + b[m, n].

    Shapes: a (M, N), b (M, N), any strides: transposed, sliced, broadcast (stride 0). The output is contiguous.
    Dtypes: float32, float16, bfloat16, the same for both; the exact sum is rounded once.
    Tail: tiles at the edge are masked. Offsets are int64, so M * N may exceed 2**31. The grid has one axis, of up to
    2**31 - 1 tiles.
    Errors: ValueError for other shapes, dtypes or devices.
    Source: "L2 cache optimizations" of Triton's matrix multiplication tutorial; the transposition through shared memory
    of CUDA's matrix transpose sample, which the compiler inserts.
    """
    check_add("matrix_add", a, b, ndim=2)
    M, N = a.shape
    out = empty_output((M, N), a.dtype, a.device)
    if out.numel() > 0:
        BLOCK = TILE_BYTES // a.element_size()
        grid = (triton.cdiv(M, BLOCK) * triton.cdiv(N, BLOCK),)
        with device_of(a):
            launch(
                grouped_add_kernel, grid,
                a, b, out, M, N, *a.stride(), *b.stride(), BLOCK, BLOCK, GROUP_M, num_warps=NUM_WARPS,
            )  # fmt: skip
    return finished_output(out, a.dtype)
