"""The gradients of attention in Triton, with masked blocks in separate loops.

Adds to the plain kernels: blocks that every row of a tile sees need no mask, offsets within a block have 32 bits, and
heads that run together share the L2 cache.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.arguments import check_head
from triton_kernels._runtime.autotuner import autotune
from triton_kernels._runtime.contract import check_attention_grad
from triton_kernels._runtime.interpreter import INTERPRET, dot_operand, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels.attention._rows import LOG2_E, LOWEST
from triton_kernels.attention._softmax import GROUP_BYTES, head_and_rank, online_softmax
from triton_kernels.attention_grad import HEAD_DIMS, Keys, Queries
from triton_kernels.attention_grad._configs_peeled import CONFIGS, short_list, tuning_space  # noqa: F401

DETERMINISTIC = True


@triton.jit
def peeled_statistics_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, HEADS, H, G, S_q, S_k, HEAD_GROUP, qk_scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    CAUSAL: tl.constexpr, V_LIKE_K: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The forward pass: one program computes BLOCK_M rows of one head. It keeps two numbers of each row.

    lse: base-2 logarithm of the sum of exp2(scores); infinity for a row that sees no key, so that its p are 0.
    delta: sum over D of do * o. The output o itself is not stored.
    """
    tiles = tl.cdiv(S_q, BLOCK_M)
    head, rank = head_and_rank(tl.program_id(0), tiles, HEADS, HEAD_GROUP)
    head = head.to(tl.int64)
    b, h = head // H, head % H
    start_m = (tiles - 1 - rank) * BLOCK_M  # the last queries, which see most keys when causal, come first
    rows = start_m + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, D)
    inside = rows[:, None] < S_q
    q_ptr += b * stride_qb + h * stride_qh
    q = tl.load(q_ptr + rows[:, None].to(tl.int64) * stride_qm + offs_d[None, :], mask=inside, other=0.0)
    q = dot_operand(q)  # [BLOCK_M, D]
    k_ptr += b * stride_kb + h // G * stride_kh
    v_ptr += b * stride_vb + h // G * stride_vh

    last_key = tl.full((BLOCK_M,), S_k - 1, tl.int32)
    full = S_k // BLOCK_N * BLOCK_N  # every row sees the keys before this one
    end = S_k
    if CAUSAL:
        last_key = tl.minimum(rows + (S_k - S_q), S_k - 1)
        full = tl.minimum(tl.maximum(start_m + S_k - S_q + 1, 0), S_k) // BLOCK_N * BLOCK_N
        end = tl.minimum(start_m + BLOCK_M + S_k - S_q, S_k)
    m_i = tl.full((BLOCK_M,), LOWEST, tl.float32)
    l_i = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    acc, l_i, m_i = online_softmax(
        acc, l_i, m_i, q, k_ptr, v_ptr, 0, full, last_key, S_k, qk_scale, stride_kn, 1, stride_vn, 1,
        False, V_LIKE_K, "ieee", D, BLOCK_N,
    )  # fmt: skip
    k_ptr += tl.cast(full, tl.int64) * stride_kn
    v_ptr += tl.cast(full, tl.int64) * stride_vn
    acc, l_i, m_i = online_softmax(
        acc, l_i, m_i, q, k_ptr, v_ptr, full, end, last_key, S_k, qk_scale, stride_kn, 1, stride_vn, 1,
        True, V_LIKE_K, "ieee", D, BLOCK_N,
    )  # fmt: skip
    do_ptr += b * stride_ob + h * stride_oh
    do = tl.load(do_ptr + rows[:, None].to(tl.int64) * stride_om + offs_d[None, :], mask=inside, other=0.0)
    blind = last_key < 0
    delta = tl.sum(acc * do.to(tl.float32), 1) / tl.where(blind, 1.0, l_i)
    lse = tl.where(blind, float("inf"), m_i + tl.log2(l_i))
    tl.store(lse_ptr + head * S_q + rows, lse, mask=rows < S_q)
    tl.store(delta_ptr + head * S_q + rows, delta, mask=rows < S_q)


