"""Attention in Triton with the query heads of a key head packed into one tile, which reads its keys and values once.

Adds to the plain kernel: packed heads, TMA loads, an order of heads that shares the L2 cache, and separate loops for
blocks of keys with and without a mask.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._common.tma import describe, readable
from triton_kernels._runtime.autotuner import autotune
from triton_kernels._runtime.contract import check_attention, check_window
from triton_kernels._runtime.interpreter import INTERPRET, dot_operand, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels.attention._configs_packed import CONFIGS, set_blocks, short_list, tuning_space  # noqa: F401
from triton_kernels.attention._rows import LOG2_E, LOWEST
from triton_kernels.attention._softmax import (
    COLUMNS,
    check_limits,
    head_group,
    in_registers,
    keys_in_window,
    online_softmax,
    online_softmax_tma,
    recompute_by_key,
    row_pointers,
    store_tile,
    tile_of,
    visible_keys,
)

DETERMINISTIC = True
OPTIONS_BEYOND = ("window",)


@triton.jit(do_not_specialize=["S_k"])
def packed_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, k_desc, v_desc, HEADS, H_kv, S_q, S_k, HEAD_GROUP, qk_scale,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_ob, stride_oh, stride_om,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, V_LIKE_K: tl.constexpr, G: tl.constexpr, D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_M rows of the output for one batch entry and key head.

    The G query heads of a key head are packed: row r is query r // G of head r % G. They share the keys and values
    that a program reads. k_desc, v_desc: TMA descriptors for blocks of keys and values, or None.
    """
    head, start_m = tile_of(S_q * G, HEADS, HEAD_GROUP, BLOCK_M)
    b = (head // H_kv).to(tl.int64)
    h_kv = (head % H_kv).to(tl.int64)
    rows = start_m + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, D)
    q_ptrs = row_pointers(q_ptr + b * stride_qb, rows, h_kv, stride_qh, stride_qm, G)
    q_ptrs += offs_d[None, :].to(tl.int64) * stride_qd
    q = dot_operand(tl.load(q_ptrs, mask=rows[:, None] < S_q * G, other=0.0))  # [BLOCK_M, D]
    k_ptr += b * stride_kb + h_kv * stride_kh
    v_ptr += b * stride_vb + h_kv * stride_vh
    out_ptr += b * stride_ob

    last_key, full, end = visible_keys(start_m, S_q, S_k, CAUSAL, G, BLOCK_M, BLOCK_N)
    first, inner = 0, 0  # no row sees keys before `first`; all rows see those from `inner` to `full`
    if WINDOW > 0:
        first, inner = keys_in_window(start_m, S_q, S_k, full, WINDOW, G, BLOCK_M, BLOCK_N)
    m_i = tl.full((BLOCK_M,), LOWEST, tl.float32)
    l_i = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    if k_desc is None:
        k_near, v_near = k_ptr, v_ptr
        if WINDOW > 0:
            k_near += first.to(tl.int64) * stride_kn
            v_near += first.to(tl.int64) * stride_vn
            acc, l_i, m_i = online_softmax(
                acc, l_i, m_i, q, k_near, v_near, first, inner, last_key, S_k, qk_scale,
                stride_kn, stride_kd, stride_vn, stride_vd, True, V_LIKE_K, "ieee", D, BLOCK_N, WINDOW,
            )  # fmt: skip
            k_near = k_ptr + inner.to(tl.int64) * stride_kn
            v_near = v_ptr + inner.to(tl.int64) * stride_vn
        acc, l_i, m_i = online_softmax(
            acc, l_i, m_i, q, k_near, v_near, inner, full, last_key, S_k, qk_scale,
            stride_kn, stride_kd, stride_vn, stride_vd, False, V_LIKE_K, "ieee", D, BLOCK_N,
        )  # fmt: skip
        k_full = k_ptr + full.to(tl.int64) * stride_kn
        v_full = v_ptr + full.to(tl.int64) * stride_vn
        acc, l_i, m_i = online_softmax(
            acc, l_i, m_i, q, k_full, v_full, full, end, last_key, S_k, qk_scale,
            stride_kn, stride_kd, stride_vn, stride_vd, True, V_LIKE_K, "ieee", D, BLOCK_N, WINDOW,
        )  # fmt: skip
    else:
        at = b.to(tl.int32), h_kv.to(tl.int32)
        if D == 64:  # softmax takes as long as the products, and four programs fit on a multiprocessor
            q = in_registers(q, D)
            l_i = tl.zeros((BLOCK_M, COLUMNS), tl.float32)
        if WINDOW > 0:
            acc, l_i, m_i = online_softmax_tma(
                acc, l_i, m_i, q, k_desc, v_desc, at, first, inner, last_key, qk_scale, True, D, BLOCK_N, WINDOW
            )
        acc, l_i, m_i = online_softmax_tma(
            acc, l_i, m_i, q, k_desc, v_desc, at, inner, full, last_key, qk_scale, False, D, BLOCK_N
        )
        acc, l_i, m_i = online_softmax_tma(
            acc, l_i, m_i, q, k_desc, v_desc, at, full, end, last_key, qk_scale, True, D, BLOCK_N, WINDOW
        )
    out_ptrs = row_pointers(out_ptr, rows, h_kv, stride_oh, stride_om, G) + offs_d[None, :]
    if store_tile(out_ptrs, acc, l_i, last_key, rows, S_q * G, 1.0, CAUSAL):
        recompute_by_key(
            q_ptr + b * stride_qb, k_ptr, v_ptr, out_ptr, start_m, h_kv, S_q, S_k, S_k - S_q, qk_scale, 1.0,
            stride_qh, stride_qm, stride_qd, stride_kn, stride_kd, stride_vn, stride_vd, stride_oh, stride_om,
            G, D, BLOCK_M, WINDOW,
        )  # fmt: skip


