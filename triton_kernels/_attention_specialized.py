"""Attention without a mask on Hopper: one warpgroup loads keys and values, two others multiply and weigh them."""

import contextvars
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from triton_kernels._attention_softmax import LOWEST, head_and_rank, weigh
from triton_kernels._launch import launch
from triton_kernels._tma import describe, readable

TILES = {64: (128, 128, 3), 128: (128, 128, 2), 256: (128, 64, 2)}
"""By D: queries of a program, keys of a block, and blocks of keys and values that are loaded ahead."""
GROUP_BYTES = 2**24  # keys and values of the heads that run together: a third of an H200's L2 cache


@triton.jit(do_not_specialize=["HEADS", "H", "G", "S_q", "S_k", "HEAD_GROUP"])
def specialized_kernel(
    q_ptr, k_desc, v_desc, out_ptr, HEADS, H, G, S_q, S_k, HEAD_GROUP, qk_scale,
    stride_qb, stride_qh, stride_qm, stride_ob, stride_oh, stride_om,
    TAIL: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_M rows of the output for one batch entry and query head.

    The compiler gives the loads to one warpgroup and half of the rows to each of two others: the softmax of one half
    runs while the other half multiplies. TAIL: the last block has keys beyond the last, which weigh nothing.
    """
    head, tile = head_and_rank(tl.program_id(0), tl.cdiv(S_q, BLOCK_M), HEADS, HEAD_GROUP)
    b, h = head // H, head % H
    h_kv = h // G
    start_m = tile * BLOCK_M
    # For the second warpgroup the compiler adds half a tile to the index of the first row, and to whatever else uses
    # that value. So nothing else does: it is a 0 that the compiler does not know.
    first_row = tl.program_id(1)
    at_q = b.to(tl.int64) * stride_qb + h.to(tl.int64) * stride_qh + start_m.to(tl.int64) * stride_qm
    q_desc = tl.make_tensor_descriptor(q_ptr + at_q, [S_q - start_m, D], [stride_qm, 1], [BLOCK_M, D])
    q = q_desc.load([first_row, 0])
    m_i = tl.full((BLOCK_M,), LOWEST, tl.float32)
    l_i = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    last_key = tl.full((1,), S_k - 1, tl.int32)
    for start_n in tl.range(0, S_k, BLOCK_N, warp_specialize=True, num_stages=STAGES):
        k = k_desc.load([b, h_kv, start_n, 0]).reshape(BLOCK_N, D)
        qk = tl.dot(q, k.T)  # [BLOCK_M, BLOCK_N]
        keys = start_n + tl.arange(0, BLOCK_N)
        p, acc, l_i, m_i = weigh(qk, acc, l_i, m_i, keys, last_key, qk_scale, TAIL)
        v = v_desc.load([b, h_kv, start_n, 0]).reshape(BLOCK_N, D)
        acc = tl.dot(p.to(v.dtype), v, acc)  # [BLOCK_M, D]
    out = acc / l_i[:, None]
    rows = start_m + tl.arange(0, BLOCK_M)
    out_ptrs = (
        out_ptr + b.to(tl.int64) * stride_ob + h.to(tl.int64) * stride_oh + rows[:, None].to(tl.int64) * stride_om
    )
    tl.store(out_ptrs + tl.arange(0, D)[None, :], out.to(out_ptr.dtype.element_ty), mask=rows[:, None] < S_q)


def covers(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> bool:
    """Whether `attend` computes this: no mask, 16 bits, rows that TMA reads, and tiles that are mostly full."""
    S_q, D = q.shape[2:]
    padded = triton.cdiv(S_q, 128) * 128
    return (
        not causal
        and D in TILES
        and 8 * padded <= 9 * S_q
        and torch.cuda.get_device_capability(q.device)[0] == 9
        and q.element_size() == 2
        and all(map(readable, (q, k, v)))
    )


def attend(q: Tensor, k: Tensor, v: Tensor, out: Tensor, qk_scale: float) -> None:
    """Writes attention's result without a mask to `out`; `covers` holds, nothing is empty."""
    # The descriptor of each program's queries lies in memory that Triton asks for; the setting ends with this call.
    contextvars.copy_context().run(_attend, q, k, v, out, qk_scale)


def _attend(q: Tensor, k: Tensor, v: Tensor, out: Tensor, qk_scale: float) -> None:
    (B, H, S_q, D), (H_kv, S_k) = q.shape, k.shape[1:3]
    G = H // H_kv
    BLOCK_M, BLOCK_N, stages = TILES[D]
    descs = [describe(x) for x in (k, v)]
    for desc in descs:
        desc.block_shape = [1, 1, BLOCK_N, D]
    HEAD_GROUP = min(B * H, G * max(1, GROUP_BYTES // (2 * S_k * D * k.element_size())))

    def scratch(size: int, _: int, __: Any) -> Tensor:
        return torch.empty(size, dtype=torch.int8, device=q.device)

    triton.set_allocator(scratch)
    launch(
        specialized_kernel, (B * H * triton.cdiv(S_q, BLOCK_M),),
        q, *descs, out, B * H, H, G, S_q, S_k, HEAD_GROUP, qk_scale, *q.stride()[:3], *out.stride()[:3],
        TAIL=S_k % BLOCK_N != 0, D=D, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, STAGES=stages, num_warps=4, num_stages=stages,
    )  # fmt: skip
