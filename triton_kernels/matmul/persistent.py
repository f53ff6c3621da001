"""Matrix multiplication in Triton, persistent: TMA loads, and one pipeline for all tiles of a program.

Adds to `pipelined` TMA, which copies whole blocks without registers or address arithmetic. A program loads its next
tile while it finishes the current one.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from triton_kernels._common.tiles import tile_offsets
from triton_kernels._common.tma import TmaMatrix, both_tma_matrices, find_tma, tma_matrix, tma_output
from triton_kernels._runtime.arguments import check_tensor_cores
from triton_kernels._runtime.autotuner import autotune
from triton_kernels._runtime.contract import check_matmul
from triton_kernels._runtime.interpreter import INTERPRET, dot_operand, empty_output, finished_output
from triton_kernels._runtime.launch import column_major, device_of, kept, launch, persistent_grid
from triton_kernels.matmul._configs_persistent import CONFIGS, set_blocks, short_list, tuning_space  # noqa: F401


@triton.jit
def store_columns(c_desc, row, column, x, C_ROWS: tl.constexpr, PARTS: tl.constexpr):
    """Epilogue: stores x in PARTS blocks of columns, one after the other through the same shared memory."""
    if PARTS == 1:
        x = x.to(c_desc.dtype)
        if C_ROWS:
            c_desc.store([row, column], x)
        else:
            c_desc.store([column, row], x.T)
    else:
        left, right = x.reshape(x.shape[0], 2, x.shape[1] // 2).permute(0, 2, 1).split()
        store_columns(c_desc, row, column, left, C_ROWS, PARTS // 2)
        store_columns(c_desc, row, column + x.shape[1] // 2, right, C_ROWS, PARTS // 2)


@triton.jit(do_not_specialize=["M", "N", "K"])
def persistent_matmul_kernel(
    a_desc, b_desc, c_desc, M, N, K,
    PRECISION: tl.constexpr, DTYPE: tl.constexpr, A_ROWS: tl.constexpr, B_ROWS: tl.constexpr, C_ROWS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PARTS: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """A persistent program computes tiles program_id, program_id + num_programs, ... of C, [BLOCK_M, BLOCK_N] each.

    TMA copies blocks given by a descriptor and two coordinates, without registers or address arithmetic, and reads
    zeros beyond the edges. A_ROWS: the descriptor's rows are rows of A, otherwise columns; B_ROWS and C_ROWS likewise.
    The compiler flattens both loops into one: the first loads of a tile are in flight during the last products and
    the epilogue of the tile before.
    """
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    programs = tl.num_programs(0)
    stored = tl.program_id(0) - programs  # a separate counter saves registers between a tile's start and its end
    for tile in tl.range(tl.program_id(0), tiles, programs, flatten=True):
        off_m, off_n = tile_offsets(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            a = a_desc.load([off_m, k]) if A_ROWS else a_desc.load([k, off_m]).T
            b = b_desc.load([k, off_n]) if B_ROWS else b_desc.load([off_n, k]).T
            acc = tl.dot(dot_operand(a), dot_operand(b), acc, input_precision=PRECISION)
        stored += programs
        row, column = tile_offsets(stored, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        store_columns(c_desc, row, column, acc, C_ROWS, PARTS)


if INTERPRET:  # without autotuning: one tile that numpy multiplies fast
    TILE: dict[str, int] = {"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 256, "PARTS": 2, "GROUP_M": 8}
else:
    TILE = {}
    KEY = ["M", "N", "K", "PRECISION", "DTYPE", "A_ROWS", "B_ROWS", "C_ROWS"]
    persistent_matmul_kernel = autotune(CONFIGS, KEY, short_list)(persistent_matmul_kernel)


@kept
def matmul(a: Float[Tensor, "M K"], b: Float[Tensor, "K N"], *, precision: str = "ieee") -> Float[Tensor, "M N"]:
    """C = A @ B.

    Shapes: a (M, K), b (K, N), K = 0 included. The output is contiguous.
    Strides: any. A matrix, including the output, is copied for TMA if neither its rows nor its columns start at
    multiples of 16 bytes; the copy takes its size in memory.
    Dtypes: float16, bfloat16, and float32 with precision="tf32"; sums in float32, rounded once at the end. For tf32 the
    tensor cores truncate float32 to 11 significant bits and need A row-major and B column-major; other layouts are
    first copied.
    Tail: TMA reads zeros beyond the edges and does not write there.
    Errors: ValueError for other shapes, dtypes, devices or precisions; NotImplementedError for float32 with
    precision="ieee", for M or N above 2^27 or K above 2^30, and for a GPU without TMA.
    Source: the persistent matrix multiplication of Triton's tutorials.
    """
    check_matmul(a, b, precision=precision)
    (M, K), N = a.shape, b.shape[1]
    check_tensor_cores(a, M, N, precision)
    if a.is_cuda and torch.cuda.get_device_capability(a.device)[0] < 9:
        raise NotImplementedError("matmul: TMA needs compute capability 9.0")
    if K == 0:
        return torch.zeros((M, N), dtype=a.dtype, device=a.device)
    out = empty_output((M, N), a.dtype, a.device)
    if M > 0 and N > 0:
        with device_of(a):
            _launch(a, b, out, precision)
    return finished_output(out, a.dtype)


def config(a: Tensor, b: Tensor, *, precision: str = "ieee") -> str:
    """The kernel that `matmul` runs, and the matrices that it copies for TMA: `persistent (a and out copied)`."""
    size, N = a.element_size(), b.shape[1]
    if a.numel() * b.numel() == 0:
        return ""
    left, right = find_tma(a, size), find_tma(b, size)
    copied = {
        "a": left is None or (precision == "tf32" and not left.row_major),
        "b": right is None or (precision == "tf32" and right.row_major),
        "out": N * size % 16 != 0 and not (N == 1 and a.shape[0] * size % 16 == 0),
    }
    names = " and ".join(name for name, is_copied in copied.items() if is_copied)
    return f"persistent ({names} copied)" if names else "persistent"


def _launch(a: Tensor, b: Tensor, out: Tensor, precision: str) -> None:
    (M, K), N, element = a.shape, b.shape[1], a.element_size()
    left, right = both_tma_matrices(a, b)
    if precision == "tf32":
        # wgmma reads 32-bit operands from shared memory only with K contiguous. The left one could come from
        # registers, but in a flattened loop ptxas then serializes the products.
        left = left if left.row_major else tma_matrix(column_major(a.t()).t(), element)
        right = tma_matrix(column_major(b), element) if right.row_major else right
    with tma_output(out, element) as target:
        constants: dict[str, Any] = {"PRECISION": precision, "DTYPE": str(a.dtype)}
        constants |= {"A_ROWS": left.row_major, "B_ROWS": right.row_major, "C_ROWS": target.row_major, **TILE}
        descriptors = [_descriptor(each) for each in (left, right, target)]
        if INTERPRET:
            processors = 2
            set_blocks({**dict(zip(("a_desc", "b_desc", "c_desc"), descriptors, strict=True)), **constants})
        else:
            processors = torch.cuda.get_device_properties(a.device).multi_processor_count

        def grid(tile: dict[str, int]) -> tuple[int]:
            return persistent_grid(triton.cdiv(M, tile["BLOCK_M"]) * triton.cdiv(N, tile["BLOCK_N"]), processors)

        launch(persistent_matmul_kernel, grid, *descriptors, M, N, K, **constants)


def _descriptor(x: TmaMatrix) -> TensorDescriptor:
    """A TMA descriptor of x. `set_blocks` sets its block shape."""
    return TensorDescriptor(x.matrix, list(x.matrix.shape), [x.pitch, 1], [1, 16])
