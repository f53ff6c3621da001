"""Attention in Triton on Hopper, without a mask, by specialized warps that the compiler assigns.

Adds to `triton/packed`: one warpgroup loads, and two others compute half of the rows each, so that the softmax of one
half overlaps with the products of the other. Query heads are not packed.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._common.tma import describe, readable
from triton_kernels._runtime.arguments import check_gpu, check_head
from triton_kernels._runtime.configs import multiprocessors
from triton_kernels._runtime.contract import check_attention
from triton_kernels._runtime.launch import device_of, kept, launch, persistent_grid
from triton_kernels.attention._rows import LOG2_E, LOWEST
from triton_kernels.attention._softmax import check_limits, head_and_rank, head_group, weigh

DETERMINISTIC = True
REQUIRES = "sm_90"


class Tile(NamedTuple):
    """Sizes of a tile."""

    BLOCK_M: int
    """Queries of a tile."""
    BLOCK_N: int
    """Keys of a block."""
    PERSISTENT: bool
    """True if a program computes several tiles, one after the other."""


TILES = {128: Tile(128, 128, True), 256: Tile(128, 64, False)}
"""Tiles by D. A persistent program needs shared memory for two tiles of queries, which D = 256 does not leave."""
STAGES = 2  # blocks of keys and of values in shared memory; with more, Triton 3.6.0 makes a kernel that gives NaN
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
    # No other code may use this sum of offsets: for the second warpgroup the compiler adds half a tile to all its uses.
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
    """One program computes tiles of BLOCK_M queries of one head, by three warpgroups.

    The compiler gives the loads to one warpgroup, and half of the rows of a tile to each of the two others. The softmax
    of one half runs while the other half multiplies.
    q is read as a matrix of rows stride_qm apart: see `q_matrix`. TAIL: the last block has keys beyond the last one;
    their weight is 0.
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
    """q (B, H, S_q, D) as a matrix of rows q.stride(2) apart; None if it is not one.

    Returns: rows of the matrix, its rows per batch entry, and its rows and columns per head.
    """
    B, H, S_q, D = q.shape
    batch, head, row, _ = q.stride()
    if row < D:
        return None
    rows_b, odd = divmod(batch if B > 1 else 0, row)
    rows_h, columns_h = divmod(head if H > 1 else 0, row)
    if odd or columns_h * (H - 1) + D > row:
        return None
    return (B - 1) * rows_b + (H - 1) * rows_h + S_q, rows_b, rows_h, columns_h


def obstacle(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> str:
    """The reason why the kernel does not cover the case; empty if it does."""
    if torch.cuda.get_device_capability(q.device)[0] != 9:
        return "needs a Hopper GPU (compute capability 9.0)"
    if causal:
        return "the kernel has no mask"
    if q.element_size() != 2:
        return f"the tensor cores need float16 or bfloat16; got {q.dtype}"
    if q.numel() > 0 and not (all(map(readable, (q, k, v))) and q_matrix(q) is not None):
        return "TMA reads contiguous rows at multiples of 16 bytes, and q as a matrix of rows equally far apart"
    return ""


@kept
def attention(
    q: Float[Tensor, "B H S_q D"],
    k: Float[Tensor, "B H_kv S_k D"],
    v: Float[Tensor, "B H_kv S_k D"],
    *,
    causal: bool = False,
    sm_scale: float | None = None,
) -> Float[Tensor, "B H S_q D"]:
    """out = softmax(sm_scale q k^T) v, for each batch entry and head.

    Shapes: q (B, H, S_q, D), k and v (B, H_kv, S_k, D), where D is 128 or 256; rows contiguous, each at a multiple of
    16 bytes, and q a matrix of rows equally far apart. Query head h reads key head h // (H // H_kv). The output is
    contiguous. `sm_scale` defaults to 1 / sqrt(D). Nothing is tuned.
    Dtypes: float16, bfloat16 (scores, softmax and accumulation in float32, the probabilities rounded once for the
    second product).
    Tail: TMA reads zeros beyond the last key, whose scores are minus infinity.
    Errors: ValueError for other shapes, dtypes or devices; NotImplementedError for causal=True, float32, other D or
    strides, a negative sm_scale, and a GPU other than Hopper.
    Source: FlashAttention-3 (Shah et al., 2024), within the limits of Triton's `warp_specialize`.
    """
    check_attention(q, k, v)
    check_gpu("attention", "q", q)
    check_head(q.shape[3], tuple(TILES), sm_scale)
    check_limits(q, k, v, sm_scale)
    if reason := obstacle(q, k, v, causal):
        raise NotImplementedError(f"attention: {reason}")
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    attend(q, k, v, out, causal, sm_scale)
    return out


def config(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, sm_scale: float | None = None) -> str:
    """The tile that `attention` runs; empty if there is nothing to compute."""
    if q.numel() == 0 or k.shape[2] == 0:
        return ""
    return f"specialized {TILES[q.shape[3]].BLOCK_M}x{TILES[q.shape[3]].BLOCK_N}"


def attend(q: Tensor, k: Tensor, v: Tensor, out: Tensor, causal: bool, sm_scale: float | None) -> None:
    """Writes the result of `attention` to `out`, with any strides and contiguous rows, if there is no `obstacle`."""
    (B, H, S_q, D), (H_kv, S_k) = q.shape, k.shape[1:3]
    if q.numel() == 0 or S_k == 0:
        out.zero_()
        return
    G, tile, matrix = H // H_kv, TILES[D], q_matrix(q)
    assert matrix is not None
    qk_scale = (D**-0.5 if sm_scale is None else sm_scale) * LOG2_E
    together = G * head_group(B * H_kv, 2 * S_k * D * k.element_size())
    programs = B * H * triton.cdiv(S_q, tile.BLOCK_M)
    grid = persistent_grid(programs, multiprocessors(q)) if tile.PERSISTENT else (programs,)
    with device_of(q):
        descs = [describe(x, tile.BLOCK_N) for x in (k, v)]
        launch(
            specialized_kernel, grid,
            q, *descs, out, B * H, H, G, S_q, S_k, together, *matrix, qk_scale, q.stride(2), *out.stride()[:3],
            TAIL=S_k % tile.BLOCK_N != 0, D=D, **tile._asdict(), num_warps=4, num_stages=STAGES, scratch_like=q,
        )  # fmt: skip
