"""The gradients of attention in Triton: a kernel for queries and one for keys; scores stay in registers."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._common.codes import check_float8
from triton_kernels._runtime.arguments import check_head, check_positions
from triton_kernels._runtime.autotuner import autotune
from triton_kernels._runtime.contract import check_attention_grad, check_window
from triton_kernels._runtime.interpreter import INTERPRET, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels.attention import Keys, Queries
from triton_kernels.attention._configs import TILE, configs, short_list
from triton_kernels.attention._masks import is_seen, key_range, last_keys
from triton_kernels.attention._rows import LOG2_E, LOWEST, load_rows, load_scale, own_tile

DETERMINISTIC = True
DTYPES_BEYOND = ("float8_e4m3fn",)
OPTIONS_BEYOND = ("window",)
HEAD_DIMS = (16, 32, 64, 128)

Scale = Float[Tensor, ""] | None


@triton.jit
def dot(x, y, acc=None):
    """acc + x y; x in y's dtype."""
    return tl.dot(x.to(y.dtype), y, acc, input_precision="ieee")


@triton.jit
def queries_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, scale_q_ptr, scale_k_ptr, scale_v_ptr, scale_do_ptr, lse_ptr, delta_ptr, dq_ptr,
    H, G, S_q, S_k, qk_scale, sm_scale,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_ob, stride_oh, stride_om, stride_od,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_M rows of dq of one head in two passes over the keys, and two numbers for each row.

    lse: base-2 logarithm of the sum of exp2(scores); infinity for a query that sees no key, so that its p are 0.
    delta: sum of p dp over the keys, without the scales of do and v.
    """
    qk_scale *= load_scale(scale_q_ptr) * load_scale(scale_k_ptr)
    head, start_m = own_tile(S_q, BLOCK_M)
    b, h = head // H, head % H
    rows = start_m + tl.arange(0, BLOCK_M)
    q = load_rows(q_ptr + b * stride_qb + h * stride_qh, rows, S_q, stride_qm, stride_qd, D)  # [BLOCK_M, D]
    do = load_rows(do_ptr + b * stride_ob + h * stride_oh, rows, S_q, stride_om, stride_od, D)  # [BLOCK_M, D]
    k_ptr += b * stride_kb + h // G * stride_kh
    v_ptr += b * stride_vb + h // G * stride_vh
    last_key = last_keys(rows, S_q, S_k, CAUSAL)
    first, end = key_range(start_m, S_q, S_k, CAUSAL, WINDOW, BLOCK_M, BLOCK_N)
    m_i = tl.full((BLOCK_M,), LOWEST, tl.float32)
    l_i = tl.zeros((BLOCK_M,), tl.float32)
    delta = tl.zeros((BLOCK_M,), tl.float32)
    for start_n in range(first, end, BLOCK_N):
        keys = start_n + tl.arange(0, BLOCK_N)
        k = load_rows(k_ptr, keys, S_k, stride_kn, stride_kd, D)  # [BLOCK_N, D]
        v = load_rows(v_ptr, keys, S_k, stride_vn, stride_vd, D)  # [BLOCK_N, D]
        seen = is_seen(keys[None, :], last_key[:, None], WINDOW)
        scores = tl.where(seen, dot(q, k.T) * qk_scale, float("-inf"))  # [BLOCK_M, BLOCK_N]
        m_new = tl.maximum(m_i, tl.max(scores, 1))
        p = tl.exp2(scores - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)  # brings the sums so far to the new maximum
        l_i = l_i * alpha + tl.sum(p, 1)
        delta = delta * alpha + tl.sum(p * dot(do, v.T), 1)
        m_i = m_new
    l_i = tl.where(last_key < 0, 1.0, l_i)
    lse, delta = tl.where(last_key < 0, float("inf"), m_i + tl.log2(l_i)), delta / l_i
    dq = tl.zeros((BLOCK_M, D), tl.float32)
    for start_n in range(first, end, BLOCK_N):
        keys = start_n + tl.arange(0, BLOCK_N)
        k = load_rows(k_ptr, keys, S_k, stride_kn, stride_kd, D)
        v = load_rows(v_ptr, keys, S_k, stride_vn, stride_vd, D)
        seen = is_seen(keys[None, :], last_key[:, None], WINDOW)
        p = tl.where(seen, tl.exp2(dot(q, k.T) * qk_scale - lse[:, None]), 0.0)  # [BLOCK_M, BLOCK_N]
        dq = dot(p * (dot(do, v.T) - delta[:, None]), k, dq)
    dq *= sm_scale * load_scale(scale_k_ptr) * load_scale(scale_v_ptr) * load_scale(scale_do_ptr)
    at = head * S_q + rows
    tl.store(lse_ptr + at, lse, mask=rows < S_q)
    tl.store(delta_ptr + at, delta, mask=rows < S_q)
    tl.store(dq_ptr + at[:, None] * D + tl.arange(0, D)[None, :], dq, mask=rows[:, None] < S_q)


@triton.jit
def keys_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, scale_q_ptr, scale_k_ptr, scale_v_ptr, scale_do_ptr, lse_ptr, delta_ptr,
    dk_ptr, dv_ptr, H_kv, G, S_q, S_k, qk_scale, sm_scale,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_ob, stride_oh, stride_om, stride_od,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_N rows of dk and dv of one key head, from all queries of its G query heads.

    p and ds have one key per row, so that they are the left operands of the products with do and q.
    """
    qk_scale *= load_scale(scale_q_ptr) * load_scale(scale_k_ptr)
    head, start_n = own_tile(S_k, BLOCK_N)
    b, h_kv = head // H_kv, head % H_kv
    keys = start_n + tl.arange(0, BLOCK_N)
    k = load_rows(k_ptr + b * stride_kb + h_kv * stride_kh, keys, S_k, stride_kn, stride_kd, D)  # [BLOCK_N, D]
    v = load_rows(v_ptr + b * stride_vb + h_kv * stride_vh, keys, S_k, stride_vn, stride_vd, D)  # [BLOCK_N, D]
    dk = tl.zeros((BLOCK_N, D), tl.float32)
    dv = tl.zeros((BLOCK_N, D), tl.float32)
    first = tl.maximum(start_n - (S_k - S_q), 0) // BLOCK_M * BLOCK_M if CAUSAL else 0
    end = tl.minimum(start_n + BLOCK_N - 1 - (S_k - S_q) + WINDOW, S_q) if WINDOW > 0 else S_q
    for h in range(h_kv * G, h_kv * G + G):
        at = (b * H_kv * G + h) * S_q
        for start_m in range(first, end, BLOCK_M):
            rows = start_m + tl.arange(0, BLOCK_M)
            q = load_rows(q_ptr + b * stride_qb + h * stride_qh, rows, S_q, stride_qm, stride_qd, D)  # [BLOCK_M, D]
            do = load_rows(do_ptr + b * stride_ob + h * stride_oh, rows, S_q, stride_om, stride_od, D)  # [BLOCK_M, D]
            inside = rows < S_q
            lse = tl.load(lse_ptr + at + rows, mask=inside, other=0.0)
            delta = tl.load(delta_ptr + at + rows, mask=inside, other=0.0)
            seen = is_seen(keys[:, None], last_keys(rows, S_q, S_k, CAUSAL)[None, :], WINDOW) & inside[None, :]
            p = tl.where(seen, tl.exp2(dot(k, q.T) * qk_scale - lse[None, :]), 0.0)  # [BLOCK_N, BLOCK_M]
            dv = dot(p, do, dv)
            dk = dot(p * (dot(v, do.T) - delta[None, :]), q, dk)
    dk *= sm_scale * load_scale(scale_q_ptr) * load_scale(scale_v_ptr) * load_scale(scale_do_ptr)
    offs = (head * S_k + keys[:, None]) * D + tl.arange(0, D)[None, :]
    tl.store(dk_ptr + offs, dk, mask=keys[:, None] < S_k)
    tl.store(dv_ptr + offs, dv * load_scale(scale_do_ptr), mask=keys[:, None] < S_k)