@triton.jit
def add_queries(
    dk, dv, k, v, q_ptr, do_ptr, lse_ptr, delta_ptr, start, end, keys, shift, S_q, qk_scale, stride_qm, stride_om,
    MASKED: tl.constexpr, O_LIKE_Q: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """Adds the contributions of queries start to end of one head to dk (without the scale) and dv.

    MASKED: query i does not see the keys beyond i + shift, or some of the queries lie beyond the last.
    """
    offs_m = tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, D)
    q_offs = offs_m[:, None] * stride_qm + offs_d[None, :]
    do_offs = q_offs if O_LIKE_Q else offs_m[:, None] * stride_om + offs_d[None, :]
    q_ptr += tl.cast(start, tl.int64) * stride_qm
    do_ptr += tl.cast(start, tl.int64) * stride_om
    q_step = tl.full((), BLOCK_M, tl.int64) * stride_qm
    do_step = tl.full((), BLOCK_M, tl.int64) * stride_om
    for start_m in range(start, end, BLOCK_M):
        rows = start_m + offs_m
        inside = rows < S_q
        q = tl.load(q_ptr + q_offs, mask=inside[:, None], other=0.0) if MASKED else tl.load(q_ptr + q_offs)
        q = dot_operand(q)  # [BLOCK_M, D]
        lse = tl.load(lse_ptr + rows, mask=inside) if MASKED else tl.load(lse_ptr + rows)
        qk = tl.dot(k, q.T, input_precision="ieee")  # [BLOCK_N, BLOCK_M]
        p = tl.exp2(tl.fma(qk, qk_scale, -lse[None, :]))
        if MASKED:
            p = tl.where((keys[:, None] <= rows[None, :] + shift) & inside[None, :], p, 0.0)
        do = tl.load(do_ptr + do_offs, mask=inside[:, None], other=0.0) if MASKED else tl.load(do_ptr + do_offs)
        do = dot_operand(do)  # [BLOCK_M, D]
        dp = tl.dot(v, do.T, input_precision="ieee")  # [BLOCK_N, BLOCK_M]
        dv = tl.dot(p.to(do.dtype), do, dv, input_precision="ieee")  # [BLOCK_N, D]
        delta = tl.load(delta_ptr + rows, mask=inside, other=0.0) if MASKED else tl.load(delta_ptr + rows)
        ds = p * (dp - delta[None, :])
        dk = tl.dot(ds.to(q.dtype), q, dk, input_precision="ieee")  # [BLOCK_N, D]
        q_ptr += q_step
        do_ptr += do_step
    return dk, dv


