"""Matrix multiplication in Triton, pipelined: adds asynchronous copies of 16 bytes to the plain kernel.

The compiler copies 16 bytes at a time only if it knows that rows begin and end at multiples of 16 bytes. By itself it
infers this from sizes that are multiples of 16, and compiles anew for each pattern of such sizes. Here the launcher
states the alignment of each matrix: multiples of 8 elements get wide copies too, and one compiled kernel serves all
sizes. Offsets that the compiler cannot look through are computed once, not in each step, so that no wgmma waits for an
address.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._common.pipelining import alignment, awaited, known_multiple, opaque_offsets
from triton_kernels._common.tiles import grouped_tile
from triton_kernels._runtime.arguments import check_sizes
from triton_kernels._runtime.autotuner import autotune
from triton_kernels._runtime.contract import check_matmul
from triton_kernels._runtime.interpreter import INTERPRET, empty_output, finished_output
from triton_kernels._runtime.launch import column_major, device_of, kept, launch
from triton_kernels.matmul import GROUP_M, multiply_add
from triton_kernels.matmul._configs_pipelined import CONFIGS, short_list, tuning_space  # noqa: F401

DETERMINISTIC = True
DTYPES_BEYOND = ("float8_e4m3fn",)
STRIDES = [f"stride_{matrix}" for matrix in ("am", "ak", "bk", "bn", "cm", "cn")]


@triton.jit
def in_registers(x):
    """x after a no-op instruction, so that wgmma takes it from registers, and the compiler can transpose it."""
    if INTERPRET:
        return x
    else:
        return tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], tl.float32, is_pure=True, pack=1)


@triton.jit
def rounded_up(x, ALIGN: tl.constexpr):
    """The next multiple of ALIGN, in a form from which the compiler infers it."""
    return (x + (ALIGN - 1)) // ALIGN * ALIGN


@triton.constexpr_function
def needs_two_accumulators(PRECISION, BLOCK_M, BLOCK_N):
    """True if a tile is computed as two halves of its columns: promoted sums take twice the registers."""
    return PRECISION == "promoted" and BLOCK_M * BLOCK_N > 128 * 128


@triton.jit
def tile_sums(
    a_ptr, b_ptr, offs_m, offs_n, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    PRECISION: tl.constexpr, MASKED: tl.constexpr, ALIGN_A: tl.constexpr, ALIGN_B: tl.constexpr,
    A_ROWS: tl.constexpr, B_ROWS: tl.constexpr, BLOCK_K: tl.constexpr, PAIR: tl.constexpr,
):  # fmt: skip
    """Computes A B for rows offs_m of A and columns offs_n of B; with PAIR also for as many columns to their right.

    Each step over K multiplies [BLOCK_M, BLOCK_K] by [BLOCK_K, BLOCK_N]. The compiler pipelines num_stages steps
    through shared memory: asynchronous copies of the next steps overlap with the tensor cores.
    ALIGN_A: elements in 16 bytes if the rows of A, with any zero padding, start and end at multiples of 16 bytes.
    Otherwise 1, and elements are copied one at a time. ALIGN_B likewise.
    A_ROWS: A is row-major (stride_ak = 1), otherwise column-major (stride_am = 1); B_ROWS likewise.
    """
    BLOCK_M: tl.constexpr = offs_m.shape[0]
    WIDTH: tl.constexpr = offs_n.shape[0]
    K_a, K_b = K, K
    if ALIGN_A > 1:
        if A_ROWS:
            stride_am, K_a = known_multiple(stride_am, ALIGN_A), rounded_up(K, ALIGN_A)
        else:
            stride_ak, M = known_multiple(stride_ak, ALIGN_A), rounded_up(M, ALIGN_A)
    if ALIGN_B > 1:
        if B_ROWS:
            stride_bk, N = known_multiple(stride_bk, ALIGN_B), rounded_up(N, ALIGN_B)
        else:
            stride_bn, K_b = known_multiple(stride_bn, ALIGN_B), rounded_up(K, ALIGN_B)
    if not B_ROWS:  # otherwise acc reaches the loop on two paths, and ptxas serializes the wgmmas
        tl.assume(K > 0)
    offs_k = tl.arange(0, BLOCK_K)
    a_offs = offs_m[:, None].to(tl.int64) * stride_am + offs_k[None, :].to(tl.int64) * stride_ak
    b_offs = offs_k[:, None].to(tl.int64) * stride_bk + offs_n[None, :].to(tl.int64) * stride_bn
    a_ptrs = a_ptr + opaque_offsets(a_offs, ALIGN_A, A_ROWS)
    b_ptrs = b_ptr + opaque_offsets(b_offs, ALIGN_B, B_ROWS)
    a_step = tl.full((), BLOCK_K, tl.int64) * stride_ak
    b_step = tl.full((), BLOCK_K, tl.int64) * stride_bk
    b_right = tl.full((), WIDTH, tl.int64) * stride_bn
    acc = tl.zeros((BLOCK_M, WIDTH), dtype=tl.float32)
    right = tl.zeros((BLOCK_M, WIDTH), dtype=tl.float32) if PAIR else acc
    for k in range(0, K, BLOCK_K):
        if MASKED:
            a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (offs_k[None, :] < K_a - k), other=0.0)
            b = tl.load(b_ptrs, mask=(offs_k[:, None] < K_b - k) & (offs_n[None, :] < N), other=0.0)
        else:
            a = tl.load(a_ptrs)
            b = tl.load(b_ptrs)
        if PRECISION == "tf32" and not A_ROWS:
            a = in_registers(a)
        acc = multiply_add(a, b, acc, PRECISION)
        if PRECISION == "tf32" and not A_ROWS:
            acc = awaited(acc)
        if PAIR:
            if MASKED:
                inside = (offs_k[:, None] < K_b - k) & (offs_n[None, :] < N - WIDTH)
                b = tl.load(b_ptrs + b_right, mask=inside, other=0.0)
            else:
                b = tl.load(b_ptrs + b_right)
            right = multiply_add(a, b, right, PRECISION)
        a_ptrs += a_step
        b_ptrs += b_step
    return acc, right


@triton.jit
def store_tile(
    c_ptr, acc, right, scale_a_ptr, scale_b_ptr, offs_m, offs_n, M, N, stride_cm, stride_cn,
    MASKED: tl.constexpr, ALIGN_C: tl.constexpr, C_ROWS: tl.constexpr, PAIR: tl.constexpr,
):  # fmt: skip
    """Stores the sums, scaled.

    C_ROWS: C is row-major, otherwise column-major. Its rows (columns) start and end at multiples of ALIGN_C elements.
    """
    WIDTH: tl.constexpr = offs_n.shape[0]
    if ALIGN_C > 1:
        if C_ROWS:
            stride_cm, N = known_multiple(stride_cm, ALIGN_C), known_multiple(N, ALIGN_C)
        else:
            stride_cn, M = known_multiple(stride_cn, ALIGN_C), known_multiple(M, ALIGN_C)
    if scale_a_ptr is not None:
        scale = tl.load(scale_a_ptr) * tl.load(scale_b_ptr)
        acc *= scale
        if PAIR:
            right *= scale
    c_ptrs = c_ptr + offs_m[:, None].to(tl.int64) * stride_cm + offs_n[None, :].to(tl.int64) * stride_cn
    if MASKED:
        tl.store(c_ptrs, acc, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))
    else:
        tl.store(c_ptrs, acc)
    if PAIR:
        c_ptrs += tl.full((), WIDTH, tl.int64) * stride_cn
        if MASKED:
            tl.store(c_ptrs, right, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N - WIDTH))
        else:
            tl.store(c_ptrs, right)


@triton.jit
def tile_indices(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDTH: tl.constexpr, GROUP_M: tl.constexpr):
    """Rows, and the first WIDTH columns, of a tile."""
    pid_m, pid_n = grouped_tile(tile, tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    return pid_m * BLOCK_M + tl.arange(0, BLOCK_M), pid_n * BLOCK_N + tl.arange(0, WIDTH)


@triton.jit(do_not_specialize=["M", "N", "K"], do_not_specialize_on_alignment=STRIDES)
def pipelined_matmul_kernel(
    a_ptr, b_ptr, c_ptr, scale_a_ptr, scale_b_ptr,
    M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    PRECISION: tl.constexpr, MASKED: tl.constexpr, GROUP_M: tl.constexpr,
    ALIGN_A: tl.constexpr, ALIGN_B: tl.constexpr, ALIGN_C: tl.constexpr,
    A_ROWS: tl.constexpr, B_ROWS: tl.constexpr, C_ROWS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One program computes one tile of C, [BLOCK_M, BLOCK_N], in float32 registers."""
    PAIR: tl.constexpr = needs_two_accumulators(PRECISION, BLOCK_M, BLOCK_N)
    WIDTH: tl.constexpr = BLOCK_N // 2 if PAIR else BLOCK_N
    offs_m, offs_n = tile_indices(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, WIDTH, GROUP_M)
    acc, right = tile_sums(
        a_ptr, b_ptr, offs_m, offs_n, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
        PRECISION, MASKED, ALIGN_A, ALIGN_B, A_ROWS, B_ROWS, BLOCK_K, PAIR,
    )  # fmt: skip
    store_tile(
        c_ptr, acc, right, scale_a_ptr, scale_b_ptr, offs_m, offs_n, M, N, stride_cm, stride_cn,
        MASKED, ALIGN_C, C_ROWS, PAIR,
    )  # fmt: skip


