"""Parts of gluon.py: the tile of a program, the loads of a stage, the epilogue, and float8 in float32 sums."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

from triton_kernels._common.tiles import left_columns, tile_offsets
from triton_kernels.matmul._plan_gluon import ROWS

WGMMA_M = gl.constexpr(ROWS)  # rows of a tile per consumer warpgroup
tma_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared  # renamed after Triton 3.7
tma_store = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global


@gluon.jit
def padded_rows(M):
    """Rows in memory of one part of C: M, rounded up so that tiles of any size fit."""
    return gl.cdiv(M, 2 * WGMMA_M) * (2 * WGMMA_M)


@gluon.jit
def tile_and_terms(work, M, N, K, K_part, SPLIT: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
                   GROUP_M: gl.constexpr):  # fmt: skip
    """The first row and column of a program's tile, the begin and end of its terms, and the first row of its part in C.

    With SPLIT, K is divided: C has a matrix for each K_part terms, one below the other.
    """
    if SPLIT:
        tiles = gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N)
        part = work // tiles
        off_m, off_n = tile_offsets(work - part * tiles, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        begin = part * K_part
        return off_m, off_n, begin, min(begin + K_part, K), off_m + part * padded_rows(M)
    else:
        off_m, off_n = tile_offsets(work, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        return off_m, off_n, 0, K, off_m


@gluon.jit
def work_items(M, N, K, K_part, SPLIT: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr):
    """Number of tiles, over all parts of K."""
    tiles = gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N)
    if SPLIT:
        tiles *= gl.cdiv(K, K_part)
    return tiles


@gluon.jit
def load_stage(
    a_desc, b_desc, right_desc, a_smem, b_smem, right_smem, full, stage, row, off_n, off_k, pred,
    A_ROWS: gl.constexpr, B_ROWS: gl.constexpr, CONSUMERS: gl.constexpr, BLOCK_N: gl.constexpr,
):  # fmt: skip
    """Starts the TMA loads of one stage: blocks of A from (row, off_k) and of B from (off_k, off_n)."""
    LEFT: gl.constexpr = left_columns(BLOCK_N)
    RIGHT_BYTES: gl.constexpr = right_desc.block_type.nbytes if BLOCK_N > LEFT else 0
    BYTES: gl.constexpr = CONSUMERS * a_desc.block_type.nbytes + b_desc.block_type.nbytes + RIGHT_BYTES
    mbarrier.expect(full.index(stage), BYTES, pred=pred)
    for i in gl.static_range(CONSUMERS):
        off_m = row + i * WGMMA_M
        a_tile = a_smem.index(stage * CONSUMERS + i)
        tma_load(a_desc, [off_m, off_k] if A_ROWS else [off_k, off_m], full.index(stage), a_tile, pred=pred)
    b_tile = b_smem.index(stage)
    tma_load(b_desc, [off_k, off_n] if B_ROWS else [off_n, off_k], full.index(stage), b_tile, pred=pred)
    if BLOCK_N > LEFT:
        off_n += LEFT
        tile = right_smem.index(stage)
        tma_load(right_desc, [off_k, off_n] if B_ROWS else [off_n, off_k], full.index(stage), tile, pred=pred)


@gluon.jit
def split_columns(x, PARTS: gl.constexpr):
    """x as a tuple of PARTS blocks of columns; every element stays in its register."""
    if PARTS == 1:
        return (x,)
    else:
        left, right = x.reshape([x.shape[0], 2, x.shape[1] // 2]).permute([0, 2, 1]).split()
        return split_columns(left, PARTS // 2) + split_columns(right, PARTS // 2)


@gluon.jit
def epilogue(parts, c_desc, c_smem, row, off_n, consumer: gl.constexpr, CONSUMERS: gl.constexpr, C_ROWS: gl.constexpr):
    """Stores a finished tile in parts: each is converted, written to a buffer of c_smem, and copied from there by TMA
    while the next part is written.
    """
    BUFFERS: gl.constexpr = c_smem.shape[0] // CONSUMERS
    PART_N: gl.constexpr = c_smem.shape[2] if C_ROWS else c_smem.shape[1]
    gl.static_assert(len(parts) % BUFFERS == 0)  # the buffers are used in turn across tiles
    for i in gl.static_range(len(parts)):
        column = off_n + i * PART_N
        c = c_smem.index(consumer * BUFFERS + i % BUFFERS)
        tma.store_wait(BUFFERS - 1)  # until TMA has read this buffer
        if C_ROWS:
            c.store(parts[i].to(c_smem.dtype))
        else:
            c.permute([1, 0]).store(parts[i].to(c_smem.dtype))
        hopper.fence_async_shared()
        tma_store(c_desc, [row, column] if C_ROWS else [column, row], c)


@gluon.jit
def bias_and_sigmoid(acc, bias_ptr, off_m, off_n, M, N, BIAS_ROWS: gl.constexpr):
    """sigma(acc + bias), by the formula of `sigmoid`, for 16-bit results from row off_m and column off_n on.

    BIAS_ROWS: the bias has an element for each row, otherwise for each column.
    """
    if BIAS_ROWS:
        rows = off_m + gl.arange(0, acc.shape[0], gl.SliceLayout(1, acc.type.layout))
        bias = gl.expand_dims(gl.load(bias_ptr + rows, mask=rows < M, other=0.0), 1)
    else:
        columns = off_n + gl.arange(0, acc.shape[1], gl.SliceLayout(0, acc.type.layout))
        bias = gl.expand_dims(gl.load(bias_ptr + columns, mask=columns < N, other=0.0), 0)
    z = acc + bias.to(gl.float32)
    denominator = gl.exp2(z * -1.4426950216293335 - 16.0) + 2.0**-16
    reciprocal = gl.inline_asm_elementwise(
        "rcp.approx.ftz.f32 $0, $1;", "=f,f", [denominator], gl.float32, is_pure=True, pack=1
    )
    return reciprocal * 2.0**-16


@gluon.jit
def consume_promoted(
    consumer: gl.constexpr, c_desc, scale_a_ptr, scale_b_ptr, a_smem, b_smem, c_smem, full, empty, M, N, K,
    C_ROWS: gl.constexpr, CONSUMERS: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr,
    GROUP_M: gl.constexpr,
):  # fmt: skip
    """`consume` for float8: the tensor cores keep only 14 bits of a sum, so longer sums are added in float32.

    The 128 products of a step are summed from zero, for 128 columns at a time (more do not fit into registers). They
    are added to the float32 sums while the tensor cores work for the other warpgroup.
    """
    BLOCK_M: gl.constexpr = WGMMA_M * CONSUMERS
    PIECE: gl.constexpr = BLOCK_N if BLOCK_N < 128 else 128
    PART_N: gl.constexpr = c_smem.shape[2] if C_ROWS else c_smem.shape[1]
    gl.static_assert(BLOCK_K == 128)
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, PIECE, 32])
    step = 0
    for tile in range(gl.program_id(0), gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N), gl.num_programs(0)):
        off_m, off_n = tile_offsets(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        zeros = gl.zeros([WGMMA_M, PIECE], gl.float32, SUMS)
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
        parts = split_columns(left * scale, PIECE // PART_N)
        if BLOCK_N > PIECE:
            parts = parts + split_columns(right * scale, PIECE // PART_N)
        epilogue(parts, c_desc, c_smem, off_m + consumer * WGMMA_M, off_n, consumer, CONSUMERS, C_ROWS)
    tma.store_wait(0)
