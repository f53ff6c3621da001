"""Matrix multiplication in Gluon for Hopper: one warp loads by TMA, warpgroups multiply by wgmma, tile after tile."""

import itertools
from typing import Any

import torch
import triton
from jaxtyping import Float
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

REQUIRES = "sm_90"

DTYPES_BEYOND = ("float8_e4m3fn",)
DTYPES = {
    torch.float32: gl.float32,
    torch.float16: gl.float16,
    torch.bfloat16: gl.bfloat16,
    torch.float8_e4m3fn: gl.float8e4nv,
}
ROWS = gl.constexpr(64)  # of a tile for each warpgroup that multiplies: what one wgmma computes
SWIZZLE = 128  # bytes: rows of this length, swizzled, serve wgmma and TMA without bank conflicts
tma_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared  # renamed after Triton 3.7
tma_store = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global


@gluon.jit
def quotient(x, y):
    """x // y, if it is 0 to 2^21: the first loads would wait more than a hundred cycles for an integer division."""
    q = (x / y).to(gl.int32)  # rounded in float32, so it may be one off
    rest = x - q * y
    return q + (rest >= y).to(gl.int32) - (rest < 0).to(gl.int32)


@gluon.jit
def tile_offsets(tile, M, N, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, GROUP_M: gl.constexpr):
    """Tiles in bands of GROUP_M tile rows, column by column: a wave of programs shares most of what it reads."""
    tiles_m = gl.cdiv(M, BLOCK_M)
    tiles_n = gl.cdiv(N, BLOCK_N)
    band = quotient(tile, GROUP_M * tiles_n)
    band_rows = min(tiles_m - band * GROUP_M, GROUP_M)
    within = tile - band * GROUP_M * tiles_n
    column = quotient(within, band_rows)
    return (band * GROUP_M + within - column * band_rows) * BLOCK_M, column * BLOCK_N


@gluon.jit
def fill(
    a_desc, b_desc, a_smem, b_smem, full, stage, row, off_n, off_k, pred,
    A_ROWS: gl.constexpr, B_ROWS: gl.constexpr, CONSUMERS: gl.constexpr,
):  # fmt: skip
    """One stage, from `row` of A, column off_n of B and off_k on."""
    mbarrier.expect(full.index(stage), CONSUMERS * a_desc.block_type.nbytes + b_desc.block_type.nbytes, pred=pred)
    for i in gl.static_range(CONSUMERS):
        off_m = row + i * ROWS
        a_tile = a_smem.index(stage * CONSUMERS + i)
        tma_load(a_desc, [off_m, off_k] if A_ROWS else [off_k, off_m], full.index(stage), a_tile, pred=pred)
    b_tile = b_smem.index(stage)
    tma_load(b_desc, [off_k, off_n] if B_ROWS else [off_n, off_k], full.index(stage), b_tile, pred=pred)