if INTERPRET:  # without autotuning: one tile that numpy multiplies fast
    TILE: dict[str, int] = {"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 256}
else:  # tuned, or timed once per key and kept in Triton's cache folder
    TILE = {}
    KEY = ["M", "N", "K", "stride_am", "stride_ak", "stride_bk", "stride_bn", "PRECISION"]
    pipelined_matmul_kernel = autotune(CONFIGS, KEY, short_list)(pipelined_matmul_kernel)


@kept
def matmul(
    a: Float[Tensor, "M K"],
    b: Float[Tensor, "K N"],
    scale_a: Float[Tensor, ""] | None = None,
    scale_b: Float[Tensor, ""] | None = None,
    *,
    precision: str = "ieee",
) -> Float[Tensor, "M N"]:
    """C = A @ B; for float8 C = scale_a * scale_b * A @ B.

    Shapes, dtypes, precision and errors: those of the plain kernel. The output is contiguous.
    Strides: any. Rows that do not start at multiples of 16 bytes are copied by single elements. For tf32 with a
    column-major A and a row-major B, B is first copied to column-major order.
    Tail: loads and stores are masked unless all tiles of all configurations fit; offsets are int64.
    Source: the tile order and pipelined loop of Triton's matrix multiplication tutorial.
    """
    check_matmul(a, b, scale_a, scale_b, precision=precision, float8=True)
    (M, K), N = a.shape, b.shape[1]
    check_sizes("matmul", M, N, K)
    dtype = torch.bfloat16 if a.dtype == torch.float8_e4m3fn else a.dtype
    if K == 0:
        return torch.zeros((M, N), dtype=dtype, device=a.device)
    out = empty_output((M, N), dtype, a.device)
    if M > 0 and N > 0:
        with device_of(a):
            launch_pipelined(*oriented(a, b, out, precision), scale_a, scale_b, precision)
    return finished_output(out, dtype)


def oriented(a: Tensor, b: Tensor, c: Tensor, precision: str) -> tuple[Tensor, Tensor, Tensor]:
    """a, b and c, or b^T, a^T and c^T, whichever the tensor cores read faster; on the current device.

    wgmma reads 32-bit operands from shared memory only with K contiguous, but takes the left one from registers too, so
    tf32 computes C^T = B^T A^T. In other dtypes two column-major operands are faster when multiplied as row-major ones.
    """
    tf32 = precision == "tf32"
    if needs_columns(a, b, precision):
        b = column_major(b)
    if (a.stride(1) == 1 and b.stride(0) != 1) if tf32 else a.stride(0) == b.stride(0) == 1:
        return b.t(), a.t(), c.t()
    return a, b, c


def needs_columns(a: Tensor, b: Tensor, precision: str) -> bool:
    """True if b is copied to column-major order: wgmma can transpose only one of two tf32 operands."""
    return precision == "tf32" and a.stride(1) != 1 and b.stride(0) != 1


def launch_pipelined(
    a: Tensor, b: Tensor, c: Tensor, scale_a: Tensor | None, scale_b: Tensor | None, precision: str,
    align_a: int | None = None, align_b: int | None = None, tile: dict[str, int] = TILE,
) -> None:  # fmt: skip
    """c = a b on the current device, none of them empty. align_a, align_b: alignments of padded copies."""
    (M, K), N = a.shape, b.shape[1]
    launch(
        pipelined_matmul_kernel,
        lambda tile: (triton.cdiv(M, tile["BLOCK_M"]) * triton.cdiv(N, tile["BLOCK_N"]),),
        a, b, c, scale_a, scale_b, M, N, K, *a.stride(), *b.stride(), *c.stride(),
        **flags(a, b, c, precision, align_a, align_b), **tile,
    )  # fmt: skip


def flags(
    a: Tensor, b: Tensor, c: Tensor, precision: str, align_a: int | None = None, align_b: int | None = None
) -> dict[str, Any]:
    """Compile-time arguments of a kernel besides its tile; see `tile_sums` and `store_tile`."""
    (M, K), N = a.shape, b.shape[1]
    return {
        "PRECISION": precision,
        "MASKED": M % 256 != 0 or N % 256 != 0 or K % 256 != 0,
        "GROUP_M": GROUP_M,
        "ALIGN_A": alignment(a) if align_a is None else align_a,
        "ALIGN_B": alignment(b) if align_b is None else align_b,
        "ALIGN_C": alignment(c),
        "A_ROWS": a.stride(1) == 1,
        "B_ROWS": b.stride(1) == 1,
        "C_ROWS": c.stride(1) == 1,
    }