@triton.jit
def peeled_dk_dv_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dk_ptr, dv_ptr, HEADS, H_kv, G, S_q, S_k, HEAD_GROUP,
    qk_scale, sm_scale, stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    CAUSAL: tl.constexpr, O_LIKE_Q: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_N rows of dk and dv of one key head, from all queries of its G query heads.

    p^T and ds^T have one key per row, so that they are the left operands of the products with do and q.
    """
    head, rank = head_and_rank(tl.program_id(0), tl.cdiv(S_k, BLOCK_N), HEADS, HEAD_GROUP)
    head = head.to(tl.int64)
    b, h_kv = head // H_kv, head % H_kv
    start_n = rank * BLOCK_N  # the first keys, which most queries see when causal, come first
    keys = start_n + tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, D)
    inside = keys[:, None] < S_k
    k_ptr += b * stride_kb + h_kv * stride_kh
    v_ptr += b * stride_vb + h_kv * stride_vh
    k = tl.load(k_ptr + keys[:, None].to(tl.int64) * stride_kn + offs_d[None, :], mask=inside, other=0.0)
    v = tl.load(v_ptr + keys[:, None].to(tl.int64) * stride_vn + offs_d[None, :], mask=inside, other=0.0)
    k, v = dot_operand(k), dot_operand(v)  # [BLOCK_N, D]

    shift = S_k  # every query sees every key
    first = 0  # first query that sees a key of the tile
    full = 0  # from this query on, each query sees all keys of the tile
    if CAUSAL:
        shift = S_k - S_q
        first = tl.maximum(start_n - shift, 0) // BLOCK_M * BLOCK_M
        full = tl.cdiv(tl.maximum(start_n + BLOCK_N - 1 - shift, 0), BLOCK_M) * BLOCK_M
    whole = S_q // BLOCK_M * BLOCK_M  # number of queries in full tiles
    full = tl.minimum(full, whole)
    dk = tl.zeros((BLOCK_N, D), tl.float32)
    dv = tl.zeros((BLOCK_N, D), tl.float32)
    for g in range(0, G):
        h = h_kv * G + g
        rows_before = (b * H_kv * G + h) * S_q
        q_head = q_ptr + b * stride_qb + h * stride_qh
        do_head = do_ptr + b * stride_ob + h * stride_oh
        if CAUSAL:
            dk, dv = add_queries(
                dk, dv, k, v, q_head, do_head, lse_ptr + rows_before, delta_ptr + rows_before, first, full,
                keys, shift, S_q, qk_scale, stride_qm, stride_om, True, O_LIKE_Q, D, BLOCK_M,
            )  # fmt: skip
        dk, dv = add_queries(
            dk, dv, k, v, q_head, do_head, lse_ptr + rows_before, delta_ptr + rows_before, full, whole,
            keys, shift, S_q, qk_scale, stride_qm, stride_om, False, O_LIKE_Q, D, BLOCK_M,
        )  # fmt: skip
        dk, dv = add_queries(
            dk, dv, k, v, q_head, do_head, lse_ptr + rows_before, delta_ptr + rows_before, tl.maximum(first, whole),
            S_q, keys, shift, S_q, qk_scale, stride_qm, stride_om, True, O_LIKE_Q, D, BLOCK_M,
        )  # fmt: skip
    at = (head * S_k + keys[:, None]) * D + offs_d[None, :]
    tl.store(dk_ptr + at, dk * sm_scale, mask=inside)
    tl.store(dv_ptr + at, dv, mask=inside)


@triton.jit
def add_keys(
    dq, q, do, lse, delta, k_ptr, v_ptr, start, end, last_key, S_k, qk_scale, stride_kn, stride_vn,
    MASKED: tl.constexpr, V_LIKE_K: tl.constexpr, D: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Adds the contributions of keys start to end to dq (without the scale).

    MASKED: some keys are hidden from some rows, or lie beyond the last key.
    """
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, D)
    k_offs = offs_n[:, None] * stride_kn + offs_d[None, :]
    v_offs = k_offs if V_LIKE_K else offs_n[:, None] * stride_vn + offs_d[None, :]
    k_ptr += tl.cast(start, tl.int64) * stride_kn
    v_ptr += tl.cast(start, tl.int64) * stride_vn
    k_step = tl.full((), BLOCK_N, tl.int64) * stride_kn
    v_step = tl.full((), BLOCK_N, tl.int64) * stride_vn
    for start_n in range(start, end, BLOCK_N):
        keys = start_n + offs_n
        k = tl.load(k_ptr + k_offs, mask=keys[:, None] < S_k, other=0.0) if MASKED else tl.load(k_ptr + k_offs)
        v = tl.load(v_ptr + v_offs, mask=keys[:, None] < S_k, other=0.0) if MASKED else tl.load(v_ptr + v_offs)
        k, v = dot_operand(k), dot_operand(v)  # [BLOCK_N, D]
        qk = tl.dot(q, k.T, input_precision="ieee")  # [BLOCK_M, BLOCK_N]
        p = tl.exp2(tl.fma(qk, qk_scale, -lse[:, None]))
        if MASKED:
            p = tl.where(keys[None, :] <= last_key[:, None], p, 0.0)
        dp = tl.dot(do, v.T, input_precision="ieee")  # [BLOCK_M, BLOCK_N]
        ds = p * (dp - delta[:, None])
        dq = tl.dot(ds.to(k.dtype), k, dq, input_precision="ieee")  # [BLOCK_M, D]
        k_ptr += k_step
        v_ptr += v_step
    return dq


