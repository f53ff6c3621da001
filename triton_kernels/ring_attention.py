"""Attention over a split sequence in Triton: one launch for each rank's keys, in the order in which they arrive."""

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.arguments import check_head
from triton_kernels._runtime.contract import check_ring_attention
from triton_kernels._runtime.interpreter import INTERPRET, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, launch
from triton_kernels._runtime.shares import zigzag
from triton_kernels._runtime.symmetric import as_they_arrive
from triton_kernels.attention import HEAD_DIMS
from triton_kernels.attention._rows import LOG2_E, LOWEST, load_rows, own_tile

DETERMINISTIC = True

Rows = Float[Tensor, "B H S D"]
Keys = Float[Tensor, "B H_kv S D"]


@triton.jit
def place_of(row, low, high, half):
    """The place of a rank's row in the whole sequence: `half` rows begin at `low`, the others at `high`."""
    return tl.where(row < half, low + row, high + row - half)


@triton.jit
def ring_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, acc_ptr, m_ptr, l_ptr, H, G, S, half, q_low, q_high, k_low, k_high, qk_scale,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh,
    FIRST: tl.constexpr, LAST: tl.constexpr, CAUSAL: tl.constexpr,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program adds a rank's S keys to the sums of BLOCK_M queries of one head. G query heads read one key head.

    The sums wait in memory for the next rank's keys; the last launch divides them. k and v have contiguous rows.
    """
    head, start_m = own_tile(S, BLOCK_M)
    b, h = head // H, head % H
    rows = start_m + tl.arange(0, BLOCK_M)
    q = load_rows(q_ptr + b * stride_qb + h * stride_qh, rows, S, stride_qm, stride_qd, D)  # [BLOCK_M, D]
    k_ptr += b * stride_kb + h // G * stride_kh
    v_ptr += b * stride_kb + h // G * stride_kh
    at_row = head * S + rows
    at = at_row[:, None] * D + tl.arange(0, D)[None, :]
    stored = (rows < S) & (not FIRST)
    m_i = tl.load(m_ptr + at_row, mask=stored, other=LOWEST)  # maximum of the scores so far, in base 2
    l_i = tl.load(l_ptr + at_row, mask=stored, other=0.0)  # sum of exp2(score - m_i)
    acc = tl.load(acc_ptr + at, mask=stored[:, None], other=0.0)  # sum of exp2(score - m_i) v
    last_place = place_of(rows, q_low, q_high, half)  # of the last key that each query sees
    end = S
    if CAUSAL:  # a later row of a rank has a later place, so the last query sees the first rows
        furthest = tl.max(tl.where(rows < S, last_place, -1), 0)
        end = tl.minimum(tl.maximum(furthest - k_low + 1, 0), half)
        end += tl.minimum(tl.maximum(furthest - k_high + 1, 0), S - half)
    for start_n in range(0, end, BLOCK_N):
        keys = start_n + tl.arange(0, BLOCK_N)
        k = load_rows(k_ptr, keys, S, D, 1, D)  # [BLOCK_N, D]
        v = load_rows(v_ptr, keys, S, D, 1, D)  # [BLOCK_N, D]
        seen = keys[None, :] < S
        if CAUSAL:
            seen = seen & (place_of(keys, k_low, k_high, half)[None, :] <= last_place[:, None])
        scores = tl.where(seen, tl.dot(q, k.T, input_precision="ieee") * qk_scale, float("-inf"))  # [BLOCK_M, BLOCK_N]
        m_new = tl.maximum(m_i, tl.max(scores, 1))
        p = tl.exp2(scores - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)  # brings the sums so far to the new maximum
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee")
        m_i = m_new
    if LAST:
        tl.store(out_ptr + at, acc / l_i[:, None], mask=rows[:, None] < S)
    else:
        tl.store(m_ptr + at_row, m_i, mask=rows < S)
        tl.store(l_ptr + at_row, l_i, mask=rows < S)
        tl.store(acc_ptr + at, acc, mask=rows[:, None] < S)


def tile_of(dtype: torch.dtype, D: int) -> dict[str, int]:
    """The tile. It is not autotuned: a repeated launch would add its keys to the sums again."""
    if INTERPRET:
        return {"BLOCK_M": 128, "BLOCK_N": 128}
    BLOCK_M, BLOCK_N, warps = (32, 32, 8) if dtype == torch.float32 else (64, 64, 4) if D > 128 else (128, 64, 8)
    return {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N, "num_warps": warps, "num_stages": 2}


def ring_attention(q: Rows, k: Keys, v: Keys, *, group: dist.ProcessGroup, causal: bool = False) -> Rows:
    """This rank's rows of softmax(q k^T / sqrt(D)) v over the sequence of all ranks of `group`.

    This rank's own keys come first; each launch hides the copy of the next rank's keys and values.

    Shapes: q (B, H, S, D), k and v (B, H_kv, S, D), the same shapes on all ranks, any strides; query head h reads key
    head h // (H // H_kv). D is a power of two from 16 to 256. The output is contiguous.
    Causal: the first S // 2 rows of all ranks come first, in their order, then the other rows in reverse order of the
    ranks, so that all ranks have the same number of pairs of a query and a visible key. A NaN or an infinity in a
    masked value may reach a result.
    Dtypes: those of attention; the sums stay in float32 between the ranks' keys.
    Tail: loads beyond the last row give 0, and scores beyond the last key are minus infinity.
    Devices: GPUs that reach each other's memory; in the interpreter, processes that share memory.
    Errors: ValueError for other shapes, dtypes or devices; NotImplementedError for other D, more than 2^30 rows in all,
    and more than 16 ranks.
    Source: H. Liu, M. Zaharia, P. Abbeel, "Ring Attention with Blockwise Transformers", 2023.
    """
    B, H, H_kv, S, D = check_ring_attention(q, k, v)
    check_head(D, HEAD_DIMS, None)
    ranks, half = group.size(), S // 2
    if ranks * S > 2**30:  # places are 32-bit integers
        raise NotImplementedError(f"ring_attention: the ranks have at most 2^30 rows in all; got {ranks} times {S}")
    out = empty_output(q.shape, q.dtype, q.device)
    if q.numel() == 0:
        return finished_output(out, q.dtype)
    acc = torch.empty(q.shape, dtype=torch.float32, device=q.device)
    m, l = (acc.new_empty(B, H, S) for _ in range(2))  # noqa: E741 (the field's name for it)
    tile = tile_of(q.dtype, D)

    def add(rank: int, keys: Tensor, values: Tensor) -> None:
        step = (rank - group.rank()) % ranks
        with device_of(q):
            launch(
                ring_kernel, (B * H * triton.cdiv(S, tile["BLOCK_M"]),),
                q, keys, values, out, acc, m, l, H, H // H_kv, S, half,
                *zigzag(group.rank(), ranks, S), *zigzag(rank, ranks, S),
                D**-0.5 * LOG2_E, *q.stride(), *keys.stride()[:2],
                FIRST=step == 0, LAST=step == ranks - 1, CAUSAL=causal, D=D, **tile,
            )  # fmt: skip

    as_they_arrive([k, v], add, group, chained=True)
    return finished_output(out, q.dtype)