if INTERPRET:  # without autotuning: one tile that numpy multiplies fast
    TILE: dict[str, int] = {"BLOCK_M": 128, "BLOCK_N": 128}
else:  # tuned, or timed once per key and kept in Triton's cache folder
    TILE = {}
    packed_kernel = autotune(CONFIGS, ["HEADS", "G", "S_q", "S_k", "D", "CAUSAL", "WINDOW"], short_list)(packed_kernel)


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
    Dtypes: float32 (ieee products and sums), float16, bfloat16 (scores, softmax and accumulation in float32, the
    probabilities rounded once for the second product).
    Loads: TMA reads keys and values of 16 bits where it can (it needs contiguous rows, each at a multiple of 16 bytes).
    Queries are then in registers if D is 64.
    Window: query i sees only that many keys, up to its own. Blocks before the first window are skipped, and blocks in
    which some windows begin are masked.
    Tail: only the blocks on the diagonal and the last block are masked; blocks without visible keys are skipped.
    Errors: ValueError for other shapes, dtypes or devices; NotImplementedError for other D, a negative sm_scale, or
    strides of k and v along S_k or D of 2**22 or more.
    Source: FlashAttention-2 (Dao, 2023), with the query heads of a key head packed as in FlashAttention-3.
    """
    check_attention(q, k, v)
    near = check_window("attention", window, causal, k.shape[2])
    check_limits(q, k, v, sm_scale)
    out = empty_output(q.shape, q.dtype, q.device)
    attend(q, k, v, out, causal, sm_scale, near)
    return finished_output(out, q.dtype)


def config(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, sm_scale: float | None = None, window: int | None = None
) -> str:
    """The kernel that `attention` runs, whose tile is tuned; empty if there is nothing to compute."""
    return "packed" if q.numel() > 0 and k.shape[2] > 0 else ""


def attend(q: Tensor, k: Tensor, v: Tensor, out: Tensor, causal: bool, sm_scale: float | None, window: int = 0) -> None:
    """Writes the result of `attention` to `out` (B, H, S_q, D), with any strides and contiguous rows.

    window: 0 for none.
    """
    (B, H, S_q, D), (H_kv, S_k) = q.shape, k.shape[1:3]
    if q.numel() == 0 or S_k == 0:
        out.zero_()
        return
    G, HEADS = H // H_kv, B * H_kv
    qk_scale = (D**-0.5 if sm_scale is None else sm_scale) * LOG2_E
    with device_of(q):
        descs = [describe(x) for x in (k, v)] if _by_tma(k) and _by_tma(v) else [None, None]
        if INTERPRET:
            set_blocks({"k_desc": descs[0], "v_desc": descs[1], "D": D, **TILE})
        launch(
            packed_kernel, lambda tile: (HEADS * triton.cdiv(S_q * G, tile["BLOCK_M"]),),
            q, k, v, out, *descs, HEADS, H_kv, S_q, S_k, head_group(HEADS, 2 * S_k * D * q.element_size()), qk_scale,
            *q.stride(), *k.stride(), *v.stride(), *out.stride()[:3],
            CAUSAL=causal, WINDOW=window, V_LIKE_K=k.stride()[2:] == v.stride()[2:], G=G, D=D, **TILE,
        )  # fmt: skip


def _by_tma(x: Tensor) -> bool:
    """True if TMA can load blocks of keys or values: 16 bits, and rows that it can read."""
    has_tma = INTERPRET or torch.cuda.get_device_capability(x.device)[0] >= 9
    return has_tma and x.element_size() == 2 and readable(x)
