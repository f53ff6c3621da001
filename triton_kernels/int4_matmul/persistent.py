"""Product with weights of 4 bits in Triton, persistent: TMA loads, and weights that stay in registers.

Adds to the plain kernel TMA, programs that compute tile after tile, and the transposed product: tensor cores take the
weights, its left factor, from registers. Weights are rounded after scaling, so that all products of a tile are one
chain of sums.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float, UInt8
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from triton_kernels._common.padding import copy_matrix
from triton_kernels._common.pipelining import awaited
from triton_kernels._common.tiles import tile_offsets
from triton_kernels._common.tma import find_tma
from triton_kernels._runtime.arguments import check_sizes
from triton_kernels._runtime.autotuner import autotune
from triton_kernels._runtime.configs import multiprocessors, tile_counts, with_enough_tiles, without_small_tiles
from triton_kernels._runtime.interpreter import INTERPRET, dot_operand, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch, persistent_grid
from triton_kernels._runtime.products import GROUP, check_int4_matmul
from triton_kernels.int4_matmul import weights_of

DETERMINISTIC = True


@triton.jit(do_not_specialize=["M", "N", "K"])
def persistent_int4_kernel(
    x_desc, weight_desc, scale_ptr, zero_ptr, y_ptr, M, N, K, stride_sn, stride_sk, stride_zn, stride_zk,
    GROUP: tl.constexpr, GROUP_M: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A persistent program computes tiles program_id, program_id + num_programs, ... of Y, [BLOCK_M, BLOCK_N] each.

    TMA reads zeros beyond the edges. The tile is computed as its transpose. BLOCK_K divides GROUP.
    """
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0)):
        off_m, off_n = tile_offsets(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        columns = (off_n + tl.arange(0, BLOCK_N)).to(tl.int64)
        scale_ptrs = scale_ptr + columns * stride_sn
        if zero_ptr is not None:
            zero_ptrs = zero_ptr + columns * stride_zn
        acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            group = tl.full((), k // GROUP, tl.int64)
            x = x_desc.load([off_m, k])
            packed = weight_desc.load([off_n, k // 2])
            scale = tl.load(scale_ptrs + group * stride_sk, mask=columns < N, other=0.0)
            if zero_ptr is None:
                zero = tl.full((BLOCK_N,), 8, tl.int16)
            else:
                zero = tl.load(zero_ptrs + group * stride_zk, mask=columns < N, other=0).to(tl.int16)
            weights = dot_operand(weights_of(packed, zero, x.dtype)) * dot_operand(scale)[:, None]
            acc = awaited(tl.dot(weights, dot_operand(x).T, acc))
        rows = (off_m + tl.arange(0, BLOCK_M)).to(tl.int64)
        mask = (rows[:, None] < M) & (columns[None, :] < N)
        tl.store(y_ptr + rows[:, None] * N + columns[None, :], acc.T, mask=mask)


def set_blocks(args: dict[str, Any]) -> None:
    """Before each launch: gives the descriptors the block shapes of the configuration."""
    args["x_desc"].block_shape = [args["BLOCK_M"], args["BLOCK_K"]]
    args["weight_desc"].block_shape = [args["BLOCK_N"], args["BLOCK_K"] // 2]


def _config(BLOCK_M: int, BLOCK_N: int, BLOCK_K: int, num_warps: int, num_stages: int) -> triton.Config:
    tile = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N, "BLOCK_K": BLOCK_K, "GROUP_M": 8}
    return triton.Config(tile, num_warps=num_warps, num_stages=num_stages, pre_hook=set_blocks)


# Many rows of x for each weight: a weight is made once for a tile.
CONFIGS = [
    _config(256, 128, 64, 8, 4),
    _config(128, 128, 64, 8, 6),
    _config(64, 128, 128, 8, 4),
    _config(64, 64, 128, 4, 4),
    _config(16, 64, 128, 4, 6),
]


def short_list(configs: list[triton.Config], args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The configurations that the autotuner times: those whose tiles suit Y."""
    processors = multiprocessors(args["x_desc"].base)
    return without_small_tiles(with_enough_tiles(tile_counts(configs, args["M"], args["N"]), processors), processors)


def tuning_space(args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The configurations that a search of several minutes times: all tiles with 2 to 7 stages."""
    tiles = ((256, 128, 64, 8), (128, 128, 64, 8), (128, 64, 64, 4), (64, 128, 128, 8), (64, 64, 128, 4))
    tiles += ((16, 64, 128, 4), (16, 32, 128, 4))
    sizes = (
        (m, n, k, warps, stages)
        for m, n, k, warps in tiles
        for stages in range(2, 8)
        if stages * (4 * m + n) * k <= 400_000
    )
    return [_config(*each) for each in sizes]


if INTERPRET:  # without autotuning: one tile
    TILE: dict[str, int] = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 128, "GROUP_M": 8}
else:
    TILE = {}
    KEY = ["M", "N", "K"]
    persistent_int4_kernel = autotune(CONFIGS, KEY, short_list)(persistent_int4_kernel)


@kept
def int4_matmul(
    x: Float[Tensor, "M K"],
    weight: UInt8[Tensor, "N K_2"],
    scale: Float[Tensor, "N G_K"],
    zero: UInt8[Tensor, "N G_K"] | None = None,
) -> Float[Tensor, "M N"]:
    """y[m, n] = sum over k of x[m, k] w[n, k], with w[n, k] = scale[n, k // 128] (code[n, k] - zero[n, k // 128]).

    Shapes: as the plain kernel.
    Strides: any. x and weight are copied for TMA unless they are contiguous along K with rows at multiples of 16 bytes;
    a copy takes its size in memory.
    Dtypes: float16 and bfloat16, weight and zero uint8. Weights are rounded once to x's type, and must be finite there;
    sums are float32, rounded once.
    Tail: TMA reads zeros beyond the edges; stores are masked.
    Errors: ValueError for other shapes, dtypes or devices; NotImplementedError for a GPU without TMA, and for M above
    2^28, N above 2^26 or K above 2^30.
    Source: the persistent matrix multiplication of Triton's tutorials.
    """
    M, N, K = check_int4_matmul(x, weight, scale, zero)
    check_sizes("int4_matmul", M, N, K)
    if x.is_cuda and not INTERPRET and torch.cuda.get_device_capability(x.device)[0] < 9:
        raise NotImplementedError("int4_matmul: TMA needs compute capability 9.0")
    if K == 0:
        return torch.zeros((M, N), dtype=x.dtype, device=x.device)
    out = empty_output((M, N), x.dtype, x.device)
    if M > 0 and N > 0:
        constants: dict[str, Any] = {"GROUP": GROUP, **TILE}
        processors = 2 if INTERPRET else multiprocessors(x)

        def grid(tile: dict[str, int]) -> tuple[int]:
            return persistent_grid(triton.cdiv(M, tile["BLOCK_M"]) * triton.cdiv(N, tile["BLOCK_N"]), processors)

        with device_of(x):
            descriptors = [_descriptor(x), _descriptor(weight)]
            if INTERPRET:
                set_blocks({"x_desc": descriptors[0], "weight_desc": descriptors[1], **constants})
            launch(
                persistent_int4_kernel, grid, *descriptors, scale, zero, out, M, N, K, *scale.stride(),
                *(scale if zero is None else zero).stride(), **constants,
            )  # fmt: skip
    return finished_output(out, x.dtype)


def config(x: Tensor, weight: Tensor, scale: Tensor, zero: Tensor | None = None) -> str:
    """The kernel that `int4_matmul` runs, and the matrices that it copies: `persistent (x and weight copied)`."""
    if x.numel() * weight.numel() == 0:
        return ""
    names = " and ".join(name for name, each in (("x", x), ("weight", weight)) if _pitch(each) is None)
    return f"persistent ({names} copied)" if names else "persistent"


def _pitch(x: Tensor) -> int | None:
    """The distance of rows of x that TMA can read along K; None if it cannot."""
    found = find_tma(x, x.element_size())
    return found.pitch if found is not None and found.row_major else None


def _descriptor(x: Tensor) -> TensorDescriptor:
    """A TMA descriptor of x or of a copy, whose block shape `set_blocks` sets."""
    matrix, pitch = x, _pitch(x)
    if pitch is None:
        align = 16 // x.element_size()
        pitch = triton.cdiv(x.shape[1], align) * align
        matrix = torch.empty((x.shape[0], pitch), dtype=x.dtype, device=x.device)
        copy_matrix(x, matrix)
    return TensorDescriptor(matrix, list(x.shape), [pitch, 1], [1, 16])
