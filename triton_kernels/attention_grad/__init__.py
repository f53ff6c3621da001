"""The gradients of attention in Triton: three kernels, without atomic operations; scores stay in registers."""

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._common.codes import check_float8
from triton_kernels._runtime.arguments import check_head
from triton_kernels._runtime.autotuner import autotune
from triton_kernels._runtime.contract import check_attention_grad, check_window
from triton_kernels._runtime.interpreter import INTERPRET, dot_operand, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels.attention import LOG2_E, LONGEST, LOWEST, is_seen

DETERMINISTIC = True
DTYPES_BEYOND = ("float8_e4m3fn",)
OPTIONS_BEYOND = ("window",)
HEAD_DIMS = (16, 32, 64, 128)

Queries = Float[Tensor, "B H S_q D"]
Keys = Float[Tensor, "B H_kv S_k D"]
Scale = Float[Tensor, ""]


@triton.jit
def load_rows(x_ptr, rows, count, stride_row, stride_d, D: tl.constexpr):
    """Rows of a matrix with `count` rows, [rows, D]; zeros beyond the last. Float8 numbers are exact in bfloat16."""
    offs = rows[:, None].to(tl.int64) * stride_row + tl.arange(0, D)[None, :].to(tl.int64) * stride_d
    x = tl.load(x_ptr + offs, mask=rows[:, None] < count, other=0.0)
    if x.dtype == tl.float8e4nv:
        x = x.to(tl.bfloat16)
    return dot_operand(x)


@triton.jit
def times(factor, first_ptr, second_ptr):
    """factor times two scales in memory, or itself without scales."""
    if first_ptr is None:
        return factor
    else:
        return factor * tl.load(first_ptr) * tl.load(second_ptr)


@triton.jit
def dot(x, y, acc=None):
    """acc + x y; x in y's dtype."""
    return tl.dot(x.to(y.dtype), y, acc, input_precision="ieee")


@triton.jit
def visible(rows, keys, S_q, S_k, CAUSAL: tl.constexpr, WINDOW: tl.constexpr):
    """Mask [rows, keys] of the pairs in which the query sees the key. Both may lie beyond the last one."""
    seen = (rows < S_q) & (keys < S_k)
    return seen & is_seen(keys, rows + (S_k - S_q), WINDOW) if CAUSAL else seen


@triton.jit
def first_key(start_m, S_q, S_k, WINDOW: tl.constexpr, BLOCK_N: tl.constexpr):
    """First key of the first tile that a query from start_m on sees."""
    return tl.maximum(start_m + (S_k - S_q) - WINDOW + 1, 0) // BLOCK_N * BLOCK_N if WINDOW > 0 else 0


