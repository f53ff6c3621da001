"""Product of float8 codes in Triton, persistent: TMA loads, and one pipeline for all tiles of a program.

Adds to the plain kernel TMA, which copies whole blocks without registers or address arithmetic, and programs that load
their next tile while they finish the current one.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from triton_kernels._common.padding import copy_matrix
from triton_kernels._common.tiles import tile_offsets
from triton_kernels._common.tma import find_tma
from triton_kernels._runtime.arguments import check_sizes
from triton_kernels._runtime.autotuner import autotune
from triton_kernels._runtime.configs import multiprocessors, tile_counts, with_enough_tiles, without_small_tiles
from triton_kernels._runtime.interpreter import INTERPRET, dot_operand, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch, persistent_grid
from triton_kernels._runtime.products import GROUP, check_block_scaled_matmul

DETERMINISTIC = True
DTYPES_BEYOND = ("float8_e4m3fn",)


@triton.jit(do_not_specialize=["M", "N", "K"])
def persistent_block_scaled_kernel(
    a_desc, b_desc, scale_a_ptr, scale_b_ptr, c_ptr, M, N, K, stride_sam, stride_sak, stride_sbn, stride_sbk,
    GROUP: tl.constexpr, GROUP_M: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A persistent program computes tiles program_id, program_id + num_programs, ... of C, [BLOCK_M, BLOCK_N] each.

    TMA reads zeros beyond the edges. The tensor cores sum a group from zero; BLOCK_N divides GROUP, so the columns of a
    tile have one scale.
    """
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        off_m, off_n = tile_offsets(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        rows = (off_m + tl.arange(0, BLOCK_M)).to(tl.int64)
        scale_a_ptrs = scale_a_ptr + rows * stride_sam
        scale_b_at = scale_b_ptr + tl.full((), off_n // GROUP, tl.int64) * stride_sbn
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, GROUP):
            a = a_desc.load([off_m, k])
            b = b_desc.load([off_n, k]).T
            scale = tl.load(scale_a_ptrs, mask=rows < M, other=0.0) * tl.load(scale_b_at)
            acc += tl.dot(dot_operand(a), dot_operand(b)) * scale[:, None]
            scale_a_ptrs += stride_sak
            scale_b_at += stride_sbk
        columns = off_n + tl.arange(0, BLOCK_N)
        tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc, mask=(rows[:, None] < M) & (columns[None, :] < N))


def set_blocks(args: dict[str, Any]) -> None:
    """Before each launch: gives the descriptors the block shapes of the configuration."""
    args["a_desc"].block_shape = [args["BLOCK_M"], args["GROUP"]]
    args["b_desc"].block_shape = [args["BLOCK_N"], args["GROUP"]]


def _config(BLOCK_M: int, BLOCK_N: int, GROUP_M: int, num_warps: int, num_stages: int) -> triton.Config:
    tile = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N, "GROUP_M": GROUP_M}
    return triton.Config(tile, num_warps=num_warps, num_stages=num_stages, pre_hook=set_blocks)


# Two warpgroups share a tile of 128 rows: one adds its scaled sums while the tensor cores work for the other.
CONFIGS = [
    _config(128, 128, 8, 8, 4),
    _config(128, 128, 16, 8, 5),
    _config(64, 128, 16, 4, 6),
    _config(64, 64, 16, 4, 8),
    _config(64, 32, 16, 4, 8),
]


