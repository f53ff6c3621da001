"""Attention in Triton, forward: softmax(q k^T) v in one pass over the keys, the scores never in memory."""

import itertools
from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

DETERMINISTIC = True
INTERPRET = tl.constexpr(triton.knobs.runtime.interpret)  # TRITON_INTERPRET=1 when this module was imported
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
OUT_DTYPE = torch.float32 if INTERPRET else None  # the interpreter truncates to bfloat16: it leaves rounding to torch
HEAD_DIMS = (16, 32, 64, 128, 256)
GROUP_BYTES = 2**24  # keys and values of the heads in flight together: a third of an H200's L2 cache
LOG2_E = 1.4426950408889634


def _config(BLOCK_M: int, BLOCK_N: int, num_warps: int, num_stages: int, maxnreg: int | None = None) -> triton.Config:
    tile = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N}
    return triton.Config(tile, num_warps=num_warps, num_stages=num_stages, maxnreg=maxnreg)


# Candidates by the largest D they suit. 128 queries a program halve the traffic from the L2 cache that 64 cause.
# Two programs of 8 warps and at most 128 registers a thread share a multiprocessor: while one is busy with its
# softmax, the tensor cores work for the other. 16 rows are for decoding.
HALF_CONFIGS = {
    64: [
        _config(128, 64, 8, 3, maxnreg=128),
        _config(128, 128, 8, 3),
        _config(128, 64, 4, 3),
        _config(64, 64, 4, 3),
        _config(16, 128, 4, 3),
        _config(16, 64, 4, 4),
    ],
    128: [
        _config(128, 64, 8, 2, maxnreg=128),
        _config(128, 128, 8, 2),
        _config(128, 128, 8, 3),
        _config(128, 64, 8, 3),
        _config(64, 64, 4, 3),
        _config(16, 64, 8, 3),
        _config(16, 64, 4, 4),
    ],
    256: [
        _config(128, 64, 8, 2),
        _config(128, 32, 8, 3),
        _config(64, 64, 8, 2),
        _config(64, 32, 4, 2),
        _config(16, 64, 4, 2),
        _config(16, 32, 4, 4),
    ],
}
IEEE_CONFIGS = {  # no tensor cores: small tiles, since the operands of a thread's multiply-adds pass through registers
    64: [_config(64, 32, 8, 2), _config(32, 32, 4, 2), _config(16, 64, 4, 2)],
    128: [
        _config(64, 16, 16, 2),
        _config(64, 16, 8, 3),
        _config(32, 16, 8, 2),
        _config(32, 16, 4, 2),
        _config(16, 32, 8, 2),
    ],
    256: [_config(64, 16, 16, 2), _config(32, 32, 8, 2), _config(32, 16, 8, 2), _config(16, 32, 8, 2)],
}


