"""Products of each expert's rows with its weights in Triton, persistent: programs compute tile after tile.

Adds loads by TMA to the plain kernel, and, within an expert, groups of tiles that share operands in the L2 cache.
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
from triton_kernels._runtime.experts import check_grouped_matmul
from triton_kernels._runtime.interpreter import INTERPRET, dot_operand, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels.grouped_matmul import check_sizes, experts_of
from triton_kernels.grouped_matmul._configs_persistent import CONFIGS, set_blocks, short_list, tuning_space  # noqa: F401


@triton.jit
def persistent_grouped_matmul_kernel(
    x_desc, w_desc, sizes_ptr, y_ptr, T, E, K, N, stride_s,
    W_ROWS: tl.constexpr, EXPERTS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """A persistent program computes tiles program_id, program_id + num_programs, ... of all experts.

    The running totals of tiles are computed once. The experts before a tile have totals of at most the tile's number.
    TMA reads zeros beyond K and N, also between experts: the weights have three dimensions. W_ROWS: they are stored by
    rows of N, otherwise by rows of K. Rows of the next expert in a tile are multiplied, and not stored.
    """
    experts = tl.arange(0, EXPERTS)
    sizes = tl.load(sizes_ptr + experts.to(tl.int64) * stride_s, mask=experts < E, other=0)
    tiles_n = tl.cdiv(N, BLOCK_N)
    tiles = tl.cdiv(sizes, BLOCK_M) * tiles_n
    through = tl.cumsum(tiles, 0)  # tiles of an expert and of those before it
    for tile in range(tl.program_id(0), tl.sum(tiles, 0), tl.num_programs(0)):
        before = through <= tile
        expert = tl.sum(before.to(tl.int32), 0)
        start = tl.sum(tl.where(before, sizes, 0), 0)
        size = tl.sum(tl.where(experts == expert, sizes, 0), 0)
        within = tile - tl.sum(tl.where(before, tiles, 0), 0)
        pid_m, pid_n = grouped_tile_any(within, tl.cdiv(size, BLOCK_M), tiles_n, GROUP_M)
        row, column = start + pid_m * BLOCK_M, pid_n * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            x = x_desc.load([row, k])
            if W_ROWS:
                w = w_desc.load([expert, k, column]).reshape(BLOCK_K, BLOCK_N)
            else:
                w = w_desc.load([expert, column, k]).reshape(BLOCK_N, BLOCK_K).T
            acc = tl.dot(dot_operand(x), dot_operand(w), acc)
        offs_m = row + tl.arange(0, BLOCK_M)[:, None]  # [BLOCK_M, 1]
        offs_n = column + tl.arange(0, BLOCK_N)[None, :]  # [1, BLOCK_N]
        inside = (offs_m < tl.minimum(start + size, T)) & (offs_n < N)
        tl.store(y_ptr + offs_m.to(tl.int64) * N + offs_n, acc.to(y_ptr.dtype.element_ty), mask=inside)


if INTERPRET:  # without autotuning: one tile that numpy multiplies fast
    TILE: dict[str, int] = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 128, "GROUP_M": 4}
else:
    TILE = {}
    KEY = ["T", "E", "K", "N", "W_ROWS"]
    persistent_grouped_matmul_kernel = autotune(CONFIGS, KEY, short_list)(persistent_grouped_matmul_kernel)


@kept
def grouped_matmul(
    x: Float[Tensor, "T K"], weight: Float[Tensor, "E K N"], sizes: Int32[Tensor, "E"]
) -> Float[Tensor, "T N"]:
    """y[t, n] = sum over k of x[t, k] weight[e, k, n], where row t is among the sizes[e] rows of expert e.

    The rows are in the order of the experts; sizes are not negative, and their sum is T. The host does not read them.

    Shapes: x (T, K), weight (E, K, N), sizes (E,), K = 0 included; the output is contiguous.
    Strides: TMA copies the tiles. x must be contiguous along K, weight along K or N; their other strides must be
    multiples of 8 elements, and the first elements at multiples of 16 bytes. Sizes may have any stride.
    Dtypes: float16, bfloat16; sums in float32, rounded once at the end; sizes int32.
    Tail: TMA reads zeros beyond K and N; rows of the next expert are not written.
    Errors: ValueError for other shapes, dtypes or devices; NotImplementedError for float32, for other strides, for
    sizes above 2^26, and for a GPU without TMA.
    Source: the persistent and the grouped matrix multiplication of Triton's tutorials.
    """
    T, E, K, N = check_grouped_matmul(x, weight, sizes)
    check_sizes("grouped_matmul", T, E, K, N)
    if x.dtype == torch.float32:
        raise NotImplementedError("grouped_matmul: tensor cores multiply float16 and bfloat16; got torch.float32")
    if x.is_cuda and torch.cuda.get_device_capability(x.device)[0] < 9:
        raise NotImplementedError("grouped_matmul: TMA needs compute capability 9.0")
    if T * K * N == 0:
        return x.new_zeros(T, N)
    x_desc, (w_desc, w_rows) = _x_descriptor(x), _weight_descriptor(weight)
    out = empty_output((T, N), x.dtype, x.device)
    constants: dict[str, Any] = {"W_ROWS": w_rows, "EXPERTS": experts_of(E), **TILE}
    if INTERPRET:
        set_blocks({"x_desc": x_desc, "w_desc": w_desc, **constants})
        processors = 2
    else:
        processors = multiprocessors(x)

    def grid(tile: dict[str, int]) -> tuple[int]:
        most = (T // tile["BLOCK_M"] + min(T, E)) * triton.cdiv(N, tile["BLOCK_N"])
        return (min(most, processors),)

    with device_of(x):
        launch(
            persistent_grouped_matmul_kernel, grid,
            x_desc, w_desc, sizes, out, T, E, K, N, sizes.stride(0), **constants,
        )  # fmt: skip
    return finished_output(out, x.dtype)


def _x_descriptor(x: Tensor) -> TensorDescriptor:
    """The TMA descriptor of x. `set_blocks` sets its block shape."""
    found = find_tma(x, x.element_size())
    if found is None or not found.row_major:
        raise _no_descriptor("x", "along K", x)
    return TensorDescriptor(x, list(x.shape), [found.pitch, 1], [1, 16])


def _weight_descriptor(weight: Tensor) -> tuple[TensorDescriptor, bool]:
    """The TMA descriptor of the weights, and whether they are stored by rows of N."""
    found, expert = find_tma(weight[0], weight.element_size()), weight.stride(0)
    if found is not None and weight.shape[0] == 1:
        expert = found.pitch * found.matrix.shape[0]  # a valid stride, without effect
    if found is None or expert <= 0 or expert * weight.element_size() % 16 != 0:
        raise _no_descriptor("weight", "along K or N", weight)
    stored = weight if found.row_major else weight.mT
    return TensorDescriptor(stored, list(stored.shape), [expert, found.pitch, 1], [1, 1, 16]), found.row_major


def _no_descriptor(name: str, contiguous: str, x: Tensor) -> NotImplementedError:
    return NotImplementedError(
        f"grouped_matmul: TMA needs {name} contiguous {contiguous}, the other strides multiples of 16 bytes, and the "
        f"first element at a multiple of 16 bytes; got strides {x.stride()}"
    )