@triton.jit
def statistics_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, scale_q_ptr, scale_k_ptr, lse_ptr, delta_ptr, H, G, S_q, S_k, qk_scale,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_ob, stride_oh, stride_om, stride_od,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The forward pass: one program computes two numbers for each of BLOCK_M queries of one head.

    lse: base-2 logarithm of the sum of exp2(scores); infinity for a query that sees no key, so that its p are 0.
    delta: sum over D of do * o, without the scales of do and v. The output o itself is not stored.
    """
    qk_scale = times(qk_scale, scale_q_ptr, scale_k_ptr)
    tiles = tl.cdiv(S_q, BLOCK_M)
    start_m = tl.program_id(0) % tiles * BLOCK_M
    head = (tl.program_id(0) // tiles).to(tl.int64)
    b, h = head // H, head % H
    rows = start_m + tl.arange(0, BLOCK_M)
    q = load_rows(q_ptr + b * stride_qb + h * stride_qh, rows, S_q, stride_qm, stride_qd, D)
    do = load_rows(do_ptr + b * stride_ob + h * stride_oh, rows, S_q, stride_om, stride_od, D)
    k_ptr += b * stride_kb + h // G * stride_kh
    v_ptr += b * stride_vb + h // G * stride_vh
    m_i = tl.full((BLOCK_M,), LOWEST, tl.float32)
    l_i = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    end = tl.minimum(start_m + BLOCK_M + (S_k - S_q), S_k) if CAUSAL else S_k
    for start_n in range(first_key(start_m, S_q, S_k, WINDOW, BLOCK_N), end, BLOCK_N):
        keys = start_n + tl.arange(0, BLOCK_N)
        k = load_rows(k_ptr, keys, S_k, stride_kn, stride_kd, D)
        v = load_rows(v_ptr, keys, S_k, stride_vn, stride_vd, D)
        seen = visible(rows[:, None], keys[None, :], S_q, S_k, CAUSAL, WINDOW)
        scores = tl.where(seen, dot(q, k.T) * qk_scale, float("-inf"))  # [BLOCK_M, BLOCK_N]
        m_new = tl.maximum(m_i, tl.max(scores, 1))
        p = tl.exp2(scores - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = dot(p, v, acc * alpha[:, None])
        m_i = m_new
    blind = rows + (S_k - S_q) < 0 if CAUSAL else rows < 0
    delta = tl.sum(acc * do.to(tl.float32), 1) / tl.where(blind, 1.0, l_i)
    lse = tl.where(blind, float("inf"), m_i + tl.log2(l_i))
    tl.store(lse_ptr + head * S_q + rows, lse, mask=rows < S_q)
    tl.store(delta_ptr + head * S_q + rows, delta, mask=rows < S_q)


@triton.jit
def dk_dv_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, scale_q_ptr, scale_k_ptr, scale_v_ptr, scale_do_ptr, lse_ptr, delta_ptr,
    dk_ptr, dv_ptr, H_kv, G, S_q, S_k, qk_scale, sm_scale,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_ob, stride_oh, stride_om, stride_od,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_N rows of dk and dv of one key head, from all queries of its G query heads.

    p^T and ds^T have one key per row, so that they are the left operands of the products with do and q.
    """
    qk_scale = times(qk_scale, scale_q_ptr, scale_k_ptr)
    tiles = tl.cdiv(S_k, BLOCK_N)
    start_n = tl.program_id(0) % tiles * BLOCK_N
    head = (tl.program_id(0) // tiles).to(tl.int64)
    b, h_kv = head // H_kv, head % H_kv
    keys = start_n + tl.arange(0, BLOCK_N)
    k = load_rows(k_ptr + b * stride_kb + h_kv * stride_kh, keys, S_k, stride_kn, stride_kd, D)
    v = load_rows(v_ptr + b * stride_vb + h_kv * stride_vh, keys, S_k, stride_vn, stride_vd, D)
    dk = tl.zeros((BLOCK_N, D), tl.float32)
    dv = tl.zeros((BLOCK_N, D), tl.float32)
    first, end = tl.maximum(start_n - (S_k - S_q), 0) // BLOCK_M * BLOCK_M if CAUSAL else 0, S_q
    if WINDOW > 0:  # later queries do not see the last key
        end = tl.minimum(start_n + BLOCK_N - 1 - (S_k - S_q) + WINDOW, S_q)
    for g in range(0, G):
        h = h_kv * G + g
        q_head = q_ptr + b * stride_qb + h * stride_qh
        do_head = do_ptr + b * stride_ob + h * stride_oh
        statistics = (b * H_kv * G + h) * S_q
        for start_m in range(first, end, BLOCK_M):
            rows = start_m + tl.arange(0, BLOCK_M)
            q = load_rows(q_head, rows, S_q, stride_qm, stride_qd, D)
            do = load_rows(do_head, rows, S_q, stride_om, stride_od, D)
            lse = tl.load(lse_ptr + statistics + rows, mask=rows < S_q, other=0.0)
            delta = tl.load(delta_ptr + statistics + rows, mask=rows < S_q, other=0.0)
            p = tl.exp2(dot(k, q.T) * qk_scale - lse[None, :])  # [BLOCK_N, BLOCK_M]
            p = tl.where(visible(rows[None, :], keys[:, None], S_q, S_k, CAUSAL, WINDOW), p, 0.0)
            dv = dot(p, do, dv)
            ds = p * (dot(v, do.T) - delta[None, :])
            dk = dot(ds, q, dk)
    at = (head * S_k + keys[:, None]) * D + tl.arange(0, D)[None, :]
    if scale_q_ptr is not None:
        dk *= tl.load(scale_q_ptr) * tl.load(scale_v_ptr) * tl.load(scale_do_ptr)
        dv *= tl.load(scale_do_ptr)
    tl.store(dk_ptr + at, dk * sm_scale, mask=keys[:, None] < S_k)
    tl.store(dv_ptr + at, dv, mask=keys[:, None] < S_k)


@triton.jit
def dq_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, scale_q_ptr, scale_k_ptr, scale_v_ptr, scale_do_ptr, lse_ptr, delta_ptr,
    dq_ptr, H, G, S_q, S_k, qk_scale, sm_scale,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_ob, stride_oh, stride_om, stride_od,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_M rows of dq of one head, from all keys."""
    qk_scale = times(qk_scale, scale_q_ptr, scale_k_ptr)
    tiles = tl.cdiv(S_q, BLOCK_M)
    start_m = tl.program_id(0) % tiles * BLOCK_M
    head = (tl.program_id(0) // tiles).to(tl.int64)
    b, h = head // H, head % H
    rows = start_m + tl.arange(0, BLOCK_M)
    q = load_rows(q_ptr + b * stride_qb + h * stride_qh, rows, S_q, stride_qm, stride_qd, D)
    do = load_rows(do_ptr + b * stride_ob + h * stride_oh, rows, S_q, stride_om, stride_od, D)
    lse = tl.load(lse_ptr + head * S_q + rows, mask=rows < S_q, other=0.0)
    delta = tl.load(delta_ptr + head * S_q + rows, mask=rows < S_q, other=0.0)
    k_ptr += b * stride_kb + h // G * stride_kh
    v_ptr += b * stride_vb + h // G * stride_vh
    dq = tl.zeros((BLOCK_M, D), tl.float32)
    end = tl.minimum(start_m + BLOCK_M + (S_k - S_q), S_k) if CAUSAL else S_k
    for start_n in range(first_key(start_m, S_q, S_k, WINDOW, BLOCK_N), end, BLOCK_N):
        keys = start_n + tl.arange(0, BLOCK_N)
        k = load_rows(k_ptr, keys, S_k, stride_kn, stride_kd, D)
        v = load_rows(v_ptr, keys, S_k, stride_vn, stride_vd, D)
        p = tl.exp2(dot(q, k.T) * qk_scale - lse[:, None])  # [BLOCK_M, BLOCK_N]
        p = tl.where(visible(rows[:, None], keys[None, :], S_q, S_k, CAUSAL, WINDOW), p, 0.0)
        ds = p * (dot(do, v.T) - delta[:, None])
        dq = dot(ds, k, dq)
    at = (head * S_q + rows[:, None]) * D + tl.arange(0, D)[None, :]
    if scale_q_ptr is not None:
        dq *= tl.load(scale_k_ptr) * tl.load(scale_v_ptr) * tl.load(scale_do_ptr)
    tl.store(dq_ptr + at, dq * sm_scale, mask=rows[:, None] < S_q)


def _config(BLOCK_M: int, BLOCK_N: int, num_warps: int, num_stages: int) -> triton.Config:
    return triton.Config({"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N}, num_warps=num_warps, num_stages=num_stages)


LARGE = [_config(64, 128, 8, 2), _config(128, 64, 8, 2), _config(64, 64, 4, 2), _config(32, 128, 8, 2)]
SMALL = [_config(32, 32, 8, 2), _config(16, 32, 8, 2)]
CONFIGS = LARGE + SMALL


def short_list(configs: list[triton.Config], args: dict[str, Any], **_: Any) -> list[triton.Config]:
    """Selects small tiles for float32, whose operands pass through registers for lack of tensor cores."""
    return SMALL if args["q_ptr"].dtype == torch.float32 else LARGE


if INTERPRET:  # one tile that numpy multiplies fast
    TILE: dict[str, int] = {"BLOCK_M": 128, "BLOCK_N": 128}
else:
    TILE = {}
    KEY = ["G", "S_q", "S_k", "D", "CAUSAL", "WINDOW"]
    statistics_kernel = autotune(CONFIGS, ["H", *KEY], short_list)(statistics_kernel)
    dk_dv_kernel = autotune(CONFIGS, ["H_kv", *KEY], short_list)(dk_dv_kernel)
    dq_kernel = autotune(CONFIGS, ["H", *KEY], short_list)(dq_kernel)


@kept
def attention_grad(
    q: Queries,
    k: Keys,
    v: Keys,
    do: Queries,
    scale_q: Scale | None = None,
    scale_k: Scale | None = None,
    scale_v: Scale | None = None,
    scale_do: Scale | None = None,
    *,
    causal: bool = False,
    sm_scale: float | None = None,
    window: int | None = None,
) -> tuple[Queries, Keys, Keys]:
    """(dq, dk, dv): gradients of the sum of do * o, where o = softmax(sm_scale q k^T) v; forward and backward.

    With p = softmax(sm_scale q k^T) and ds = p * (do v^T - delta), where delta = the row's sum of do * o:
    dq = sm_scale ds k, dk = sm_scale ds^T q, dv = p^T do; dk and dv are sums over the query heads of a key head.
    Shapes: q and do (B, H, S_q, D), k and v (B, H_kv, S_k, D), any strides; D is a power of two from 16 to 128.
    `causal`, `sm_scale` and `window` are those of `attention`.
    Three kernels: the forward pass keeps lse and delta of each row; dk and dv over tiles of keys; dq over tiles of
    queries. Scores are computed three times instead of adding dq by atomic operations: the result is deterministic.
    Dtypes: float32 (ieee products and sums), float16, bfloat16 (scores, softmax and sums in float32; p and ds are
    rounded once for the products that follow). float8_e4m3fn: q, k, v and do have a float32 scale of shape () each, and
    the gradients of the scaled operands are bfloat16; the kernels widen all operands to bfloat16.
    Memory: two float32 numbers for each query.
    A query that sees no key has gradient 0. Hidden pairs are weighted by 0: NaN and infinities of hidden rows can
    reach the gradients of rows of the same tile.
    Tail: loads beyond the last row give 0, and pairs beyond it have the weight 0.
    Errors: ValueError for other shapes, dtypes, scales or devices; NotImplementedError for other D, a negative
    sm_scale, S_q or S_k above 2^30, or float8 before compute capability 8.9.
    Source: FlashAttention-2 (Dao, 2023), without atomics as in Triton's fused attention tutorial.
    """
    scales = scale_q, scale_k, scale_v, scale_do
    check_attention_grad(q, k, v, do, scales)
    near = check_window("attention_grad", window, causal, k.shape[2])
    (B, H, S_q, D), (H_kv, S_k) = q.shape, k.shape[1:3]
    check_head(D, HEAD_DIMS, sm_scale)
    dtype = q.dtype
    if dtype == torch.float8_e4m3fn:
        check_float8("attention_grad", q)
        dtype = torch.bfloat16
    if max(S_q, S_k) > LONGEST:
        raise NotImplementedError(f"attention_grad: S_q and S_k must be at most 2^30; got {S_q}, {S_k}")
    if q.numel() == 0 or k.numel() == 0:
        dq, dk, dv = (torch.zeros(x.shape, dtype=dtype, device=x.device) for x in (q, k, v))
        return dq, dk, dv
    sm_scale = D**-0.5 if sm_scale is None else sm_scale
    qk_scale = sm_scale * LOG2_E  # the kernels' exponentials are powers of 2
    dq, dk, dv = (empty_output(x.shape, dtype, x.device) for x in (q, k, v))
    lse, delta = (torch.empty((B, H, S_q), dtype=torch.float32, device=q.device) for _ in range(2))
    common = dict(CAUSAL=causal, WINDOW=near, D=D, **TILE)
    strides = *q.stride(), *k.stride(), *v.stride(), *do.stride()
    G = H // H_kv
    with device_of(q):
        launch(
            statistics_kernel, lambda tile: (B * H * triton.cdiv(S_q, tile["BLOCK_M"]),),
            q, k, v, do, scale_q, scale_k, lse, delta, H, G, S_q, S_k, qk_scale, *strides, **common,
        )  # fmt: skip
        launch(
            dk_dv_kernel, lambda tile: (B * H_kv * triton.cdiv(S_k, tile["BLOCK_N"]),),
            q, k, v, do, *scales, lse, delta, dk, dv, H_kv, G, S_q, S_k, qk_scale, sm_scale, *strides, **common,
        )  # fmt: skip
        launch(
            dq_kernel, lambda tile: (B * H * triton.cdiv(S_q, tile["BLOCK_M"]),),
            q, k, v, do, *scales, lse, delta, dq, H, G, S_q, S_k, qk_scale, sm_scale, *strides, **common,
        )  # fmt: skip
    return finished_output(dq, dtype), finished_output(dk, dtype), finished_output(dv, dtype)