@gluon.jit
def load(
    a_desc, b_desc, a_smem, b_smem, full, empty, M, N, K,
    A_ROWS: gl.constexpr, B_ROWS: gl.constexpr, CONSUMERS: gl.constexpr,
    BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr, GROUP_M: gl.constexpr, AHEAD: gl.constexpr,
):  # fmt: skip
    """The producer warp keeps STAGES steps of K in flight; at the end of a tile it goes on with the next one. When it
    begins, AHEAD steps of the first tile are on their way.
    """
    BLOCK_M: gl.constexpr = ROWS * CONSUMERS
    step = 0
    for tile in range(gl.program_id(0), gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N), gl.num_programs(0)):
        off_m, off_n = tile_offsets(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        first = gl.program_id(0) == tile
        for off_k in range(0, K, BLOCK_K):
            if not (first & (off_k < AHEAD * BLOCK_K)):
                stage = step % STAGES
                mbarrier.wait(empty.index(stage), (step // STAGES & 1) ^ 1)
                fill(a_desc, b_desc, a_smem, b_smem, full, stage, off_m, off_n, off_k, True, A_ROWS, B_ROWS, CONSUMERS)
            step += 1


@gluon.jit
def columns(x, PARTS: gl.constexpr):
    """x cut into PARTS blocks of columns; every element stays in its register."""
    if PARTS == 1:
        return (x,)
    else:
        left, right = x.reshape([x.shape[0], 2, x.shape[1] // 2]).permute([0, 2, 1]).split()
        return columns(left, PARTS // 2) + columns(right, PARTS // 2)


@gluon.jit
def store(parts, c_desc, c_smem, row, off_n, consumer: gl.constexpr, CONSUMERS: gl.constexpr, C_ROWS: gl.constexpr):
    """A finished tile leaves in parts: converted, written to one of c_smem's buffers, and stored from there by TMA
    while the next part is written.
    """
    BUFFERS: gl.constexpr = c_smem.shape[0] // CONSUMERS
    PART_N: gl.constexpr = c_smem.shape[2] if C_ROWS else c_smem.shape[1]
    gl.static_assert(len(parts) % BUFFERS == 0)  # a tile begins with the buffer after the last tile's last one
    for i in gl.static_range(len(parts)):
        column = off_n + i * PART_N
        c = c_smem.index(consumer * BUFFERS + i % BUFFERS)
        tma.store_wait(BUFFERS - 1)  # until this buffer has been read
        if C_ROWS:
            c.store(parts[i].to(c_smem.dtype))
        else:
            c.permute([1, 0]).store(parts[i].to(c_smem.dtype))
        hopper.fence_async_shared()
        tma_store(c_desc, [row, column] if C_ROWS else [column, row], c)


@gluon.jit
def multiply(
    consumer: gl.constexpr, c_desc, scale_a_ptr, scale_b_ptr, a_smem, b_smem, c_smem, full, empty, M, N, K,
    A_ROWS: gl.constexpr, B_ROWS: gl.constexpr, C_ROWS: gl.constexpr, A_IN_REGISTERS: gl.constexpr,
    CONSUMERS: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr, GROUP_M: gl.constexpr,
):  # fmt: skip
    """A consumer warpgroup computes ROWS rows of each tile, [ROWS, BLOCK_N], in float32 registers.

    One wgmma is always in flight while this thread waits for the next operands: a stage is handed back to the producer
    a step late, when the wgmma that reads it is known to be over. With A in registers that slack is left to the other
    warpgroup: its wgmma runs while this one reads A, and no register is overwritten that a wgmma still reads.

    Only when its part of a tile is stored does this warpgroup turn to the next tile; the other, up to STAGES steps
    behind or ahead, has the tensor cores meanwhile.
    """
    BLOCK_M: gl.constexpr = ROWS * CONSUMERS
    PART_N: gl.constexpr = c_smem.shape[2] if C_ROWS else c_smem.shape[1]
    IN_FLIGHT: gl.constexpr = 0 if A_IN_REGISTERS else 1
    INSTRUCTION_K: gl.constexpr = 256 // a_smem.dtype.primitive_bitwidth
    ACC: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, INSTRUCTION_K])
    step = 0
    for tile in range(gl.program_id(0), gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N), gl.num_programs(0)):
        off_m, off_n = tile_offsets(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        acc = gl.zeros([ROWS, BLOCK_N], gl.float32, ACC)
        for off_k in range(0, K, BLOCK_K):
            stage = step % STAGES
            mbarrier.wait(full.index(stage), step // STAGES & 1)
            a = a_smem.index(stage * CONSUMERS + consumer)
            b = b_smem.index(stage)
            if not A_ROWS:
                a = a.permute([1, 0])
            if not B_ROWS:
                b = b.permute([1, 0])
            if A_IN_REGISTERS:
                a = a.load(gl.DotOperandLayout(0, ACC, k_width=1))
            acc = hopper.warpgroup_mma(a, b, acc, is_async=True)
            acc = hopper.warpgroup_mma_wait(IN_FLIGHT, deps=(acc,))
            mbarrier.arrive(empty.index((step + STAGES - IN_FLIGHT) % STAGES), pred=off_k >= IN_FLIGHT)
            step += 1
        if IN_FLIGHT == 1:
            acc = hopper.warpgroup_mma_wait(0, deps=(acc,))
            mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES))

        if scale_a_ptr is not None:
            acc *= gl.load(scale_a_ptr) * gl.load(scale_b_ptr)
        parts = columns(acc, BLOCK_N // PART_N)
        store(parts, c_desc, c_smem, off_m + consumer * ROWS, off_n, consumer, CONSUMERS, C_ROWS)
    tma.store_wait(0)


@gluon.jit
def multiply_promoted(
    consumer: gl.constexpr, c_desc, scale_a_ptr, scale_b_ptr, a_smem, b_smem, c_smem, full, empty, M, N, K,
    C_ROWS: gl.constexpr, CONSUMERS: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr,
    GROUP_M: gl.constexpr,
):  # fmt: skip
    """The same of float8, whose sums tensor cores keep to 14 bits only. So the 128 products of a step are summed from
    zero, for 128 columns at a time (more would not fit into registers), and these sums are added in float32, while the
    tensor cores work for the other warpgroup.
    """
    BLOCK_M: gl.constexpr = ROWS * CONSUMERS
    PIECE: gl.constexpr = BLOCK_N if BLOCK_N < 128 else 128
    PART_N: gl.constexpr = c_smem.shape[2] if C_ROWS else c_smem.shape[1]
    gl.static_assert(BLOCK_K == 128)
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, PIECE, 32])
    step = 0
    for tile in range(gl.program_id(0), gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N), gl.num_programs(0)):
        off_m, off_n = tile_offsets(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        zeros = gl.zeros([ROWS, PIECE], gl.float32, SUMS)
        left = zeros
        right = zeros
        for _ in range(0, K, BLOCK_K):
            stage = step % STAGES
            mbarrier.wait(full.index(stage), step // STAGES & 1)
            a = a_smem.index(stage * CONSUMERS + consumer)
            b = b_smem.index(stage)
            sums = hopper.warpgroup_mma(a, b.slice(0, PIECE).permute([1, 0]), zeros, use_acc=False, is_async=True)
            sums = hopper.warpgroup_mma_wait(0, deps=(sums,))
            if BLOCK_N > PIECE:
                left += sums
                sums = hopper.warpgroup_mma(
                    a, b.slice(PIECE, PIECE).permute([1, 0]), zeros, use_acc=False, is_async=True
                )
                sums = hopper.warpgroup_mma_wait(0, deps=(sums,))
                mbarrier.arrive(empty.index(stage))
                right += sums
            else:
                mbarrier.arrive(empty.index(stage))
                left += sums
            step += 1
        scale = gl.load(scale_a_ptr) * gl.load(scale_b_ptr)
        parts = columns(left * scale, PIECE // PART_N)
        if BLOCK_N > PIECE:
            parts = parts + columns(right * scale, PIECE // PART_N)
        store(parts, c_desc, c_smem, off_m + consumer * ROWS, off_n, consumer, CONSUMERS, C_ROWS)
    tma.store_wait(0)


@gluon.jit
def consume(
    consumer: gl.constexpr, c_desc, scale_a_ptr, scale_b_ptr, a_smem, b_smem, c_smem, full, empty, M, N, K,
    A_ROWS: gl.constexpr, B_ROWS: gl.constexpr, C_ROWS: gl.constexpr, A_IN_REGISTERS: gl.constexpr,
    PROMOTED: gl.constexpr, CONSUMERS: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr, GROUP_M: gl.constexpr,
):  # fmt: skip
    if PROMOTED:
        multiply_promoted(consumer, c_desc, scale_a_ptr, scale_b_ptr, a_smem, b_smem, c_smem, full, empty, M, N, K,
                          C_ROWS, CONSUMERS, BLOCK_N, BLOCK_K, STAGES, GROUP_M)  # fmt: skip
    else:
        multiply(consumer, c_desc, scale_a_ptr, scale_b_ptr, a_smem, b_smem, c_smem, full, empty, M, N, K, A_ROWS,
                 B_ROWS, C_ROWS, A_IN_REGISTERS, CONSUMERS, BLOCK_N, BLOCK_K, STAGES, GROUP_M)  # fmt: skip


@gluon.jit(do_not_specialize=["M", "N", "K"])
def matmul_kernel(
    a_desc, b_desc, c_desc, scale_a_ptr, scale_b_ptr, M, N, K,
    A_ROWS: gl.constexpr, B_ROWS: gl.constexpr, C_ROWS: gl.constexpr, A_IN_REGISTERS: gl.constexpr,
    DTYPE: gl.constexpr, PROMOTED: gl.constexpr, CONSUMERS: gl.constexpr, BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr, STAGES: gl.constexpr, BUFFERS: gl.constexpr, GROUP_M: gl.constexpr,
):  # fmt: skip
    """A persistent program computes tiles of C, [ROWS * CONSUMERS, BLOCK_N]: program_id, then every num_programs-th.

    A_ROWS says that the descriptor's rows are rows of A, not columns; B_ROWS and C_ROWS likewise. Every stage has two
    barriers: `full` completes when TMA has written it, `empty` when every consumer has read it.
    """
    gl.static_assert(CONSUMERS == 1 or CONSUMERS == 2)
    a_smem = gl.allocate_shared_memory(DTYPE, [STAGES * CONSUMERS] + a_desc.block_type.shape, a_desc.layout)  # noqa: RUF005
    b_smem = gl.allocate_shared_memory(DTYPE, [STAGES] + b_desc.block_type.shape, b_desc.layout)  # noqa: RUF005
    c_smem = gl.allocate_shared_memory(c_desc.dtype, [BUFFERS * CONSUMERS] + c_desc.block_type.shape, c_desc.layout)  # noqa: RUF005
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=CONSUMERS)
    hopper.fence_async_shared()

    # The first loads need not wait until the warps have parted. But here all four warps meet before each of them, so
    # more of them delay the start.
    AHEAD: gl.constexpr = 1 if BLOCK_N == 256 else 3
    gl.static_assert(AHEAD <= STAGES)
    off_m, off_n = tile_offsets(gl.program_id(0), M, N, ROWS * CONSUMERS, BLOCK_N, GROUP_M)
    for i in gl.static_range(AHEAD):
        off_k = i * BLOCK_K
        fill(a_desc, b_desc, a_smem, b_smem, full, i, off_m, off_n, off_k, off_k < K, A_ROWS, B_ROWS, CONSUMERS)

    # The registers that the producer does not need go to the consumers: 240 for each thread.
    if CONSUMERS == 2:
        gl.warp_specialize(
            [
                (consume, (0, c_desc, scale_a_ptr, scale_b_ptr, a_smem, b_smem, c_smem, full, empty, M, N, K, A_ROWS,
                           B_ROWS, C_ROWS, A_IN_REGISTERS, PROMOTED, CONSUMERS, BLOCK_N, BLOCK_K, STAGES, GROUP_M)),
                (consume, (1, c_desc, scale_a_ptr, scale_b_ptr, a_smem, b_smem, c_smem, full, empty, M, N, K, A_ROWS,
                           B_ROWS, C_ROWS, A_IN_REGISTERS, PROMOTED, CONSUMERS, BLOCK_N, BLOCK_K, STAGES, GROUP_M)),
                (load, (a_desc, b_desc, a_smem, b_smem, full, empty, M, N, K, A_ROWS, B_ROWS,
                        CONSUMERS, BLOCK_N, BLOCK_K, STAGES, GROUP_M, AHEAD)),
            ],
            worker_num_warps=[4, 1],
            worker_num_regs=[240, 24],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (consume, (0, c_desc, scale_a_ptr, scale_b_ptr, a_smem, b_smem, c_smem, full, empty, M, N, K, A_ROWS,
                           B_ROWS, C_ROWS, A_IN_REGISTERS, PROMOTED, CONSUMERS, BLOCK_N, BLOCK_K, STAGES, GROUP_M)),
                (load, (a_desc, b_desc, a_smem, b_smem, full, empty, M, N, K, A_ROWS, B_ROWS,
                        CONSUMERS, BLOCK_N, BLOCK_K, STAGES, GROUP_M, AHEAD)),
            ],
            worker_num_warps=[1],
            worker_num_regs=[24],
        )  # fmt: skip


def _set_block(desc: TensorDescriptor, *block: int) -> None:
    """Let `desc` copy blocks of this shape, swizzled for wgmma."""
    element = desc.base.element_size()
    desc.block_shape = list(block)
    desc.layout = gl.NVMMASharedLayout(min(SWIZZLE, block[1] * element), 8 * element, rank=2)


def _set_blocks(args: dict[str, Any]) -> None:
    """Before each launch: the descriptors' blocks are those of the configuration."""
    rows, block_n, block_k = int(ROWS), args["BLOCK_N"], args["BLOCK_K"]
    part_n = min(SWIZZLE // args["c_desc"].base.element_size(), block_n)
    _set_block(args["a_desc"], *((rows, block_k) if args["A_ROWS"] else (block_k, rows)))
    _set_block(args["b_desc"], *((block_k, block_n) if args["B_ROWS"] else (block_n, block_k)))
    _set_block(args["c_desc"], *((rows, part_n) if args["C_ROWS"] else (part_n, rows)))


def _config(CONSUMERS: int, BLOCK_N: int, BLOCK_K: int, STAGES: int, GROUP_M: int, BUFFERS: int = 2) -> triton.Config:
    tile = {"CONSUMERS": CONSUMERS, "BLOCK_N": BLOCK_N, "BLOCK_K": BLOCK_K, "STAGES": STAGES}
    return triton.Config(tile | {"BUFFERS": BUFFERS, "GROUP_M": GROUP_M}, num_warps=4, pre_hook=_set_blocks)


# 128 x 256 reads least; all else is for matrices with too few tiles of it for the multiprocessors. GROUP_M makes the
# tiles that run at one time about as high as wide.
HALF_CONFIGS = [
    _config(2, 256, 64, 4, 16),
    _config(2, 256, 64, 3, 16),
    _config(2, 128, 64, 6, 8),
    _config(2, 64, 64, 8, 8, BUFFERS=1),
    _config(1, 128, 64, 8, 16),
    _config(1, 64, 64, 12, 16, BUFFERS=1),
]
TF32_CONFIGS = [
    _config(2, 256, 32, 4, 16),
    _config(2, 128, 32, 6, 8),
    _config(1, 128, 32, 8, 16),
    _config(1, 64, 32, 12, 16),
]


FLOAT8_CONFIGS = [
    _config(2, 256, 128, 4, 16),
    _config(2, 256, 128, 3, 16),
    _config(2, 128, 128, 6, 8),
    _config(1, 128, 128, 8, 16),
    _config(1, 64, 128, 12, 16, BUFFERS=1),
]


def _candidates(configs: list[triton.Config], args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The configurations of the type, as far as their tiles suit C."""
    by_type = {gl.float32: TF32_CONFIGS, gl.float8e4nv: FLOAT8_CONFIGS}
    return _suiting(by_type.get(constants["DTYPE"], HALF_CONFIGS), args)


def tuning_space(args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """What a search that may take minutes tries beyond the candidates: bands of other heights, and as many stages as
    fit beside one or two buffers for C."""
    base = args["a_desc"].base
    element, out_element = base.element_size(), args["c_desc"].base.element_size()
    shared = torch.cuda.get_device_properties(base.device).shared_memory_per_multiprocessor - 2048
    found = []
    tiles = itertools.product((1, 2), (64, 128, 256), (1, 2))
    for (CONSUMERS, BLOCK_N, BUFFERS), GROUP_M in itertools.product(tiles, (4, 8, 16, 32)):
        part_n = min(SWIZZLE // out_element, BLOCK_N)
        if BLOCK_N // part_n % BUFFERS != 0:
            continue
        rows = int(ROWS) * CONSUMERS
        stages = min(12, (shared - BUFFERS * rows * part_n * out_element) // ((rows + BLOCK_N) * SWIZZLE))
        found.append(_config(CONSUMERS, BLOCK_N, SWIZZLE // element, stages, GROUP_M, BUFFERS))
    return _suiting(found, args)


def _suiting(configs: list[triton.Config], args: dict[str, Any]) -> list[triton.Config]:
    """The configurations less those with too few tiles for the multiprocessors, or far too many."""
    tiles = {
        config: triton.cdiv(args["M"], int(ROWS) * config.kwargs["CONSUMERS"])
        * triton.cdiv(args["N"], config.kwargs["BLOCK_N"])
        for config in configs
    }
    multiprocessors = torch.cuda.get_device_properties(args["a_desc"].base.device).multi_processor_count
    enough = min(max(tiles.values()), multiprocessors // 3)
    configs = [config for config in configs if tiles[config] >= enough]
    fewest = min(tiles[config] for config in configs)
    return [config for config in configs if tiles[config] <= max(4 * fewest, multiprocessors)]


matmul_kernel = triton.autotune(
    configs=HALF_CONFIGS + TF32_CONFIGS + FLOAT8_CONFIGS,
    key=["M", "N", "K", "A_ROWS", "B_ROWS", "C_ROWS", "DTYPE", "PROMOTED"],
    prune_configs_by={"early_config_prune": _candidates},
)(matmul_kernel)


def _stored(name: str, x: Tensor) -> tuple[TensorDescriptor, bool]:
    """What TMA reads or writes x through, and whether the descriptor's rows are those of x, not its columns."""
    element = x.element_size()
    for rows, matrix in ((True, x), (False, x.t())):
        pitch = matrix.stride(0) if matrix.shape[0] > 1 else triton.cdiv(matrix.shape[1], 16) * 16
        contiguous = matrix.stride(1) == 1 or matrix.shape[1] == 1
        if contiguous and pitch >= matrix.shape[1] and pitch * element % 16 == 0 and matrix.data_ptr() % 16 == 0:
            layout = gl.NVMMASharedLayout(SWIZZLE, 8 * element, rank=2)
            block = [int(ROWS), SWIZZLE // element]
            return TensorDescriptor(matrix, list(matrix.shape), [pitch, 1], block, layout), rows
    raise NotImplementedError(
        f"matmul: TMA needs {name}'s rows or columns contiguous, apart, and each at a multiple of 16 bytes; "
        f"got strides {x.stride()} of {element} bytes and a first element {x.data_ptr() % 16} bytes beyond one"
    )


def matmul(
    a: Float[Tensor, "M K"],
    b: Float[Tensor, "K N"],
    scale_a: Float[Tensor, ""] | None = None,
    scale_b: Float[Tensor, ""] | None = None,
    *,
    precision: str = "ieee",
) -> Float[Tensor, "M N"]:
    """C = A @ B, of float8 times scale_a scale_b.

    Shapes: a (M, K), b (K, N), K = 0 included; rows or columns contiguous. The output is contiguous.
    Dtypes: float16, bfloat16, and float32 with precision="tf32"; sums in float32, rounded once at the end. The tensor
    cores truncate float32 to tf32 (11 significant bits). float8_e4m3fn, a by rows and b by columns, with a float32
    scale of shape () for each, gives bfloat16: "promoted" adds sums of 128 terms in float32, with "fast" the tensor
    cores add all, with 14 bits.
    Tail: TMA reads zeros beyond the edges and does not write there.
    Errors: ValueError for other shapes, dtypes, devices or precisions; NotImplementedError for float32 with
    precision="ieee", for addresses that TMA cannot take (every row of A, B and C starts at a multiple of 16 bytes), for
    tf32 if neither A's rows nor B's columns are contiguous, for float8 if not both are, for M or N above 2^27, and for
    a GPU that is not a Hopper.
    Source: the persistent, warp-specialized kernels of CUTLASS ("cooperative" schedule), without clusters.
    """
    if a.ndim != 2:
        raise ValueError(f"matmul: a must be (M, K); got {tuple(a.shape)}")
    M, K = a.shape
    if b.ndim != 2 or b.shape[0] != K:
        raise ValueError(f"matmul: a is (M, K)={(M, K)}, so b must be ({K}, N); got {tuple(b.shape)}")
    N = b.shape[1]
    if a.dtype not in DTYPES:
        raise ValueError(f"matmul: a must be float32, float16, bfloat16 or float8_e4m3fn; got {a.dtype}")
    if b.dtype != a.dtype:
        raise ValueError(f"matmul: a is {a.dtype}, so b must be too; got {b.dtype}")
    float8 = a.dtype == torch.float8_e4m3fn
    wide = ("ieee", "tf32") if a.dtype == torch.float32 else ("ieee",)
    if precision not in (("promoted", "fast") if float8 else wide):
        allowed = '"promoted" or "fast" for float8' if float8 else '"ieee", or "tf32" for float32'
        raise ValueError(f'matmul: precision must be {allowed}; got "{precision}" for {a.dtype}')
    if b.device != a.device:
        raise ValueError(f"matmul: a is on {a.device}, so b must be too; got {b.device}")
    for name, scale in (("scale_a", scale_a), ("scale_b", scale_b)):
        found = None if scale is None else (scale.dtype, tuple(scale.shape), scale.device)
        expected = (torch.float32, (), a.device) if float8 else None
        if found != expected:
            raise ValueError(f"matmul: a is {a.dtype}, so {name} must be {expected}; got {found}")
    if not a.is_cuda:
        raise ValueError(f"matmul: a is on {a.device}; pass CUDA tensors, Gluon has no interpreter")
    if torch.cuda.get_device_capability(a.device)[0] != 9:
        raise NotImplementedError("matmul: wgmma needs a Hopper GPU (compute capability 9.0)")
    if a.dtype == torch.float32 and precision == "ieee":
        raise NotImplementedError('matmul: float32 with precision="ieee" has no use for the tensor cores')
    if max(M, N) > 2**27:  # as far as `quotient` goes with the smallest tiles
        raise NotImplementedError(f"matmul: M and N must be at most 2^27; got {M} and {N}")
    if a.device.index != torch.cuda.current_device():
        with torch.cuda.device(a.device):
            return matmul(a, b, scale_a, scale_b, precision=precision)

    out_dtype = torch.bfloat16 if float8 else a.dtype
    if K == 0:
        return torch.zeros((M, N), dtype=out_dtype, device=a.device)
    out = torch.empty((M, N), dtype=out_dtype, device=a.device)
    if M > 0 and N > 0:
        (a_desc, a_rows), (b_desc, b_rows), (c_desc, c_rows) = _stored("a", a), _stored("b", b), _stored("out", out)
        if float8 and (b_rows or not a_rows):
            raise NotImplementedError("matmul: float8 needs the rows of a and the columns of b contiguous")
        a_in_registers = False
        if a.dtype == torch.float32:
            # wgmma reads 32-bit numbers from shared memory only with K contiguous. One operand, the left, may come
            # from registers, in which it is transposed on the way; so C^T = B^T A^T where that suits better.
            if b_rows and a_rows:
                a_desc, b_desc, M, N = b_desc, a_desc, N, M
                a_rows, b_rows, c_rows = not b_rows, not a_rows, not c_rows
            if b_rows:
                raise NotImplementedError("matmul: tf32 needs the rows of a or the columns of b contiguous")
            a_in_registers = not a_rows
        multiprocessors = torch.cuda.get_device_properties(a.device).multi_processor_count

        def programs(tile: dict[str, int]) -> tuple[int]:
            """As few as need no more rounds than all would: the device's power is better spent on them."""
            tiles = triton.cdiv(M, int(ROWS) * tile["CONSUMERS"]) * triton.cdiv(N, tile["BLOCK_N"])
            return (triton.cdiv(tiles, triton.cdiv(tiles, multiprocessors)),)

        matmul_kernel[programs](
            a_desc, b_desc, c_desc, scale_a, scale_b, M, N, K, A_ROWS=a_rows, B_ROWS=b_rows, C_ROWS=c_rows,
            A_IN_REGISTERS=a_in_registers, DTYPE=DTYPES[a.dtype], PROMOTED=precision == "promoted",
        )  # fmt: skip
    return out
