"""Matrix multiplication in Triton with TMA: one program a multiprocessor, and one pipeline through all of its tiles."""

import itertools
from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

INTERPRET = tl.constexpr(triton.knobs.runtime.interpret)  # TRITON_INTERPRET=1 when this module was imported
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
OUT_DTYPE = torch.float32 if INTERPRET else None  # the interpreter truncates to bfloat16: it leaves rounding to torch


@triton.jit
def transpose_kernel(x_ptr, y_ptr, R, C, stride_r, stride_c, stride_y, BLOCK: tl.constexpr):
    """y = x^T: x [R, C], y [C, R] with rows stride_y apart. One program, one block."""
    tiles_c = tl.cdiv(C, BLOCK)
    r = tl.program_id(0) // tiles_c * BLOCK + tl.arange(0, BLOCK)
    c = tl.program_id(0) % tiles_c * BLOCK + tl.arange(0, BLOCK)
    inside = (r[:, None] < R) & (c[None, :] < C)
    x = tl.load(x_ptr + r[:, None].to(tl.int64) * stride_r + c[None, :].to(tl.int64) * stride_c, mask=inside)
    tl.store(y_ptr + c[None, :].to(tl.int64) * stride_y + r[:, None], x, mask=inside)


@triton.jit
def quotient(x, y):
    """x // y, if it is 0 to 2^21: the first loads would wait more than a hundred cycles for an integer division."""
    q = (x / y).to(tl.int32)  # rounded in float32, so it may be one off
    rest = x - q * y
    return q + (rest >= y).to(tl.int32) - (rest < 0).to(tl.int32)