@triton.jit
def peeled_dq_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dq_ptr, HEADS, H, G, S_q, S_k, HEAD_GROUP,
    qk_scale, sm_scale, stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    CAUSAL: tl.constexpr, V_LIKE_K: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_M rows of dq of one head, from all keys."""
    tiles = tl.cdiv(S_q, BLOCK_M)
    head, rank = head_and_rank(tl.program_id(0), tiles, HEADS, HEAD_GROUP)
    head = head.to(tl.int64)
    b, h = head // H, head % H
    start_m = (tiles - 1 - rank) * BLOCK_M
    rows = start_m + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, D)
    inside = rows[:, None] < S_q
    q_ptr += b * stride_qb + h * stride_qh
    do_ptr += b * stride_ob + h * stride_oh
    q = tl.load(q_ptr + rows[:, None].to(tl.int64) * stride_qm + offs_d[None, :], mask=inside, other=0.0)
    do = tl.load(do_ptr + rows[:, None].to(tl.int64) * stride_om + offs_d[None, :], mask=inside, other=0.0)
    q, do = dot_operand(q), dot_operand(do)  # [BLOCK_M, D]
    lse = tl.load(lse_ptr + head * S_q + rows, mask=rows < S_q, other=float("inf"))
    delta = tl.load(delta_ptr + head * S_q + rows, mask=rows < S_q, other=0.0)
    k_ptr += b * stride_kb + h // G * stride_kh
    v_ptr += b * stride_vb + h // G * stride_vh

    last_key = tl.full((BLOCK_M,), S_k - 1, tl.int32)
    full = S_k // BLOCK_N * BLOCK_N
    end = S_k
    if CAUSAL:
        last_key = tl.minimum(rows + (S_k - S_q), S_k - 1)
        full = tl.minimum(tl.maximum(start_m + S_k - S_q + 1, 0), S_k) // BLOCK_N * BLOCK_N
        end = tl.minimum(start_m + BLOCK_M + S_k - S_q, S_k)
    dq = tl.zeros((BLOCK_M, D), tl.float32)
    dq = add_keys(
        dq, q, do, lse, delta, k_ptr, v_ptr, 0, full, last_key, S_k, qk_scale, stride_kn, stride_vn,
        False, V_LIKE_K, D, BLOCK_N,
    )  # fmt: skip
    dq = add_keys(
        dq, q, do, lse, delta, k_ptr, v_ptr, full, end, last_key, S_k, qk_scale, stride_kn, stride_vn,
        True, V_LIKE_K, D, BLOCK_N,
    )  # fmt: skip
    tl.store(dq_ptr + (head * S_q + rows[:, None]) * D + offs_d[None, :], dq * sm_scale, mask=inside)


if INTERPRET:  # without autotuning: one tile that numpy multiplies fast
    TILE: dict[str, int] = {"BLOCK_M": 128, "BLOCK_N": 128}
else:  # tuned, or timed once per key and kept in Triton's cache folder
    TILE = {}
    peeled_statistics_kernel, peeled_dk_dv_kernel, peeled_dq_kernel = (
        autotune(CONFIGS, ["HEADS", "G", "S_q", "S_k", "D", "CAUSAL"], short_list)(kernel)
        for kernel in (peeled_statistics_kernel, peeled_dk_dv_kernel, peeled_dq_kernel)
    )


@kept
def attention_grad(
    q: Queries, k: Keys, v: Keys, do: Queries, *, causal: bool = False, sm_scale: float | None = None
) -> tuple[Queries, Keys, Keys]:
    """(dq, dk, dv): gradients of the sum of do * o, where o = softmax(sm_scale q k^T) v; forward and backward.

    With p = softmax(sm_scale q k^T) and ds = p * (do v^T - delta), where delta = the row's sum of do * o:
    dq = sm_scale ds k, dk = sm_scale ds^T q, dv = p^T do; dk and dv are sums over the query heads of a key head.
    Shapes: q and do (B, H, S_q, D), k and v (B, H_kv, S_k, D), any strides (a tensor with a stride along D other than 1
    is copied); D is a power of two from 16 to 128. `causal` and `sm_scale` are those of `attention`.
    Three kernels: the forward pass keeps lse and delta of each row; dk and dv over tiles of keys; dq over tiles of
    queries. Scores are computed three times instead of adding dq by atomic operations: the result is deterministic.
    Dtypes: float32 (ieee products and sums), float16, bfloat16 (scores, softmax and sums in float32; p and ds are
    rounded once for the products that follow). Memory: two float32 numbers for each query.
    A query that sees no key has gradient 0. Hidden pairs are weighted by 0: NaN and infinities of hidden rows can
    reach the gradients of rows of the same tile.
    Errors: ValueError for other shapes, dtypes or devices; NotImplementedError for other D, a negative sm_scale, or
    strides along S of 2**22 or more.
    Source: FlashAttention-2 (Dao, 2023), without atomics as in Triton's fused attention tutorial.
    """
    check_attention_grad(q, k, v, do)
    B, H, S_q, D = q.shape
    H_kv, S_k = k.shape[1:3]
    q, k, v, do = (x if x.stride(3) == 1 else x.contiguous() for x in (q, k, v, do))
    _check_limits(q, k, v, do, sm_scale)
    if q.numel() == 0 or k.numel() == 0:
        dq, dk, dv = (torch.zeros(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
        return dq, dk, dv
    sm_scale = D**-0.5 if sm_scale is None else sm_scale
    dq, dk, dv = (empty_output(x.shape, x.dtype, x.device) for x in (q, k, v))
    G = H // H_kv
    strides = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *do.stride()[:3])
    options = {"CAUSAL": causal, "D": D, **TILE}
    keys_together, queries_together = (max(1, GROUP_BYTES // (2 * S * D * q.element_size())) for S in (S_k, S_q * G))
    qk_scale = sm_scale * LOG2_E
    with device_of(q):
        lse, delta = statistics(q, k, v, do, causal=causal, qk_scale=qk_scale)
        launch(
            peeled_dk_dv_kernel, lambda tile: (B * H_kv * triton.cdiv(S_k, tile["BLOCK_N"]),),
            q, k, v, do, lse, delta, dk, dv, B * H_kv, H_kv, G, S_q, S_k, queries_together, qk_scale, sm_scale,
            *strides, O_LIKE_Q=q.stride(2) == do.stride(2), **options,
        )  # fmt: skip
        launch(
            peeled_dq_kernel, lambda tile: (B * H * triton.cdiv(S_q, tile["BLOCK_M"]),),
            q, k, v, do, lse, delta, dq, B * H, H, G, S_q, S_k, keys_together, qk_scale, sm_scale, *strides,
            V_LIKE_K=k.stride(2) == v.stride(2), **options,
        )  # fmt: skip
    return finished_output(dq, q.dtype), finished_output(dk, q.dtype), finished_output(dv, q.dtype)


def statistics(
    q: Queries, k: Keys, v: Keys, do: Queries, *, causal: bool, qk_scale: float
) -> tuple[Float[Tensor, "B H S_q"], Float[Tensor, "B H S_q"]]:
    """lse and delta of `peeled_statistics_kernel`; the operands have contiguous rows. Called within `device_of(q)`."""
    (B, H, S_q, D), (H_kv, S_k) = q.shape, k.shape[1:3]
    lse, delta = (torch.empty((B, H, S_q), dtype=torch.float32, device=q.device) for _ in range(2))
    together = max(1, GROUP_BYTES // (2 * S_k * D * q.element_size()))
    launch(
        peeled_statistics_kernel, lambda tile: (B * H * triton.cdiv(S_q, tile["BLOCK_M"]),),
        q, k, v, do, lse, delta, B * H, H, H // H_kv, S_q, S_k, together, qk_scale,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *do.stride()[:3],
        CAUSAL=causal, V_LIKE_K=k.stride(2) == v.stride(2), D=D, **TILE,
    )  # fmt: skip
    return lse, delta


def config(q: Tensor, k: Tensor, v: Tensor, do: Tensor, *, causal: bool = False, sm_scale: float | None = None) -> str:
    """The kernels that `attention_grad` runs, whose tiles are tuned; empty if there is nothing to compute."""
    names = ("peeled_statistics", "peeled_dk_dv", "peeled_dq")
    return "; ".join(names) if q.numel() > 0 and k.numel() > 0 else ""


def _check_limits(q: Tensor, k: Tensor, v: Tensor, do: Tensor, sm_scale: float | None) -> None:
    """Raises NotImplementedError for cases that the kernels do not cover."""
    check_head(q.shape[3], HEAD_DIMS, sm_scale)
    if max(q.shape[2], k.shape[2]) > 2**30:
        raise NotImplementedError(f"attention_grad: S_q and S_k must be at most 2^30; got {q.shape[2]}, {k.shape[2]}")
    for name, x in (("q", q), ("k", k), ("v", v), ("do", do)):
        if x.stride(2) >= 2**22:
            raise NotImplementedError(f"attention_grad: {name}'s stride along S must be below 2**22; got {x.stride()}")
