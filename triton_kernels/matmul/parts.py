"""Matrix multiplication in Triton with split-K. Adds parts of K to the pipelined kernel: a program sums one part.

An output with fewer tiles than multiprocessors leaves the device idle. Here several programs share a tile, and each
sums its own part of K. A second kernel adds the parts in a fixed order, so that two calls give the same bits.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.arguments import check_sizes
from triton_kernels._runtime.autotuner import autotune
from triton_kernels._runtime.configs import device
from triton_kernels._runtime.contract import check_matmul
from triton_kernels._runtime.interpreter import INTERPRET, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels.matmul._add_parts import STEP, add_parts
from triton_kernels.matmul._configs_pipelined import CONFIGS, short_list, tuning_space  # noqa: F401
from triton_kernels.matmul.pipelined import (
    STRIDES,
    flags,
    known_multiple,
    needs_columns,
    needs_two_accumulators,
    oriented,
    store_tile,
    tile_indices,
    tile_sums,
)

DETERMINISTIC = True
DTYPES_BEYOND = ("float8_e4m3fn",)
SIDE = 128
"""Rows and columns of the tiles by which `part_count` counts programs."""
MOST_PARTS = 64


@triton.jit(do_not_specialize=["M", "N", "K", "K_part"], do_not_specialize_on_alignment=STRIDES)
def parts_matmul_kernel(
    a_ptr, b_ptr, c_ptr, scale_a_ptr, scale_b_ptr,
    M, N, K, K_part, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    PRECISION: tl.constexpr, MASKED: tl.constexpr, GROUP_M: tl.constexpr,
    ALIGN_A: tl.constexpr, ALIGN_B: tl.constexpr, ALIGN_C: tl.constexpr,
    A_ROWS: tl.constexpr, B_ROWS: tl.constexpr, C_ROWS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Program (t, p) computes tile t of partial sum p: the terms p K_part to (p + 1) K_part. C holds all partial sums.

    K_part is a multiple of 256, and so of all BLOCK_K. The tile is computed as in `pipelined_matmul_kernel`.
    """
    PAIR: tl.constexpr = needs_two_accumulators(PRECISION, BLOCK_M, BLOCK_N)
    WIDTH: tl.constexpr = BLOCK_N // 2 if PAIR else BLOCK_N
    K_part = known_multiple(K_part, 256)  # otherwise the compiler copies single elements
    begin = tl.program_id(1) * K_part
    a_ptr += tl.full((), begin, tl.int64) * stride_ak
    b_ptr += tl.full((), begin, tl.int64) * stride_bk
    c_ptr += tl.full((), tl.program_id(1), tl.int64) * M * N
    offs_m, offs_n = tile_indices(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, WIDTH, GROUP_M)
    acc, right = tile_sums(
        a_ptr, b_ptr, offs_m, offs_n, M, N, min(K - begin, K_part), stride_am, stride_ak, stride_bk, stride_bn,
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
    KEY = ["M", "N", "K", "K_part", "stride_am", "stride_ak", "stride_bk", "stride_bn", "PRECISION"]
    parts_matmul_kernel = autotune(CONFIGS, KEY, short_list)(parts_matmul_kernel)


def part_count(M: int, N: int, K: int, processors: int) -> int:
    """Parts that give each multiprocessor a program, each with at least STEP terms."""
    tiles = triton.cdiv(M, SIDE) * triton.cdiv(N, SIDE)
    wanted = max(1, min(processors // tiles, triton.cdiv(K, STEP), MOST_PARTS))
    return triton.cdiv(K, part_terms(K, wanted))


def part_terms(K: int, parts: int) -> int:
    """Terms of all parts but the last: a multiple of STEP."""
    return triton.cdiv(triton.cdiv(K, STEP), parts) * STEP


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

    Shapes, strides, dtypes, precision, tail and errors: those of `pipelined`, but NotImplementedError for tf32, where
    Triton 3.6 compiles a loop whose results differ from call to call (docs/lab/matmul_tried.md). The output is
    contiguous.
    Parts: as many as give each multiprocessor a tile of 128 x 128, at most 64, each of at least 256 terms. The
    float32 sums take 4 M N bytes per part and are added in a fixed order. A single part is stored without a sum.
    Source: "split-K" of CUTLASS, with a reduction by a second kernel.
    """
    check_matmul(a, b, scale_a, scale_b, precision=precision, float8=True)
    (M, K), N = a.shape, b.shape[1]
    check_sizes("matmul", M, N, K)
    if precision == "tf32":
        raise NotImplementedError("matmul: K is not split for tf32, because results would differ from call to call")
    dtype = torch.bfloat16 if a.dtype == torch.float8_e4m3fn else a.dtype
    if K == 0:
        return torch.zeros((M, N), dtype=dtype, device=a.device)
    out = empty_output((M, N), dtype, a.device)
    if M > 0 and N > 0:
        with device_of(a):
            parts = part_count(M, N, K, device(a).multiprocessors)
            launch_parts(*oriented(a, b, out, precision), scale_a, scale_b, precision, part_terms(K, parts))
    return finished_output(out, dtype)


def config(
    a: Tensor, b: Tensor, scale_a: Tensor | None = None, scale_b: Tensor | None = None, *, precision: str = "ieee"
) -> str:
    """The kernels that `matmul` runs: `parts count=4; add_parts`. Empty if the result is empty or K is 0."""
    (M, K), N = a.shape, b.shape[1]
    if M * N * K == 0:
        return ""
    steps = ["transpose"] if needs_columns(a, b, precision) else []
    return "; ".join(steps + described(part_count(M, N, K, device(a).multiprocessors)))


def described(parts: int) -> list[str]:
    """The kernels of `launch_parts`."""
    return [f"parts count={parts}", *(["add_parts"] if parts > 1 else [])]


def launch_parts(
    a: Tensor, b: Tensor, c: Tensor, scale_a: Tensor | None, scale_b: Tensor | None, precision: str, K_part: int,
    align_a: int | None = None, align_b: int | None = None, tile: dict[str, int] = TILE,
) -> None:  # fmt: skip
    """c = a b in parts of K_part terms, on the current device. The elements of c have no gaps in memory."""
    (M, K), N = a.shape, b.shape[1]
    parts = triton.cdiv(K, K_part)
    sums = c if parts == 1 else torch.empty((parts, c.numel()), dtype=torch.float32, device=a.device)
    launch(
        parts_matmul_kernel,
        lambda tile: (triton.cdiv(M, tile["BLOCK_M"]) * triton.cdiv(N, tile["BLOCK_N"]), parts),
        a, b, sums, scale_a, scale_b, M, N, K, K_part, *a.stride(), *b.stride(), *c.stride(),
        **flags(a, b, c, precision, align_a, align_b), **tile,
    )  # fmt: skip
    if parts > 1:
        add_parts(sums, c)
