"""Attention without a mask on Hopper: one warpgroup loads, two others multiply and weigh, each half of the rows."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from triton_kernels._common.tma import describe, readable
from triton_kernels._runtime.launch import launch, persistent_grid
from triton_kernels.attention._softmax import LOWEST, head_and_rank, weigh


class Tile(NamedTuple):
    """Queries of a tile, keys of a block, and whether a program computes several tiles, one after the other."""

    BLOCK_M: int
    BLOCK_N: int
    PERSISTENT: bool


TILES = {128: Tile(128, 128, True), 256: Tile(128, 64, False)}
"""By D. A persistent program has two tiles of queries in shared memory, for which that of D = 256 is too small."""
STAGES = 2  # blocks of keys and of values in shared memory; with more, Triton 3.6.0 makes a kernel that gives NaN
GROUP_BYTES = 2**24  # keys and values of the heads that run together: a third of an H200's L2 cache
SIZES = ["HEADS", "H", "G", "S_q", "S_k", "HEAD_GROUP", "Q_ROWS", "ROWS_B", "ROWS_H", "COLUMNS_H"]


@triton.jit
def attend_tile(
    turn, q_desc, k_desc, v_desc, out_ptr, HEADS, H, G, S_q, S_k, HEAD_GROUP, ROWS_B, ROWS_H, COLUMNS_H, qk_scale,
    stride_ob, stride_oh, stride_om,
    TAIL: tl.constexpr, SPECIALIZE: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Computes BLOCK_M rows of the output of one query head."""
    head, tile = head_and_rank(turn, tl.cdiv(S_q, BLOCK_M), HEADS, HEAD_GROUP)
    b, h = head // H, head % H
    h_kv = h // G
    start_m = tile * BLOCK_M
    # For the second warpgroup the compiler adds half a tile to the first row of the load, and to whatever else uses
    # that value: so nothing else does.
    q = q_desc.load([b * ROWS_B + h * ROWS_H + start_m, h * COLUMNS_H])
    m_i = tl.full((BLOCK_M,), LOWEST, tl.float32)
    l_i = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    last_key = tl.full((1,), S_k - 1, tl.int32)
    for start_n in tl.range(0, S_k, BLOCK_N, warp_specialize=SPECIALIZE):
        k = k_desc.load([b, h_kv, start_n, 0]).reshape(BLOCK_N, D)
        qk = tl.dot(q, k.T)  # [BLOCK_M, BLOCK_N]
        keys = start_n + tl.arange(0, BLOCK_N)
        p, acc, l_i, m_i = weigh(qk, acc, l_i, m_i, keys, last_key, qk_scale, TAIL)
        v = v_desc.load([b, h_kv, start_n, 0]).reshape(BLOCK_N, D)
        acc = tl.dot(p.to(v.dtype), v, acc)  # [BLOCK_M, D]
    rows = start_m + tl.arange(0, BLOCK_M)
    out_ptr += b.to(tl.int64) * stride_ob + h.to(tl.int64) * stride_oh
    out_ptrs = out_ptr + rows[:, None].to(tl.int64) * stride_om + tl.arange(0, D)[None, :]
    tl.store(out_ptrs, (acc / l_i[:, None]).to(out_ptr.dtype.element_ty), mask=rows[:, None] < S_q)


@triton.jit(do_not_specialize=SIZES)
def specialized_kernel(
    q_ptr, k_desc, v_desc, out_ptr, HEADS, H, G, S_q, S_k, HEAD_GROUP, Q_ROWS, ROWS_B, ROWS_H, COLUMNS_H, qk_scale,
    stride_qm, stride_ob, stride_oh, stride_om,
    TAIL: tl.constexpr, PERSISTENT: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The compiler gives the loads to one warpgroup and half of the rows of a tile to each of two others: the softmax
    of one half runs while the other half multiplies.

    q is read as a matrix of rows stride_qm apart: see `q_matrix`. TAIL: the last block has keys beyond the last one,
    which weigh nothing.
    """
    q_desc = tl.make_tensor_descriptor(q_ptr, [Q_ROWS, stride_qm], [stride_qm, 1], [BLOCK_M, D])
    if PERSISTENT:
        for turn in tl.range(tl.program_id(0), HEADS * tl.cdiv(S_q, BLOCK_M), tl.num_programs(0), warp_specialize=True):
            attend_tile(
                turn, q_desc, k_desc, v_desc, out_ptr, HEADS, H, G, S_q, S_k, HEAD_GROUP, ROWS_B, ROWS_H, COLUMNS_H,
                qk_scale, stride_ob, stride_oh, stride_om, TAIL, False, D, BLOCK_M, BLOCK_N,
            )  # fmt: skip
    else:
        attend_tile(
            tl.program_id(0), q_desc, k_desc, v_desc, out_ptr, HEADS, H, G, S_q, S_k, HEAD_GROUP, ROWS_B, ROWS_H,
            COLUMNS_H, qk_scale, stride_ob, stride_oh, stride_om, TAIL, True, D, BLOCK_M, BLOCK_N,
        )  # fmt: skip


def q_matrix(q: Tensor) -> tuple[int, int, int, int] | None:
    """q (B, H, S_q, D) as a matrix of rows q.stride(2) apart: its rows; how many rows the next batch entry is away, and
    how many rows and columns the next head. None where that is no matrix."""
    B, H, S_q, D = q.shape
    batch, head, row, _ = q.stride()
    if row < D:
        return None
    rows_b, odd = divmod(batch if B > 1 else 0, row)
    rows_h, columns_h = divmod(head if H > 1 else 0, row)
    if odd or columns_h * (H - 1) + D > row:
        return None
    return (B - 1) * rows_b + (H - 1) * rows_h + S_q, rows_b, rows_h, columns_h


def covers(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> bool:
    """Whether `attend` is the better choice: no mask, 16 bits, what TMA reads, a tile for each multiprocessor, and
    tiles that are mostly full."""
    B, H, S_q, D = q.shape
    if causal or D not in TILES or q.element_size() != 2 or torch.cuda.get_device_capability(q.device)[0] != 9:
        return False
    tiles = triton.cdiv(S_q, TILES[D].BLOCK_M)
    enough = B * H * tiles >= torch.cuda.get_device_properties(q.device).multi_processor_count
    full = 8 * tiles * TILES[D].BLOCK_M <= 9 * S_q
    return enough and full and all(map(readable, (q, k, v))) and q_matrix(q) is not None


def attend(q: Tensor, k: Tensor, v: Tensor, out: Tensor, qk_scale: float) -> None:
    """Writes attention's result without a mask to `out`. `covers` holds, nothing is empty."""
    (B, H, S_q, D), (H_kv, S_k) = q.shape, k.shape[1:3]
    G = H // H_kv
    tile = TILES[D]
    matrix = q_matrix(q)
    assert matrix is not None
    descs = [describe(x, tile.BLOCK_N) for x in (k, v)]
    HEAD_GROUP = min(B * H, G * max(1, GROUP_BYTES // (2 * S_k * D * k.element_size())))
    programs = B * H * triton.cdiv(S_q, tile.BLOCK_M)
    grid = persistent_grid(programs, torch.cuda.get_device_properties(q.device).multi_processor_count)
    launch(
        specialized_kernel, grid if tile.PERSISTENT else (programs,),
        q, *descs, out, B * H, H, G, S_q, S_k, HEAD_GROUP, *matrix, qk_scale, q.stride(2), *out.stride()[:3],
        TAIL=S_k % tile.BLOCK_N != 0, D=D, **tile._asdict(), num_warps=4, num_stages=STAGES, scratch_like=q,
    )  # fmt: skip
