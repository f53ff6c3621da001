"""Gradients of each expert's weights in Triton, persistent: programs compute tile after tile.

Adds to the plain kernel loads by TMA, and an order of tiles in which programs share operands in the L2 cache. The last
rows of an expert are loaded with a mask, not by TMA.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int32
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from triton_kernels._common.tiles import grouped_tile_any
from triton_kernels._common.tma import find_tma
from triton_kernels._runtime.autotuner import autotune
from triton_kernels._runtime.configs import multiprocessors
from triton_kernels._runtime.experts import check_grouped_matmul_grad
from triton_kernels._runtime.interpreter import INTERPRET, dot_operand, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch, persistent_grid
from triton_kernels.grouped_matmul import experts_of
from triton_kernels.grouped_matmul_grad._configs_persistent import (  # noqa: F401
    CONFIGS,
    set_blocks,
    short_list,
    tuning_space,
)


@triton.jit
def persistent_grouped_matmul_grad_kernel(
    x_desc, dy_desc, x_ptr, dy_ptr, sizes_ptr, dw_ptr, T, E, K, N, stride_x, stride_dy, stride_s,
    EXPERTS: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_T: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """A persistent program computes tiles program_id, program_id + num_programs, ..., [BLOCK_K, BLOCK_N] each.

    TMA loads whole steps of BLOCK_T rows. Some rows of the last step belong to the next expert. Both operands are
    masked there, since 0 times NaN is NaN.
    """
    experts = tl.arange(0, EXPERTS)
    sizes = tl.load(sizes_ptr + experts.to(tl.int64) * stride_s, mask=experts < E, other=0)
    tiles_k, tiles_n = tl.cdiv(K, BLOCK_K), tl.cdiv(N, BLOCK_N)
    for tile in range(tl.program_id(0), E * tiles_k * tiles_n, tl.num_programs(0)):
        expert = tile // (tiles_k * tiles_n)
        pid_k, pid_n = grouped_tile_any(tile % (tiles_k * tiles_n), tiles_k, tiles_n, GROUP_M)
        start = tl.sum(tl.where(experts < expert, sizes, 0), 0)
        end = tl.minimum(start + tl.sum(tl.where(experts == expert, sizes, 0), 0), T)
        whole = start + (end - start) // BLOCK_T * BLOCK_T
        acc = tl.zeros((BLOCK_K, BLOCK_N), dtype=tl.float32)
        for t in range(start, whole, BLOCK_T):
            x = x_desc.load([t, pid_k * BLOCK_K])
            dy = dy_desc.load([t, pid_n * BLOCK_N])
            acc = tl.dot(dot_operand(x).T, dot_operand(dy), acc)
        offs_k = pid_k * BLOCK_K + tl.arange(0, BLOCK_K)[:, None]  # [BLOCK_K, 1]
        offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]  # [1, BLOCK_N]
        if whole < end:
            offs_t = (whole + tl.arange(0, BLOCK_T)).to(tl.int64)
            inside = offs_t < end
            x = tl.load(x_ptr + offs_t[None, :] * stride_x + offs_k, mask=inside[None, :] & (offs_k < K), other=0.0)
            dy = tl.load(dy_ptr + offs_t[:, None] * stride_dy + offs_n, mask=inside[:, None] & (offs_n < N), other=0.0)
            acc = tl.dot(dot_operand(x), dot_operand(dy), acc)
        dw_ptrs = dw_ptr + (expert.to(tl.int64) * K + offs_k) * N + offs_n
        tl.store(dw_ptrs, acc.to(dw_ptr.dtype.element_ty), mask=(offs_k < K) & (offs_n < N))


if INTERPRET:  # without autotuning: one tile that numpy multiplies fast
    TILE: dict[str, int] = {"BLOCK_K": 128, "BLOCK_N": 128, "BLOCK_T": 64, "GROUP_M": 4}
else:
    TILE = {}
    KEY = ["T", "E", "K", "N"]
    persistent_grouped_matmul_grad_kernel = autotune(CONFIGS, KEY, short_list)(persistent_grouped_matmul_grad_kernel)


@kept
def grouped_matmul_grad(
    x: Float[Tensor, "T K"], dy: Float[Tensor, "T N"], sizes: Int32[Tensor, "E"]
) -> Float[Tensor, "E K N"]:
    """dw[e, k, n] = sum over the sizes[e] rows t of expert e of x[t, k] dy[t, n]; zeros for an expert without rows.

    The rows are in the order of the experts; sizes are not negative, and their sum is T. The host does not read them.

    Shapes: x (T, K), dy (T, N), sizes (E,); the output is contiguous.
    Strides: TMA copies the tiles. Rows of x and dy must be contiguous, begin at multiples of 8 elements, and the first
    at a multiple of 16 bytes. Sizes may have any stride.
    Dtypes: float16, bfloat16; sums in float32, rounded once at the end; sizes int32.
    Tail: TMA reads zeros beyond K and N; rows of the next expert are not read in the last step.
    Errors: ValueError for other shapes, dtypes or devices; NotImplementedError for float32, other strides, sizes
    above 2^26, more than 2^30 tiles, and for a GPU without TMA.
    Source: the persistent matrix multiplication of Triton's tutorials.
    """
    T, E, K, N = check_grouped_matmul_grad(x, dy, sizes)
    if x.dtype == torch.float32:
        raise NotImplementedError("grouped_matmul_grad: tensor cores multiply float16 and bfloat16; got torch.float32")
    if max(T, E, K, N) > 2**26 or E * triton.cdiv(K, 64) * triton.cdiv(N, 64) > 2**30:
        raise NotImplementedError(f"grouped_matmul_grad: sizes must be at most 2^26, tiles 2^30; got {(T, E, K, N)}")
    if x.is_cuda and torch.cuda.get_device_capability(x.device)[0] < 9:
        raise NotImplementedError("grouped_matmul_grad: TMA needs compute capability 9.0")
    if T * E * K * N == 0:
        return x.new_zeros(E, K, N)
    x_desc, dy_desc = _descriptor("x", x), _descriptor("dy", dy)
    out = empty_output((E, K, N), x.dtype, x.device)
    constants: dict[str, Any] = {"EXPERTS": experts_of(E), **TILE}
    if INTERPRET:
        set_blocks({"x_desc": x_desc, "dy_desc": dy_desc, **constants})
        processors = 2
    else:
        processors = multiprocessors(x)

    def grid(tile: dict[str, int]) -> tuple[int]:
        return persistent_grid(E * triton.cdiv(K, tile["BLOCK_K"]) * triton.cdiv(N, tile["BLOCK_N"]), processors)

    with device_of(x):
        launch(
            persistent_grouped_matmul_grad_kernel, grid,
            x_desc, dy_desc, x, dy, sizes, out, T, E, K, N, x.stride(0), dy.stride(0), sizes.stride(0), **constants,
        )  # fmt: skip
    return finished_output(out, x.dtype)


def _descriptor(name: str, x: Tensor) -> TensorDescriptor:
    """The TMA descriptor of x. `set_blocks` sets its block shape."""
    found = find_tma(x, x.element_size())
    if found is None or not found.row_major:
        raise NotImplementedError(
            f"grouped_matmul_grad: TMA needs rows of {name} contiguous, at multiples of 16 bytes; "
            f"got strides {x.stride()}"
        )
    return TensorDescriptor(x, list(x.shape), [found.pitch, 1], [1, 16])