CONFIGS = configs((64, 128, 8, 2), (128, 64, 8, 2), (64, 64, 4, 2), (32, 128, 8, 2), (16, 32, 8, 2), (32, 32, 8, 2))
KEY = ["G", "S_q", "S_k", "D", "CAUSAL", "WINDOW"]
if not INTERPRET:
    queries_kernel = autotune(CONFIGS, ["H", *KEY], short_list)(queries_kernel)
    keys_kernel = autotune(CONFIGS, ["H_kv", *KEY], short_list)(keys_kernel)


@kept
def attention_grad(
    q: Queries, k: Keys, v: Keys, do: Queries,
    scale_q: Scale = None, scale_k: Scale = None, scale_v: Scale = None, scale_do: Scale = None,
    *, causal: bool = False, sm_scale: float | None = None, window: int | None = None,
) -> tuple[Queries, Keys, Keys]:  # fmt: skip
    """(dq, dk, dv): gradients of the sum of do * o, where o = softmax(sm_scale q k^T) v; forward and backward.

    With p = softmax(sm_scale q k^T), dp = do v^T and ds = p * (dp - delta), where delta = the row's sum of p * dp:
    dq = sm_scale ds k, dk = sm_scale ds^T q, dv = p^T do; dk and dv are sums over the query heads of a key head.
    Scores are computed three times instead of adding dq by atomic operations: the result is deterministic.
    Shapes: q and do (B, H, S_q, D), k and v (B, H_kv, S_k, D), any strides; D is a power of two from 16 to 128.
    `causal`, `sm_scale` and `window` are those of `attention`. A query that sees no key has gradient 0. Hidden pairs
    are weighted by 0: NaN and infinities of hidden rows can reach the gradients of rows of the same tile.
    Dtypes: float32 (ieee products and sums), float16, bfloat16 (scores, softmax and sums in float32; p and ds are
    rounded once for the products that follow). float8_e4m3fn: q, k, v and do have a float32 scale of shape () each, and
    the gradients of the scaled operands are bfloat16; the kernels widen all operands to bfloat16.
    Memory: two float32 numbers for each query. Tail: loads beyond the last row give 0.
    Errors: ValueError for other shapes, dtypes, scales or devices; NotImplementedError for other D, a negative
    sm_scale, S_q or S_k above 2^30, or float8 before compute capability 8.9.
    Source: FlashAttention-2 (Dao, 2023), without atomics as in Triton's fused attention tutorial.
    """
    scales = scale_q, scale_k, scale_v, scale_do
    B, H, H_kv, S_q, S_k, D = check_attention_grad(q, k, v, do, scales)
    near = check_window("attention_grad", window, causal, S_k)
    check_head(D, HEAD_DIMS, sm_scale, "attention_grad")
    check_positions("attention_grad", S_q, S_k)
    dtype = q.dtype
    if dtype == torch.float8_e4m3fn:
        check_float8("attention_grad", q)
        dtype = torch.bfloat16
    if q.numel() == 0 or k.numel() == 0:
        dq, dk, dv = (torch.zeros(x.shape, dtype=dtype, device=x.device) for x in (q, k, v))
        return dq, dk, dv
    sm_scale, G = D**-0.5 if sm_scale is None else sm_scale, H // H_kv
    dq, dk, dv = (empty_output(x.shape, dtype, x.device) for x in (q, k, v))
    lse, delta = (torch.empty((B, H, S_q), dtype=torch.float32, device=q.device) for _ in range(2))
    sizes = G, S_q, S_k, sm_scale * LOG2_E, sm_scale  # the kernels' exponentials are powers of 2
    strides = *q.stride(), *k.stride(), *v.stride(), *do.stride()
    options = dict(CAUSAL=causal, WINDOW=near, D=D, **TILE)
    with device_of(q):
        launch(
            queries_kernel, lambda tile: (B * H * triton.cdiv(S_q, tile["BLOCK_M"]),),
            q, k, v, do, *scales, lse, delta, dq, H, *sizes, *strides, **options,
        )  # fmt: skip
        launch(
            keys_kernel, lambda tile: (B * H_kv * triton.cdiv(S_k, tile["BLOCK_N"]),),
            q, k, v, do, *scales, lse, delta, dk, dv, H_kv, *sizes, *strides, **options,
        )  # fmt: skip
    return finished_output(dq, dtype), finished_output(dk, dtype), finished_output(dv, dtype)