def _candidates(configs: list[triton.Config], args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The configurations for this D and dtype, as far as their tiles suit the queries."""
    by_head = IEEE_CONFIGS if args["q_ptr"].dtype == torch.float32 else HALF_CONFIGS
    return _suiting(by_head[max(64, constants["D"])], args, constants)


def tuning_space(args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """What a search that may take minutes tries beyond the candidates: whatever has its output and its scores in at
    most 160 registers a thread (16 bits) or 64 (float32), and its stages of keys and values in shared memory."""
    q, D = args["q_ptr"], constants["D"]
    ieee = q.dtype == torch.float32
    shared = torch.cuda.get_device_properties(q.device).shared_memory_per_multiprocessor - 1024
    rows = (16, 32, 64, 128, 256) if D <= 64 else (16, 32, 64, 128)
    keys = (16, 32, 64) if ieee else (32, 64, 128, 256)
    found = []
    for BLOCK_M, BLOCK_N, warps, stages in itertools.product(rows, keys, (4, 8, 16), (2, 3, 4)):
        registers = BLOCK_M * (D + BLOCK_N) // (32 * warps)
        fits = (BLOCK_M + 2 * stages * BLOCK_N) * D * q.element_size() <= shared
        if fits and registers <= (64 if ieee else 160) and (registers >= 32 or warps == 4):
            found.append(_config(BLOCK_M, BLOCK_N, warps, stages))
            if not ieee and warps == 8 and registers <= 104:
                found.append(_config(BLOCK_M, BLOCK_N, warps, stages, maxnreg=128))
    return _suiting(found, args, constants)


def _suiting(configs: list[triton.Config], args: dict[str, Any], constants: dict[str, Any]) -> list[triton.Config]:
    """The configurations less those whose tiles overhang the queries far or cut them small."""
    rows = args["S_q"] * constants["G"]
    padded = {config: triton.cdiv(rows, b := config.kwargs["BLOCK_M"]) * b for config in configs}
    configs = [config for config in configs if padded[config] <= 2 * min(padded.values())]
    largest = max(config.kwargs["BLOCK_M"] for config in configs)
    return [config for config in configs if config.kwargs["BLOCK_M"] >= largest // 2]


@triton.jit
def attend(
    acc, l_i, m_i, q, k_ptr, v_ptr, start, end, last_key, S_k, qk_scale, stride_kn, stride_kd, stride_vn, stride_vd,
    MASKED: tl.constexpr, V_LIKE_K: tl.constexpr, PRECISION: tl.constexpr, D: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The online softmax over keys start to end; k_ptr and v_ptr point to key `start`.

    m_i is the running maximum of the scores, in units of log 2, l_i the sum of exp2(score - m_i), and acc the sum of
    exp2(score - m_i) v. MASKED blocks hold keys that some row must not see, or that lie beyond the last.
    """
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, D)
    # Within a block 32 bits are enough (the launcher sees to it), and they spare registers; the bases are 64 bits wide.
    k_offs = offs_n[:, None] * stride_kn + offs_d[None, :] * stride_kd
    v_offs = k_offs if V_LIKE_K else offs_n[:, None] * stride_vn + offs_d[None, :] * stride_vd
    k_step = tl.full((), BLOCK_N, tl.int64) * stride_kn
    v_step = tl.full((), BLOCK_N, tl.int64) * stride_vn
    for start_n in range(start, end, BLOCK_N):
        keys = start_n + offs_n
        k = tl.load(k_ptr + k_offs, mask=keys[:, None] < S_k, other=0.0) if MASKED else tl.load(k_ptr + k_offs)
        if INTERPRET:  # its dot is wrong for bfloat16
            k = k.to(tl.float32)
        qk = tl.dot(q, k.T, input_precision=PRECISION)  # [BLOCK_M, BLOCK_N]
        if MASKED:
            qk = tl.where(keys[None, :] <= last_key[:, None], qk * qk_scale, float("-inf"))
            m_new = tl.maximum(m_i, tl.max(qk, 1))
            m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)  # no key seen yet: exp2(-inf - 0) is 0, not NaN
            p = tl.exp2(qk - m_safe[:, None])
            alpha = tl.exp2(m_i - m_safe)
        else:
            m_new = tl.maximum(m_i, tl.max(qk, 1) * qk_scale)
            p = tl.exp2(tl.fma(qk, qk_scale, -m_new[:, None]))
            alpha = tl.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = tl.load(v_ptr + v_offs, mask=keys[:, None] < S_k, other=0.0) if MASKED else tl.load(v_ptr + v_offs)
        if INTERPRET:
            v = v.to(tl.float32)
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision=PRECISION)  # [BLOCK_M, D]
        m_i = m_new
        k_ptr += k_step
        v_ptr += v_step
    return acc, l_i, m_i


