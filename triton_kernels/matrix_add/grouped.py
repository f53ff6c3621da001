"""Matrix addition in Triton: operands of any layout, each read along its own contiguous axis."""

import triton
import triton.language as tl
from jaxtyping import Shaped
from torch import Tensor

from triton_kernels._common.tiles import grouped_tile_any
from triton_kernels._runtime.arguments import check_add
from triton_kernels._runtime.interpreter import INTERPRET, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch

DETERMINISTIC = True
LARGE_BYTES = 2**26  # per dense operand: from here on there are enough programs for large blocks
BLOCK_BYTES = (2**18, 2**18) if INTERPRET else (4096, 16384)  # per operand and program: small, large dense operands
NUM_WARPS = (8, 32)  # one 16-byte load per thread and operand
TILE_BYTES = 1024 if INTERPRET else 256  # strided operands: one row of the square tile
TILE_WARPS = 8
GROUP_M = 8  # tile rows per group of the tile scheduler


@triton.jit(do_not_specialize=["N"])
def dense_add_kernel(a_ptr, b_ptr, out_ptr, N, BLOCK: tl.constexpr):
    """One program adds BLOCK consecutive elements of contiguous operands; see vector_add for the mask."""
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


@triton.jit
def tiled_add_kernel(
    a_ptr, b_ptr, out_ptr, M, N, stride_am, stride_an, stride_bm, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One program adds one tile of [BLOCK_M, BLOCK_N].

    Triton compiles a stride of 1 as a constant and assigns elements to threads for 16-byte accesses along that axis,
    separately for each load. A transposed operand is converted to the store's layout through shared memory. Grouped
    tiles keep the region in flight close to square: row-major and column-major operands both read long runs of memory.
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

    Shapes: a (M, N), b (M, N), any strides: transposed, sliced, broadcast (stride 0); the output is contiguous.
    Dtypes: float32, float16, bfloat16, the same for both; the exact sum is rounded once.
    Tail: only programs at the edge mask; offsets are int64, so M * N may exceed 2**31. The grid is one-dimensional:
    up to 2**31 - 1 tiles, however tall the matrix.
    Errors: ValueError for other shapes, dtypes or devices.
    Source: transposition through a shared-memory tile, as in CUDA's matrix transpose sample; the compiler inserts it.
    """
    check_add("matrix_add", a, b, ndim=2)
    M, N = a.shape
    out = empty_output((M, N), a.dtype, a.device)
    if M > 0 and N > 0:
        with device_of(a):
            (_launch_dense if a.is_contiguous() and b.is_contiguous() else _launch_tiled)(a, b, out)
    return finished_output(out, a.dtype)


def _launch_dense(a: Tensor, b: Tensor, out: Tensor) -> None:
    N = a.numel()
    large = N * a.element_size() >= LARGE_BYTES
    BLOCK = BLOCK_BYTES[large] // a.element_size()
    launch(dense_add_kernel, (triton.cdiv(N, BLOCK),), a, b, out, N, BLOCK, num_warps=NUM_WARPS[large])


def _launch_tiled(a: Tensor, b: Tensor, out: Tensor) -> None:
    M, N = a.shape
    BLOCK_M = BLOCK_N = TILE_BYTES // a.element_size()
    grid = (triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N),)
    launch(
        tiled_add_kernel,
        grid,
        a,
        b,
        out,
        M,
        N,
        *a.stride(),
        *b.stride(),
        BLOCK_M,
        BLOCK_N,
        GROUP_M,
        num_warps=TILE_WARPS,
    )