def short_list(configs: list[triton.Config], args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The configurations that the autotuner times: those whose tiles suit C."""
    processors = multiprocessors(args["a_desc"].base)
    return without_small_tiles(with_enough_tiles(tile_counts(configs, args["M"], args["N"]), processors), processors)


def tuning_space(args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The configurations that a search of several minutes times: all tiles with 3 to 8 stages."""
    tiles = ((128, 128, 8), (128, 64, 8), (64, 128, 4), (64, 64, 4), (64, 32, 4))
    sizes = ((m, n, warps, stages) for m, n, warps in tiles for stages in range(3, 9) if stages * (m + n) <= 1600)
    return [_config(m, n, group_m, warps, stages) for m, n, warps, stages in sizes for group_m in (8, 16)]


if INTERPRET:  # without autotuning: one tile
    TILE: dict[str, int] = {"BLOCK_M": 128, "BLOCK_N": 128, "GROUP_M": 8}
else:
    TILE = {}
    KEY = ["M", "N", "K"]
    persistent_block_scaled_kernel = autotune(CONFIGS, KEY, short_list)(persistent_block_scaled_kernel)


@kept
def block_scaled_matmul(
    a: Float[Tensor, "M K"],
    scale_a: Float[Tensor, "M G_K"],
    b: Float[Tensor, "N K"],
    scale_b: Float[Tensor, "G_N G_K"],
) -> Float[Tensor, "M N"]:
    """c[i, j] = sum over groups g of scale_a[i, g] scale_b[j // 128, g] (sum over k in g of a[i, k] b[j, k]).

    Shapes: a (M, K), b (N, K), scale_a (M, K / 128), scale_b (N / 128, K / 128), rounded up; K = 0 included. The output
    is contiguous.
    Strides: any. A matrix is copied for TMA unless it is contiguous along K with rows at multiples of 16 bytes; the
    copy takes its size in memory.
    Dtypes: as the plain kernel.
    Tail: TMA reads zeros beyond the edges; stores are masked.
    Errors: ValueError for other shapes, dtypes or devices; NotImplementedError for a GPU without TMA, and for M above
    2^28, N above 2^26 or K above 2^30.
    Source: the persistent matrix multiplication of Triton's tutorials; scales as in the plain kernel.
    """
    M, N, K = check_block_scaled_matmul(a, scale_a, b, scale_b)
    check_sizes("block_scaled_matmul", M, N, K)
    if a.is_cuda and not INTERPRET and torch.cuda.get_device_capability(a.device)[0] < 9:
        raise NotImplementedError("block_scaled_matmul: TMA needs compute capability 9.0")
    if K == 0:
        return torch.zeros((M, N), dtype=torch.bfloat16, device=a.device)
    out = empty_output((M, N), torch.bfloat16, a.device)
    if M > 0 and N > 0:
        constants: dict[str, Any] = {"GROUP": GROUP, **TILE}
        processors = 2 if INTERPRET else multiprocessors(a)

        def grid(tile: dict[str, int]) -> tuple[int]:
            return persistent_grid(triton.cdiv(M, tile["BLOCK_M"]) * triton.cdiv(N, tile["BLOCK_N"]), processors)

        with device_of(a):
            descriptors = [_descriptor(a), _descriptor(b)]
            if INTERPRET:
                set_blocks({"a_desc": descriptors[0], "b_desc": descriptors[1], **constants})
            launch(
                persistent_block_scaled_kernel, grid,
                *descriptors, scale_a, scale_b, out, M, N, K, *scale_a.stride(), *scale_b.stride(), **constants,
            )  # fmt: skip
    return finished_output(out, torch.bfloat16)


def config(a: Tensor, scale_a: Tensor, b: Tensor, scale_b: Tensor) -> str:
    """The kernel that `block_scaled_matmul` runs, and the matrices that it copies: `persistent (a and b copied)`."""
    if a.numel() * b.numel() == 0:
        return ""
    names = " and ".join(name for name, x in (("a", a), ("b", b)) if _pitch(x) is None)
    return f"persistent ({names} copied)" if names else "persistent"


def _pitch(x: Tensor) -> int | None:
    """The distance of rows of x that TMA can read along K; None if it cannot."""
    found = find_tma(x, x.element_size())
    return found.pitch if found is not None and found.row_major else None


def _descriptor(x: Tensor) -> TensorDescriptor:
    """A TMA descriptor of x or of a copy, whose block shape `set_blocks` sets."""
    matrix, pitch = x, _pitch(x)
    if pitch is None:
        pitch = triton.cdiv(x.shape[1], 16) * 16
        matrix = torch.empty((x.shape[0], pitch), dtype=x.dtype, device=x.device)
        copy_matrix(x, matrix)
    return TensorDescriptor(matrix, list(x.shape), [pitch, 1], [1, 16])