@triton.jit
def tile_offsets(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Tiles in bands of GROUP_M tile rows, column by column: a wave of programs shares most of what it reads."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    band = quotient(tile, GROUP_M * tiles_n)
    band_rows = min(tiles_m - band * GROUP_M, GROUP_M)
    within = tile - band * GROUP_M * tiles_n
    column = quotient(within, band_rows)
    return (band * GROUP_M + within - column * band_rows) * BLOCK_M, column * BLOCK_N


@triton.jit
def store_columns(c_desc, row, column, x, C_ROWS: tl.constexpr, PARTS: tl.constexpr):
    """Store x in PARTS blocks of columns, one after the other through the same shared memory."""
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
def matmul_kernel(
    a_desc, b_desc, c_desc, M, N, K,
    PRECISION: tl.constexpr, DTYPE: tl.constexpr, A_ROWS: tl.constexpr, B_ROWS: tl.constexpr, C_ROWS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PARTS: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """A persistent program computes tiles of C, [BLOCK_M, BLOCK_N]: its program_id, then every num_programs-th.

    TMA copies blocks given by a descriptor and two coordinates, without a register or an address, and reads zeros
    beyond the edges. A_ROWS says that the descriptor's rows are rows of A, not columns; B_ROWS and C_ROWS likewise.
    Both loops are flattened into one, so that the first blocks of a tile are on their way while the last of the one
    before are multiplied and its result is stored.
    """
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    programs = tl.num_programs(0)
    done = tl.program_id(0) - programs  # counts on its own, so that the end of a tile needs nothing from its beginning
    for tile in tl.range(tl.program_id(0), tiles, programs, flatten=True):
        off_m, off_n = tile_offsets(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            a = a_desc.load([off_m, k]) if A_ROWS else a_desc.load([k, off_m]).T
            b = b_desc.load([k, off_n]) if B_ROWS else b_desc.load([off_n, k]).T
            if INTERPRET:  # its dot is wrong for bfloat16
                a = a.to(tl.float32)
                b = b.to(tl.float32)
            acc = tl.dot(a, b, acc, input_precision=PRECISION)
        done += programs
        row, column = tile_offsets(done, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        store_columns(c_desc, row, column, acc, C_ROWS, PARTS)


def _set_blocks(args: dict[str, Any]) -> None:
    """Before each launch: the descriptors' blocks are those of the configuration."""
    block_m, block_n, block_k = args["BLOCK_M"], args["BLOCK_N"], args["BLOCK_K"]
    part_n = block_n // args["PARTS"]
    args["a_desc"].block_shape = [block_m, block_k] if args["A_ROWS"] else [block_k, block_m]
    args["b_desc"].block_shape = [block_k, block_n] if args["B_ROWS"] else [block_n, block_k]
    args["c_desc"].block_shape = [block_m, part_n] if args["C_ROWS"] else [part_n, block_m]


def _config(
    BLOCK_M: int, BLOCK_N: int, BLOCK_K: int, PARTS: int, GROUP_M: int, num_warps: int, num_stages: int
) -> triton.Config:
    tile = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N, "BLOCK_K": BLOCK_K, "PARTS": PARTS, "GROUP_M": GROUP_M}
    return triton.Config(tile, num_warps=num_warps, num_stages=num_stages, pre_hook=_set_blocks)


# Two warpgroups share 128 x 256; the rest is for matrices with too few such tiles for the multiprocessors.
HALF_CONFIGS = [
    _config(128, 256, 64, 2, 16, 8, 3),
    _config(128, 256, 64, 4, 16, 8, 4),
    _config(128, 256, 64, 2, 8, 8, 3),
    _config(128, 128, 64, 1, 8, 8, 4),
    _config(128, 128, 64, 1, 8, 4, 4),
    _config(128, 64, 64, 1, 8, 4, 6),
    _config(64, 128, 64, 1, 16, 4, 6),
    _config(64, 64, 64, 1, 16, 4, 8),
]
TF32_CONFIGS = [
    _config(128, 256, 32, 4, 16, 8, 3),
    _config(128, 256, 32, 4, 16, 8, 4),
    _config(128, 128, 32, 2, 8, 8, 4),
    _config(128, 128, 32, 2, 8, 4, 4),
    _config(64, 128, 32, 1, 16, 4, 8),
    _config(64, 64, 32, 1, 16, 4, 6),
]


def _candidates(configs: list[triton.Config], args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The configurations of the type, as far as their tiles suit C."""
    return _suiting(TF32_CONFIGS if constants["PRECISION"] == "tf32" else HALF_CONFIGS, args)


def tuning_space(args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """What a search that may take minutes tries beyond the candidates: one or two warpgroups, 64 or 128 accumulators a
    thread (fewer if one has no more), and as many stages as fit beside the parts of C."""
    base = args["a_desc"].base
    element = base.element_size()
    shared = torch.cuda.get_device_properties(base.device).shared_memory_per_multiprocessor - 1024
    found = []
    tiles = itertools.product((64, 128, 256), (64, 128, 256), (4, 8))
    for (BLOCK_M, BLOCK_N, warps), PARTS, GROUP_M in itertools.product(tiles, (1, 2, 4), (8, 16)):
        accumulators = BLOCK_M * BLOCK_N // (32 * warps)
        useful = warps == 4 or (accumulators >= 64 and 16 * warps <= BLOCK_M)
        stages = min(8, (shared - BLOCK_M * BLOCK_N // PARTS * element) // ((BLOCK_M + BLOCK_N) * 128))
        if useful and accumulators <= 128 and BLOCK_N // PARTS in (64, 128) and stages >= 2:
            found.append(_config(BLOCK_M, BLOCK_N, 128 // element, PARTS, GROUP_M, warps, stages))
    return _suiting(found, args)


def _suiting(configs: list[triton.Config], args: dict[str, Any]) -> list[triton.Config]:
    """The configurations less those with too few tiles for the multiprocessors, or far too many."""
    M, N = args["M"], args["N"]
    tiles = {c: triton.cdiv(M, c.kwargs["BLOCK_M"]) * triton.cdiv(N, c.kwargs["BLOCK_N"]) for c in configs}
    multiprocessors = torch.cuda.get_device_properties(args["a_desc"].base.device).multi_processor_count
    enough = min(max(tiles.values()), multiprocessors // 3)
    configs = [config for config in configs if tiles[config] >= enough]
    fewest = min(tiles[config] for config in configs)
    return [config for config in configs if tiles[config] <= max(4 * fewest, multiprocessors)]


if INTERPRET:  # no device to time configurations on: one tile that numpy multiplies fast
    TILE: dict[str, int] = {"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 256, "PARTS": 2, "GROUP_M": 8}
else:
    TILE = {}
    matmul_kernel = triton.autotune(
        configs=HALF_CONFIGS + TF32_CONFIGS,
        key=["M", "N", "K", "PRECISION", "DTYPE", "A_ROWS", "B_ROWS", "C_ROWS"],
        prune_configs_by={"early_config_prune": _candidates},
    )(matmul_kernel)


def _stored(name: str, x: Tensor, element: int) -> tuple[TensorDescriptor, bool]:
    """What TMA reads or writes x through, and whether the descriptor's rows are those of x, not its columns."""
    for rows, matrix in ((True, x), (False, x.t())):
        pitch = matrix.stride(0) if matrix.shape[0] > 1 else triton.cdiv(matrix.shape[1], 16) * 16
        contiguous = matrix.stride(1) == 1 or matrix.shape[1] == 1
        if contiguous and pitch >= matrix.shape[1] and pitch * element % 16 == 0 and matrix.data_ptr() % 16 == 0:
            return TensorDescriptor(matrix, list(matrix.shape), [pitch, 1], [1, 16]), rows
    raise NotImplementedError(
        f"matmul: TMA needs {name}'s rows or columns contiguous, apart, and each at a multiple of 16 bytes; "
        f"got strides {x.stride()} of {element} bytes and a first element {x.data_ptr() % 16} bytes beyond one"
    )


def _by_columns(x: Tensor) -> Tensor:
    """x, float32, with contiguous columns that start at multiples of 16 bytes."""
    R, C = x.shape
    y = torch.empty((C, triton.cdiv(R, 4) * 4), dtype=x.dtype, device=x.device)[:, :R]
    blocks = triton.cdiv(R, 64) * triton.cdiv(C, 64)
    transpose_kernel[(blocks,)](x, y, R, C, *x.stride(), y.stride(0), BLOCK=64, num_warps=4)
    return y.t()


def matmul(a: Float[Tensor, "M K"], b: Float[Tensor, "K N"], *, precision: str = "ieee") -> Float[Tensor, "M N"]:
    """C = A @ B.

    Shapes: a (M, K), b (K, N), K = 0 included; rows or columns contiguous. The output is contiguous.
    Dtypes: float16, bfloat16, and float32 with precision="tf32"; sums in float32, rounded once at the end. The tensor
    cores truncate float32 to tf32 (11 significant bits), and want A by rows and B by columns; what is stored otherwise
    is transposed into memory of its own first.
    Tail: TMA reads zeros beyond the edges and does not write there.
    Errors: ValueError for other shapes, dtypes, devices or precisions; NotImplementedError for float32 with
    precision="ieee", for addresses that TMA cannot take (every row of A, B and C starts at a multiple of 16 bytes),
    for M or N above 2^27, and for a GPU without TMA.
    Source: the persistent matrix multiplication of Triton's tutorials.
    """
    if a.ndim != 2:
        raise ValueError(f"matmul: a must be (M, K); got {tuple(a.shape)}")
    M, K = a.shape
    if b.ndim != 2 or b.shape[0] != K:
        raise ValueError(f"matmul: a is (M, K)={(M, K)}, so b must be ({K}, N); got {tuple(b.shape)}")
    N = b.shape[1]
    if a.dtype not in DTYPES:
        raise ValueError(f"matmul: a must be float32, float16 or bfloat16; got {a.dtype}")
    if b.dtype != a.dtype:
        raise ValueError(f"matmul: a is {a.dtype}, so b must be too; got {b.dtype}")
    if precision != "ieee" and (precision != "tf32" or a.dtype != torch.float32):
        raise ValueError(f'matmul: precision must be "ieee", or "tf32" for float32; got "{precision}" for {a.dtype}')
    if b.device != a.device:
        raise ValueError(f"matmul: a is on {a.device}, so b must be too; got {b.device}")
    if not (a.is_cuda or INTERPRET):
        raise ValueError(
            f"matmul: a is on {a.device}; pass CUDA tensors, or set TRITON_INTERPRET=1 before importing this module"
        )
    if a.dtype == torch.float32 and precision == "ieee":
        raise NotImplementedError('matmul: float32 with precision="ieee" has no use for the tensor cores')
    if a.is_cuda and torch.cuda.get_device_capability(a.device)[0] < 9:
        raise NotImplementedError("matmul: TMA needs compute capability 9.0")
    if max(M, N) > 2**27:  # as far as `quotient` goes with the smallest tiles
        raise NotImplementedError(f"matmul: M and N must be at most 2^27; got {M} and {N}")
    if a.is_cuda and a.device.index != torch.cuda.current_device():
        with torch.cuda.device(a.device):
            return matmul(a, b, precision=precision)

    if K == 0:
        return torch.zeros((M, N), dtype=a.dtype, device=a.device)
    out = torch.empty((M, N), dtype=OUT_DTYPE or a.dtype, device=a.device)
    if M > 0 and N > 0:
        element = a.element_size()
        if precision == "tf32":
            # Hopper's tensor cores read 32-bit numbers from shared memory only with K contiguous. The left operand may
            # come from registers, but then ptxas lets no two products overlap in a flattened loop.
            a = a if _stored("a", a, element)[1] else _by_columns(a.t()).t()
            b = _by_columns(b) if _stored("b", b, element)[1] else b
        a_desc, a_rows = _stored("a", a, element)
        b_desc, b_rows = _stored("b", b, element)
        c_desc, c_rows = _stored("out", out, element)
        arguments = {"PRECISION": precision, "DTYPE": str(a.dtype)}
        arguments |= {"A_ROWS": a_rows, "B_ROWS": b_rows, "C_ROWS": c_rows}
        if INTERPRET:
            multiprocessors = 2
            _set_blocks({"a_desc": a_desc, "b_desc": b_desc, "c_desc": c_desc, **arguments, **TILE})
        else:
            multiprocessors = torch.cuda.get_device_properties(a.device).multi_processor_count

        def programs(tile: dict[str, int]) -> tuple[int]:
            """As few as need no more rounds than all would: the device's power is better spent on them."""
            tiles = triton.cdiv(M, tile["BLOCK_M"]) * triton.cdiv(N, tile["BLOCK_N"])
            return (triton.cdiv(tiles, triton.cdiv(tiles, multiprocessors)),)

        matmul_kernel[programs](a_desc, b_desc, c_desc, M, N, K, **arguments, **TILE)
    return out.to(a.dtype) if INTERPRET else out