@triton.jit
def attend_by_key(
    q_ptr, k_ptr, v_ptr, out_ptr, start_m, h_kv, S_q, S_k, qk_scale, stride_qh, stride_qm, stride_qd,
    stride_kn, stride_kd, stride_vn, stride_vd, stride_oh, stride_om,
    G: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """Computes and stores rows start_m to start_m + BLOCK_M of one key head, with a causal mask, one key at a time.

    What a row must not see is left out instead of weighed with 0. A few rows at a time take few registers.
    """
    ROWS: tl.constexpr = 16
    offs_d = tl.arange(0, D).to(tl.int64)
    for start in tl.range(start_m, start_m + BLOCK_M, ROWS, num_stages=1):
        rows = start + tl.arange(0, ROWS)
        queries = (rows // G).to(tl.int64)
        heads = h_kv * G + rows % G
        row_mask = rows[:, None] < S_q * G
        q_ptrs = q_ptr + heads[:, None] * stride_qh + queries[:, None] * stride_qm + offs_d[None, :] * stride_qd
        q = tl.load(q_ptrs, mask=row_mask, other=0.0).to(tl.float32)  # [ROWS, D]
        m_i = tl.full((ROWS,), float("-inf"), tl.float32)
        l_i = tl.zeros((ROWS,), tl.float32)
        acc = tl.zeros((ROWS, D), tl.float32)
        k_ptrs = k_ptr + offs_d * stride_kd
        v_ptrs = v_ptr + offs_d * stride_vd
        for key in tl.range(0, tl.minimum((start + ROWS - 1) // G + S_k - S_q + 1, S_k), num_stages=1):
            seen = key <= queries + (S_k - S_q)
            qk = tl.sum(q * tl.load(k_ptrs).to(tl.float32)[None, :], 1) * qk_scale
            qk = tl.where(seen, qk, float("-inf"))
            m_new = tl.maximum(m_i, qk)
            m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
            p = tl.exp2(qk - m_safe)
            alpha = tl.exp2(m_i - m_safe)
            l_i = l_i * alpha + p
            pv = p[:, None] * tl.load(v_ptrs).to(tl.float32)[None, :]
            acc = acc * alpha[:, None] + tl.where(seen[:, None], pv, 0.0)
            m_i = m_new
            k_ptrs += stride_kn
            v_ptrs += stride_vn
        out_ptrs = out_ptr + heads[:, None] * stride_oh + queries[:, None] * stride_om + offs_d[None, :]
        tl.store(out_ptrs, acc / tl.where(l_i == 0.0, 1.0, l_i)[:, None], mask=row_mask)


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, HEADS, H_kv, S_q, S_k, HEAD_GROUP, qk_scale,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_ob, stride_oh, stride_om,
    CAUSAL: tl.constexpr, V_LIKE_K: tl.constexpr, G: tl.constexpr, D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_M rows of the output for one batch entry and key head.

    The G query heads that share a key head are interleaved: row r is query r // G of head r % G. So they share the
    keys and values a program reads, and decoding (S_q = 1) still fills a tile.
    """
    # Heads advance together, HEAD_GROUP at a time, so that their keys and values stay in the L2 cache. Within a group
    # the last queries, which see most keys when causal, come first, and short programs fill in at the end.
    pid = tl.program_id(0)
    tiles = tl.cdiv(S_q * G, BLOCK_M)
    first_head = pid // (HEAD_GROUP * tiles) * HEAD_GROUP
    group = min(HEADS - first_head, HEAD_GROUP)
    within = pid % (HEAD_GROUP * tiles)
    head = first_head + within % group
    b = (head // H_kv).to(tl.int64)
    h_kv = (head % H_kv).to(tl.int64)
    start_m = (tiles - 1 - within // group) * BLOCK_M

    rows = start_m + tl.arange(0, BLOCK_M)
    queries = rows // G
    heads = h_kv * G + rows % G
    offs_d = tl.arange(0, D)
    row_mask = rows[:, None] < S_q * G
    q_ptrs = q_ptr + b * stride_qb + heads[:, None] * stride_qh + queries[:, None].to(tl.int64) * stride_qm
    q = tl.load(q_ptrs + offs_d[None, :].to(tl.int64) * stride_qd, mask=row_mask, other=0.0)  # [BLOCK_M, D]
    if INTERPRET:
        q = q.to(tl.float32)
    k_ptr += b * stride_kb + h_kv * stride_kh
    v_ptr += b * stride_vb + h_kv * stride_vh

    # Every row sees every key before `full`, and no row sees one from `end` on.
    if CAUSAL:
        shift = S_k - S_q
        last_key = tl.minimum(queries + shift, S_k - 1)
        full = tl.minimum(tl.maximum(start_m // G + shift + 1, 0), S_k) // BLOCK_N * BLOCK_N
        end = tl.minimum((start_m + BLOCK_M - 1) // G + shift + 1, S_k)
    else:
        last_key = tl.full((BLOCK_M,), S_k - 1, tl.int32)
        full = S_k // BLOCK_N * BLOCK_N
        end = S_k
    m_i = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    l_i = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    acc, l_i, m_i = attend(
        acc, l_i, m_i, q, k_ptr, v_ptr, 0, full, last_key, S_k, qk_scale, stride_kn, stride_kd, stride_vn, stride_vd,
        False, V_LIKE_K, "ieee", D, BLOCK_N,
    )  # fmt: skip
    k_full = k_ptr + full.to(tl.int64) * stride_kn
    v_full = v_ptr + full.to(tl.int64) * stride_vn
    acc, l_i, m_i = attend(
        acc, l_i, m_i, q, k_full, v_full, full, end, last_key, S_k, qk_scale,
        stride_kn, stride_kd, stride_vn, stride_vd, True, V_LIKE_K, "ieee", D, BLOCK_N,
    )  # fmt: skip
    # The weight of a hidden key is 0, but 0 times NaN or infinity is NaN, and a product of tiles cannot leave it out.
    # So a tile with a NaN is not stored, but computed again.
    nans = tl.max(tl.max((acc != acc).to(tl.int32), 1), 0) if CAUSAL else 0
    out = acc / tl.where(l_i == 0.0, 1.0, l_i)[:, None]  # a row that saw no key is 0
    out_ptrs = out_ptr + b * stride_ob + heads[:, None] * stride_oh + queries[:, None].to(tl.int64) * stride_om
    tl.store(out_ptrs + offs_d[None, :], out, mask=rows[:, None] < tl.where(nans == 0, S_q * G, 0))
    if nans > 0:
        attend_by_key(
            q_ptr + b * stride_qb, k_ptr, v_ptr, out_ptr + b * stride_ob, start_m, h_kv, S_q, S_k, qk_scale,
            stride_qh, stride_qm, stride_qd, stride_kn, stride_kd, stride_vn, stride_vd, stride_oh, stride_om,
            G, D, BLOCK_M,
        )  # fmt: skip


if INTERPRET:  # no device to time configurations on: one tile that numpy multiplies fast
    TILE: dict[str, int] = {"BLOCK_M": 128, "BLOCK_N": 128}
else:  # timed once for each key, and kept in Triton's cache directory
    TILE = {}
    attention_kernel = triton.autotune(
        configs=[c for configs in (*HALF_CONFIGS.values(), *IEEE_CONFIGS.values()) for c in configs],
        key=["HEADS", "G", "S_q", "S_k", "D", "CAUSAL"],
        prune_configs_by={"early_config_prune": _candidates},
        cache_results=True,
    )(attention_kernel)


def attention(
    q: Float[Tensor, "B H S_q D"],
    k: Float[Tensor, "B H_kv S_k D"],
    v: Float[Tensor, "B H_kv S_k D"],
    *,
    causal: bool = False,
    sm_scale: float | None = None,
) -> Float[Tensor, "B H S_q D"]:
    """out = softmax(sm_scale q k^T) v, for each batch entry and head.

    Shapes: q (B, H, S_q, D), k and v (B, H_kv, S_k, D), any strides; query head h reads key head h // (H // H_kv). D is
    a power of two from 16 to 256. The output is contiguous.
    Causal: query i sees keys up to i + S_k - S_q; a query that sees no key gives zeros. NaN and infinities in what a
    query does not see do not reach it: a tile of queries whose result has a NaN is computed again, far more slowly.
    Dtypes: float32 (ieee products and sums), float16, bfloat16 (scores, softmax and accumulation in float32, the
    probabilities rounded once for the second product).
    Tail: only the blocks on the diagonal and the last one mask; blocks that no row sees are skipped.
    Errors: ValueError for other shapes, dtypes or devices; NotImplementedError for other D, a negative sm_scale, or
    strides of k and v from 2**22.
    Source: FlashAttention-2 (Dao, 2023), with the query heads of a key head packed as in FlashAttention-3.
    """
    if q.ndim != 4:
        raise ValueError(f"attention: q must be (B, H, S_q, D); got {tuple(q.shape)}")
    B, H, S_q, D = q.shape
    if k.ndim != 4 or k.shape[0] != B or k.shape[3] != D:
        raise ValueError(
            f"attention: q is (B, H, S_q, D)={tuple(q.shape)}, so k must be ({B}, H_kv, S_k, {D}); got {tuple(k.shape)}"
        )
    H_kv, S_k = k.shape[1:3]
    if v.shape != k.shape:
        raise ValueError(
            f"attention: k is (B, H_kv, S_k, D)={tuple(k.shape)}, so v must be {tuple(k.shape)}; got {tuple(v.shape)}"
        )
    if H != 0 and (H_kv == 0 or H % H_kv != 0):
        raise ValueError(f"attention: H must be a multiple of H_kv; got H={H}, H_kv={H_kv}")
    if q.dtype not in DTYPES:
        raise ValueError(f"attention: q must be float32, float16 or bfloat16; got {q.dtype}")
    if k.dtype != q.dtype or v.dtype != q.dtype:
        raise ValueError(f"attention: q is {q.dtype}, so k and v must be too; got {k.dtype} and {v.dtype}")
    if k.device != q.device or v.device != q.device:
        raise ValueError(f"attention: q is on {q.device}, so k and v must be too; got {k.device} and {v.device}")
    if not (q.is_cuda or INTERPRET):
        raise ValueError(
            f"attention: q is on {q.device}; pass CUDA tensors, or set TRITON_INTERPRET=1 before importing this module"
        )
    if D not in HEAD_DIMS:
        raise NotImplementedError(f"attention: D must be one of {HEAD_DIMS}; got {D}")
    if sm_scale is None:
        sm_scale = D**-0.5
    if sm_scale < 0:
        raise NotImplementedError(f"attention: sm_scale must not be negative; got {sm_scale}")
    if max(*k.stride()[2:], *v.stride()[2:]) >= 2**22:
        raise NotImplementedError(
            f"attention: strides of k and v along S_k and D must be below 2**22; got {k.stride()} and {v.stride()}"
        )
    if q.is_cuda and q.device.index != torch.cuda.current_device():
        with torch.cuda.device(q.device):
            return attention(q, k, v, causal=causal, sm_scale=sm_scale)

    if q.numel() > 0 and S_k == 0:
        return torch.zeros(q.shape, dtype=q.dtype, device=q.device)
    out = torch.empty(q.shape, dtype=OUT_DTYPE or q.dtype, device=q.device)
    if q.numel() > 0:
        G = H // H_kv
        HEADS = B * H_kv
        HEAD_GROUP = min(HEADS, max(1, GROUP_BYTES // (2 * S_k * D * q.element_size())))
        attention_kernel[lambda tile: (HEADS * triton.cdiv(S_q * G, tile["BLOCK_M"]),)](
            q, k, v, out, HEADS, H_kv, S_q, S_k, HEAD_GROUP, sm_scale * LOG2_E,
            *q.stride(), *k.stride(), *v.stride(), *out.stride()[:3],
            CAUSAL=causal, V_LIKE_K=k.stride()[2:] == v.stride()[2:], G=G, D=D, **TILE,
        )  # fmt: skip
    return out.to(q.dtype) if INTERPRET else out
