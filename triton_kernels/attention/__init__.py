"""Attention in Triton: softmax(q k^T) v in one pass over the keys; scores never leave the chip."""

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.arguments import check_head
from triton_kernels._runtime.autotuner import autotune
from triton_kernels._runtime.contract import check_attention, check_window
from triton_kernels._runtime.interpreter import INTERPRET, dot_operand, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch

DETERMINISTIC = True
OPTIONS_BEYOND = ("window",)
HEAD_DIMS = (16, 32, 64, 128, 256)
LONGEST = 2**30  # most queries or keys: positions are 32-bit integers
LOG2_E = 1.4426950408889634
LOWEST = tl.constexpr(-3.4028234663852886e38)  # first maximum: unlike -inf, it can be subtracted from -inf


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, H, G, S_q, S_k, qk_scale,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_ob, stride_oh, stride_om,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_M queries of one head. G query heads read the same key head."""
    tiles = tl.cdiv(S_q, BLOCK_M)
    start_m = tl.program_id(0) % tiles * BLOCK_M
    head = (tl.program_id(0) // tiles).to(tl.int64)
    b, h = head // H, head % H
    offs_m = start_m + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, D).to(tl.int64)
    rows = offs_m[:, None].to(tl.int64)
    q_ptrs = q_ptr + b * stride_qb + h * stride_qh + rows * stride_qm + offs_d[None, :] * stride_qd
    q = dot_operand(tl.load(q_ptrs, mask=rows < S_q, other=0.0))  # [BLOCK_M, D]
    k_row = k_ptr + b * stride_kb + h // G * stride_kh + offs_d * stride_kd  # key 0
    v_row = v_ptr + b * stride_vb + h // G * stride_vh + offs_d * stride_vd

    last_key = tl.full((BLOCK_M,), S_k - 1, tl.int32)  # last key that each query sees
    first, end = 0, S_k
    if CAUSAL:
        last_key = tl.minimum(offs_m + (S_k - S_q), S_k - 1)
        end = tl.minimum(start_m + BLOCK_M + (S_k - S_q), S_k)
    if WINDOW > 0:  # keys before the window of the first query are not read
        first = tl.maximum(start_m + (S_k - S_q) - WINDOW + 1, 0) // BLOCK_N * BLOCK_N
    m_i = tl.full((BLOCK_M,), LOWEST, tl.float32)  # maximum of the scores so far, in base 2
    l_i = tl.zeros((BLOCK_M,), tl.float32)  # sum of exp2(score - m_i)
    acc = tl.zeros((BLOCK_M, D), tl.float32)  # sum of exp2(score - m_i) v
    for start_n in range(first, end, BLOCK_N):
        keys = start_n + tl.arange(0, BLOCK_N)
        inside, at = keys[:, None] < S_k, keys[:, None].to(tl.int64)
        k = dot_operand(tl.load(k_row[None, :] + at * stride_kn, mask=inside, other=0.0))  # [BLOCK_N, D]
        v = dot_operand(tl.load(v_row[None, :] + at * stride_vn, mask=inside, other=0.0))  # [BLOCK_N, D]
        scores = tl.dot(q, k.T, input_precision="ieee") * qk_scale  # [BLOCK_M, BLOCK_N]
        scores = tl.where(is_seen(keys[None, :], last_key[:, None], WINDOW), scores, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(scores, 1))
        p = tl.exp2(scores - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)  # brings the sums so far to the new maximum
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee")
        m_i = m_new
    if CAUSAL and has_nan(acc):
        acc, l_i = attend_key_by_key(q, k_row, v_row, first, end, last_key, qk_scale, stride_kn, stride_vn, WINDOW)
    out = acc / tl.where(last_key < 0, 1.0, l_i)[:, None]  # a query that sees no key gives 0
    out_ptrs = out_ptr + b * stride_ob + h * stride_oh + rows * stride_om + offs_d[None, :]
    tl.store(out_ptrs, out, mask=rows < S_q)


@triton.jit
def is_seen(key, last_key, WINDOW: tl.constexpr):
    """True for the keys that a query sees: up to its last one, and only WINDOW of them if that is not 0."""
    seen = key <= last_key
    return seen & (key > last_key - WINDOW) if WINDOW > 0 else seen


@triton.jit
def has_nan(x):
    """True if any element of a tile is NaN."""
    return tl.max(tl.max((x != x).to(tl.int32), 1), 0) > 0


@triton.jit
def attend_key_by_key(q, k_row, v_row, first, end, last_key, qk_scale, stride_kn, stride_vn, WINDOW: tl.constexpr):
    """acc and l_i of a tile, one key at a time. A key that a query does not see is left out instead of weighted by 0.

    In a product of tiles, 0 times the NaN or infinity of a hidden value is NaN.
    """
    m_i = tl.full((q.shape[0],), LOWEST, tl.float32)
    l_i = tl.zeros((q.shape[0],), tl.float32)
    acc = tl.zeros(q.shape, tl.float32)
    for key in tl.range(first, end, num_stages=1):
        at = tl.cast(key, tl.int64)
        k = tl.load(k_row + at * stride_kn).to(tl.float32)  # [D]
        v = tl.load(v_row + at * stride_vn).to(tl.float32)  # [D]
        seen = is_seen(key, last_key, WINDOW)
        scores = tl.where(seen, tl.sum(q.to(tl.float32) * k[None, :], 1) * qk_scale, float("-inf"))  # [BLOCK_M]
        m_new = tl.maximum(m_i, scores)
        p = tl.exp2(scores - m_new)
        alpha = tl.exp2(m_i - m_new)
        l_i = l_i * alpha + p
        acc = acc * alpha[:, None] + tl.where(seen[:, None], p[:, None] * v[None, :], 0.0)
        m_i = m_new
    return acc, l_i


def _config(BLOCK_M: int, BLOCK_N: int, num_warps: int, num_stages: int) -> triton.Config:
    return triton.Config({"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N}, num_warps=num_warps, num_stages=num_stages)


LARGE = [_config(128, 64, 8, 2), _config(64, 64, 4, 3), _config(128, 128, 8, 2)]
SMALL = [_config(64, 32, 8, 2), _config(32, 32, 8, 2), _config(16, 32, 4, 2)]
CONFIGS = LARGE + SMALL


def short_list(configs: list[triton.Config], args: dict[str, Any], **_: Any) -> list[triton.Config]:
    """Selects small tiles for float32, whose operands pass through registers for lack of tensor cores."""
    return SMALL if args["q_ptr"].dtype == torch.float32 else LARGE


if INTERPRET:  # one tile that numpy multiplies fast
    TILE: dict[str, int] = {"BLOCK_M": 128, "BLOCK_N": 128}
else:
    TILE = {}
    attention_kernel = autotune(CONFIGS, ["H", "G", "S_q", "S_k", "D", "CAUSAL", "WINDOW"], short_list)(
        attention_kernel
    )


@kept
def attention(
    q: Float[Tensor, "B H S_q D"],
    k: Float[Tensor, "B H_kv S_k D"],
    v: Float[Tensor, "B H_kv S_k D"],
    *,
    causal: bool = False,
    sm_scale: float | None = None,
    window: int | None = None,
) -> Float[Tensor, "B H S_q D"]:
    """out = softmax(sm_scale q k^T) v, for each batch entry and head.

    Shapes: q (B, H, S_q, D), k and v (B, H_kv, S_k, D), any strides; query head h reads key head h // (H // H_kv). D is
    a power of two from 16 to 256. The output is contiguous. `sm_scale` defaults to 1 / sqrt(D).
    Causal: query i sees keys up to i + S_k - S_q; a query that sees no key gives zeros, one whose keys all score minus
    infinity gives NaN. NaN and infinities of hidden keys and values do not reach the result: a tile with a NaN is
    computed again, far more slowly.
    Window: query i sees only that many keys, up to its own; tiles of keys before the first window are not read.
    Dtypes: float32 (ieee products and sums), float16, bfloat16 (scores, softmax and accumulation in float32, the
    probabilities rounded once for the second product).
    Tail: loads beyond the last row give 0, and scores beyond the last key are minus infinity.
    Errors: ValueError for other shapes, dtypes or devices; NotImplementedError for other D, a negative sm_scale, or
    S_q or S_k above 2^30.
    Source: FlashAttention-2 (Dao, 2023).
    """
    check_attention(q, k, v)
    near = check_window("attention", window, causal, k.shape[2])
    check_limits(q, k, sm_scale)
    out = empty_output(q.shape, q.dtype, q.device)
    attend(q, k, v, out, causal, sm_scale, near)
    return finished_output(out, q.dtype)


def attend(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, causal: bool, sm_scale: float | None, window: int = 0
) -> None:  # fmt: skip
    """Writes the result of `attention` to `out` (B, H, S_q, D), with any strides and contiguous rows.

    window: 0 for none.
    """
    (B, H, S_q, D), (H_kv, S_k) = q.shape, k.shape[1:3]
    if q.numel() == 0:
        return
    qk_scale = (D**-0.5 if sm_scale is None else sm_scale) * LOG2_E  # the kernel's exponentials are powers of 2
    with device_of(q):
        launch(
            attention_kernel, lambda tile: (B * H * triton.cdiv(S_q, tile["BLOCK_M"]),),
            q, k, v, out, H, H // H_kv, S_q, S_k, qk_scale,
            *q.stride(), *k.stride(), *v.stride(), *out.stride()[:3], CAUSAL=causal, WINDOW=window, D=D, **TILE,
        )  # fmt: skip


def check_limits(q: Tensor, k: Tensor, sm_scale: float | None) -> None:
    """Raises NotImplementedError for cases that the kernel does not cover."""
    check_head(q.shape[3], HEAD_DIMS, sm_scale)
    if max(q.shape[2], k.shape[2]) > LONGEST:
        raise NotImplementedError(f"attention: S_q and S_k must be at most 2^30; got {q.shape[2]} and {k.shape[2]}")
