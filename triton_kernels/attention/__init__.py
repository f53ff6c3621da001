"""Attention in Triton: softmax(q k^T) v in one pass over the keys; scores never leave the chip."""

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.arguments import check_head, check_positions
from triton_kernels._runtime.autotuner import autotune
from triton_kernels._runtime.contract import check_attention, check_window
from triton_kernels._runtime.interpreter import INTERPRET, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels.attention._configs import TILE, configs, short_list
from triton_kernels.attention._masks import is_seen, key_range, last_keys
from triton_kernels.attention._rows import LOG2_E, LOWEST, attend_key_by_key, has_nan, load_rows, own_tile

DETERMINISTIC = True
OPTIONS_BEYOND = ("window",)
HEAD_DIMS = (16, 32, 64, 128, 256)

Queries = Float[Tensor, "B H S_q D"]
Keys = Float[Tensor, "B H_kv S_k D"]


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, H, G, S_q, S_k, qk_scale,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_ob, stride_oh, stride_om,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_M queries of one head. G query heads read the same key head."""
    head, start_m = own_tile(S_q, BLOCK_M)
    b, h = head // H, head % H
    rows = start_m + tl.arange(0, BLOCK_M)
    q = load_rows(q_ptr + b * stride_qb + h * stride_qh, rows, S_q, stride_qm, stride_qd, D)  # [BLOCK_M, D]
    k_ptr += b * stride_kb + h // G * stride_kh
    v_ptr += b * stride_vb + h // G * stride_vh
    last_key = last_keys(rows, S_q, S_k, CAUSAL)
    first, end = key_range(start_m, S_q, S_k, CAUSAL, WINDOW, BLOCK_M, BLOCK_N)
    m_i = tl.full((BLOCK_M,), LOWEST, tl.float32)  # maximum of the scores so far, in base 2
    l_i = tl.zeros((BLOCK_M,), tl.float32)  # sum of exp2(score - m_i)
    acc = tl.zeros((BLOCK_M, D), tl.float32)  # sum of exp2(score - m_i) v
    for start_n in range(first, end, BLOCK_N):
        keys = start_n + tl.arange(0, BLOCK_N)
        k = load_rows(k_ptr, keys, S_k, stride_kn, stride_kd, D)  # [BLOCK_N, D]
        v = load_rows(v_ptr, keys, S_k, stride_vn, stride_vd, D)  # [BLOCK_N, D]
        scores = tl.dot(q, k.T, input_precision="ieee") * qk_scale  # [BLOCK_M, BLOCK_N]
        scores = tl.where(is_seen(keys[None, :], last_key[:, None], WINDOW), scores, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(scores, 1))
        p = tl.exp2(scores - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)  # brings the sums so far to the new maximum
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee")
        m_i = m_new
    if CAUSAL and has_nan(acc):  # a hidden value may be the cause
        acc, l_i = attend_key_by_key(
            q, k_ptr, v_ptr, first, end, last_key, qk_scale, stride_kn, stride_kd, stride_vn, stride_vd, WINDOW
        )
    out = acc / tl.where(last_key < 0, 1.0, l_i)[:, None]  # a query that sees no key gives 0
    out_ptrs = out_ptr + b * stride_ob + h * stride_oh + rows[:, None].to(tl.int64) * stride_om
    tl.store(out_ptrs + tl.arange(0, D)[None, :], out, mask=rows[:, None] < S_q)


CONFIGS = configs((128, 64, 8, 2), (64, 64, 4, 3), (128, 128, 8, 2), (64, 32, 8, 2), (32, 32, 8, 2), (16, 32, 4, 2))
KEY = ["H", "G", "S_q", "S_k", "D", "CAUSAL", "WINDOW"]
if not INTERPRET:
    attention_kernel = autotune(CONFIGS, KEY, short_list)(attention_kernel)


@kept
def attention(
    q: Queries, k: Keys, v: Keys, *, causal: bool = False, sm_scale: float | None = None, window: int | None = None
) -> Queries:
    """out = softmax(sm_scale q k^T) v, for each batch entry and head.

    Shapes: q (B, H, S_q, D), k and v (B, H_kv, S_k, D), any strides; query head h reads key head h // (H // H_kv). D is
    a power of two from 16 to 256. The output is contiguous. `sm_scale` defaults to 1 / sqrt(D).
    Causal: query i sees keys up to i + S_k - S_q; with `window` only that many of them. A query that sees no key gives
    zeros, one whose keys all score minus infinity gives NaN. NaN and infinities of hidden keys and values do not reach
    the result: a tile with a NaN is computed again, far more slowly.
    Dtypes: float32 (ieee products and sums), float16, bfloat16 (scores, softmax and accumulation in float32, the
    probabilities rounded once for the second product).
    Tail: loads beyond the last row give 0, and scores beyond the last key are minus infinity.
    Errors: ValueError for other shapes, dtypes or devices; NotImplementedError for other D, a negative sm_scale, or
    S_q or S_k above 2^30.
    Source: FlashAttention-2 (Dao, 2023).
    """
    check_attention(q, k, v)
    near = check_window("attention", window, causal, k.shape[2])
    out = empty_output(q.shape, q.dtype, q.device)
    attend(q, k, v, out, causal, sm_scale, near)
    return finished_output(out, q.dtype)


def attend(q: Queries, k: Keys, v: Keys, out: Queries, causal: bool, sm_scale: float | None, window: int = 0) -> None:
    """Writes the result of `attention` to `out`, with any strides and contiguous rows. window: 0 for none."""
    (B, H, S_q, D), (H_kv, S_k) = q.shape, k.shape[1:3]
    check_head(D, HEAD_DIMS, sm_scale)
    check_positions("attention", S_q, S_k)
    if q.numel() == 0:
        return
    qk_scale = (D**-0.5 if sm_scale is None else sm_scale) * LOG2_E  # the kernel's exponentials are powers of 2
    with device_of(q):
        launch(
            attention_kernel, lambda tile: (B * H * triton.cdiv(S_q, tile["BLOCK_M"]),),
            q, k, v, out, H, H // H_kv, S_q, S_k, qk_scale,
            *q.stride(), *k.stride(), *v.stride(), *out.stride()[:3], CAUSAL=causal, WINDOW=window, D=D, **TILE,
        )  # fmt: skip
