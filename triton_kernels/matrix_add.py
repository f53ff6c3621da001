"""Matrix addition in Triton: operands of any layout, each read along its own contiguous axis."""

import torch
import triton
import triton.language as tl
from jaxtyping import Shaped
from torch import Tensor

DETERMINISTIC = True
INTERPRET = triton.knobs.runtime.interpret  # TRITON_INTERPRET=1 when this module was imported
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
OUT_DTYPE = torch.float32 if INTERPRET else None  # the interpreter truncates to bfloat16: it leaves rounding to torch
LARGE_BYTES = 2**26  # of a dense operand: then there are so many programs that large ones pay
BLOCK_BYTES = (2**18, 2**18) if INTERPRET else (4096, 16384)  # per operand and program: small, large dense operands
NUM_WARPS = (8, 32)  # natively one 16-byte load a thread and operand
TILE_BYTES = 1024 if INTERPRET else 256  # strided operands: a row of the tile, which is square
TILE_WARPS = 8
GROUP_M = 8  # tiles are visited in bands of this many tile rows


@triton.jit(do_not_specialize=["N"])
def dense_add_kernel(a_ptr, b_ptr, out_ptr, N, BLOCK: tl.constexpr):
    """One program adds BLOCK consecutive elements of operands that lie in memory like the output; see vector_add."""
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

    A stride of 1 is compiled in as a constant; from it the compiler picks, for each load on its own, the assignment of
    elements to threads with 16-byte accesses along the contiguous axis. A transposed operand then changes to the
    layout of the store through shared memory. Bands of GROUP_M tile rows keep the tiles in flight close to square, so
    that row-major and column-major operands alike touch long runs of memory.
    """
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    band = pid // (GROUP_M * tiles_n)
    band_rows = min(tiles_m - band * GROUP_M, GROUP_M)
    within = pid % (GROUP_M * tiles_n)
    start_m = (band * GROUP_M + within % band_rows).to(tl.int64) * BLOCK_M
    start_n = (within // band_rows).to(tl.int64) * BLOCK_N

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


def matrix_add(a: Shaped[Tensor, "M N"], b: Shaped[Tensor, "M N"]) -> Shaped[Tensor, "M N"]:
    """out[m, n] = a[m, n] + b[m, n].

    Shapes: a (M, N), b (M, N), any strides: transposed, sliced, broadcast (0); the output is contiguous.
    Dtypes: float32, float16, bfloat16, the same for both; one rounding, of the exact sum.
    Tail: only programs at the edge mask; offsets are int64, so M * N may pass 2**31. The grid is one-dimensional,
    which leaves room for 2**31 - 1 tiles however tall the matrix.
    Errors: ValueError for other shapes, dtypes or devices.
    Source: the transposition through a shared-memory tile of CUDA's matrix transpose sample, left to the compiler.
    """
    if a.ndim != 2:
        raise ValueError(f"matrix_add: a must be (M, N); got {tuple(a.shape)}")
    if b.shape != a.shape:
        raise ValueError(
            f"matrix_add: a is (M, N)={tuple(a.shape)}, so b must be {tuple(a.shape)}; got {tuple(b.shape)}"
        )
    if a.dtype not in DTYPES:
        raise ValueError(f"matrix_add: a must be float32, float16 or bfloat16; got {a.dtype}")
    if b.dtype != a.dtype:
        raise ValueError(f"matrix_add: a is {a.dtype}, so b must be too; got {b.dtype}")
    if b.device != a.device:
        raise ValueError(f"matrix_add: a is on {a.device}, so b must be too; got {b.device}")
    if not (a.is_cuda or INTERPRET):
        raise ValueError(
            f"matrix_add: a is on {a.device}; pass CUDA tensors, or set TRITON_INTERPRET=1 before importing this module"
        )
    if a.is_cuda and a.device.index != torch.cuda.current_device():
        with torch.cuda.device(a.device):
            return matrix_add(a, b)

    M, N = a.shape
    out = torch.empty((M, N), dtype=OUT_DTYPE or a.dtype, device=a.device)
    if M == 0 or N == 0:
        pass
    elif a.is_contiguous() and b.is_contiguous():
        large = M * N * a.element_size() >= LARGE_BYTES
        BLOCK = BLOCK_BYTES[large] // a.element_size()
        grid = (triton.cdiv(M * N, BLOCK),)
        dense_add_kernel[grid](a, b, out, M * N, BLOCK, num_warps=NUM_WARPS[large])
    else:
        BLOCK_M = BLOCK_N = TILE_BYTES // a.element_size()
        grid = (triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N),)
        tiled_add_kernel[grid](
            a, b, out, M, N, *a.stride(), *b.stride(), BLOCK_M, BLOCK_N, GROUP_M, num_warps=TILE_WARPS
        )
    return out.to(a.dtype) if INTERPRET else out
