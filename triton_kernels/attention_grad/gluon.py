"""The gradients of attention in Gluon for Hopper: a producer warp loads by TMA, two warpgroups multiply by wgmma.

Adds to `triton/peeled`: warps with separate roles; p and its gradient stay in registers.
"""

import torch
import triton
from jaxtyping import Float
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

from triton_kernels._common.tma import descriptor, tma_rows
from triton_kernels._runtime.arguments import check_gpu, check_head
from triton_kernels._runtime.contract import check_attention_grad
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels.attention._gluon_rows import OUT_COLUMNS, ROWS, hide, store
from triton_kernels.attention._rows import LOG2_E
from triton_kernels.attention._softmax import GROUP_BYTES, head_and_rank
from triton_kernels.attention.gluon import DTYPES, statistics, tma_load

DETERMINISTIC = True
REQUIRES = "sm_90"

HEAD_DIMS = (64, 128)
QUERIES = 64
"""Queries per step of the kernel for dk and dv: the registers hold their scores beside two sums."""
KEYS = 128
"""Keys per step of the kernel for dq."""
CONSUMERS = gl.constexpr(2)
STAGES = 2
INTEGERS = ["H", "HEADS", "HEAD_GROUP", "S_q", "S_k", "G"]

Queries = Float[Tensor, "B H S_q D"]
Keys = Float[Tensor, "B H_kv S_k D"]


@gluon.jit
def hide_before(s, first):
    """Sets the scores of a row in columns before `first` to minus infinity. See `hide`."""
    parts = s.reshape([s.shape[0], s.shape[1] // 8, 4, 2])
    LAYOUT: gl.constexpr = parts.type.layout
    i = gl.arange(0, s.shape[1] // 8, gl.SliceLayout(0, gl.SliceLayout(2, gl.SliceLayout(3, LAYOUT))))
    t = gl.arange(0, 4, gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(3, LAYOUT))))
    j = gl.arange(0, 2, gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(2, LAYOUT))))
    first = gl.convert_layout(first, gl.SliceLayout(1, gl.SliceLayout(2, gl.SliceLayout(3, LAYOUT))))
    column = 8 * i[None, :, None, None] + j[None, None, None, :]
    limits = first[:, None, None, None] - 2 * t[None, None, :, None]
    parts = gl.where(column >= limits, parts, float("-inf"))
    return gl.convert_layout(parts.reshape(s.shape), s.type.layout)


@gluon.jit
def load_kept(a_desc, b_desc, a_smem, b_smem, full, b, h, row):
    """Loads the rows of two operands that stay in shared memory for the whole program, ROWS for each consumer."""
    mbarrier.expect(full.index(0), 2 * CONSUMERS * a_desc.block_type.nbytes)
    for i in gl.static_range(CONSUMERS):
        tma_load(a_desc, [b, h, row + i * ROWS, 0], full.index(0), a_smem.index(i))
        tma_load(b_desc, [b, h, row + i * ROWS, 0], full.index(0), b_smem.index(i))


@gluon.jit
def load_moving(a_desc, b_desc, smem, barriers, count, b, h, row):
    """Loads the next rows of the two operands that change in each step, once their stage is free."""
    _, _, a_smem, b_smem, _ = smem
    _, a_full, b_full, empty = barriers
    STAGES: gl.constexpr = a_smem.shape[0]
    stage = count % STAGES
    mbarrier.wait(empty.index(stage), (count // STAGES & 1) ^ 1)
    mbarrier.expect(a_full.index(stage), a_desc.block_type.nbytes)
    tma_load(a_desc, [b, h, row, 0], a_full.index(stage), a_smem.index(stage))
    mbarrier.expect(b_full.index(stage), b_desc.block_type.nbytes)
    tma_load(b_desc, [b, h, row, 0], b_full.index(stage), b_smem.index(stage))


@gluon.jit
def products(consumer: gl.constexpr, smem, barriers, count, dp):
    """Starts two products of kept and moving rows: the scores, and do v^T added to dp, or the transposes of both."""
    kept_a, kept_b, moving_a, moving_b, _ = smem
    _, a_full, b_full, _ = barriers
    STAGES: gl.constexpr = moving_a.shape[0]
    BLOCK: gl.constexpr = moving_a.shape[3]
    D: gl.constexpr = moving_a.shape[4]
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK, 16])
    stage = count % STAGES
    s = gl.zeros([ROWS, BLOCK], gl.float32, SCORES)
    mbarrier.wait(a_full.index(stage), count // STAGES & 1)
    a = moving_a.index(stage).reshape([BLOCK, D]).permute([1, 0])
    s = hopper.warpgroup_mma(kept_a.index(consumer).reshape([ROWS, D]), a, s, use_acc=False, is_async=True)
    mbarrier.wait(b_full.index(stage), count // STAGES & 1)
    b = moving_b.index(stage).reshape([BLOCK, D]).permute([1, 0])
    dp = hopper.warpgroup_mma(kept_b.index(consumer).reshape([ROWS, D]), b, dp, is_async=True)
    return s, dp


@gluon.jit
def add_queries(
    consumer: gl.constexpr, dk, dv, smem, barriers, lse_ptr, delta_ptr, start, end, count, row, shift, S_q, qk_scale,
    MASKED: gl.constexpr, PREFETCH: gl.constexpr,
):  # fmt: skip
    """Adds the contributions of queries start to end of one head to 64 rows of dk (without the scale) and dv.

    Returns dk, dv and the number of steps so far. row: the first key.
    Scores have one key per row, so that p and ds are left operands of the products with do and q, in registers. MASKED:
    query i does not see the keys beyond i + shift, or some of the queries lie beyond the last. PREFETCH: lse and delta
    are loaded one step ahead, which takes registers that masks need.
    """
    _, _, q_smem, do_smem, _ = smem
    _, _, _, empty = barriers
    STAGES: gl.constexpr = q_smem.shape[0]
    BLOCK_M: gl.constexpr = q_smem.shape[3]
    D: gl.constexpr = q_smem.shape[4]
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_M, 16])
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, dk.type.layout, k_width=2)
    offs_m = gl.arange(0, BLOCK_M, gl.SliceLayout(0, SCORES))
    if PREFETCH:
        lse = gl.load(lse_ptr + start + offs_m)
        delta = gl.load(delta_ptr + start + offs_m)
    for start_m in range(start, end, BLOCK_M):
        stage = count % STAGES
        if not PREFETCH:
            queries = start_m + offs_m
            inside = queries < S_q
            lse = gl.load(lse_ptr + queries, mask=inside, other=0.0) if MASKED else gl.load(lse_ptr + queries)
            delta = gl.load(delta_ptr + queries, mask=inside, other=0.0) if MASKED else gl.load(delta_ptr + queries)
        # The product is added to -delta; to subtract delta later would take registers throughout the step.
        dp = gl.zeros([ROWS, BLOCK_M], gl.float32, SCORES) - delta[None, :]
        s, dp = products(consumer, smem, barriers, count, dp)
        s = hopper.warpgroup_mma_wait(1, deps=(s,))
        if MASKED:
            keys = row + gl.arange(0, ROWS, gl.SliceLayout(1, SCORES))
            s = hide_before(s, keys - shift - start_m)
            s = hide(s, keys * 0 + (S_q - 1 - start_m))
        p = gl.exp2(s * qk_scale - lse[None, :])
        weights = gl.convert_layout(p.to(do_smem.dtype), OPERAND)
        dv = hopper.warpgroup_mma(weights, do_smem.index(stage).reshape([BLOCK_M, D]), dv, is_async=True)
        dp = hopper.warpgroup_mma_wait(1, deps=(dp,))
        ds = gl.convert_layout((p * dp).to(q_smem.dtype), OPERAND)
        dk = hopper.warpgroup_mma(ds, q_smem.index(stage).reshape([BLOCK_M, D]), dk, is_async=True)
        if PREFETCH:  # for the next step, while the products run; lse and delta have memory beyond the last query
            lse = gl.load(lse_ptr + start_m + BLOCK_M + offs_m)
            delta = gl.load(delta_ptr + start_m + BLOCK_M + offs_m)
        # Operands of the wait keep their registers until then.
        dk, dv, weights, ds = hopper.warpgroup_mma_wait(0, deps=(dk, dv, weights, ds))
        mbarrier.arrive(empty.index(stage))
        count += 1
    return dk, dv, count


@gluon.jit
def keep_keys(
    consumer: gl.constexpr, dk_desc, dv_desc, smem, barriers, lse_ptr, delta_ptr, b, h_kv, start_n, first, sizes,
    qk_scale, sm_scale, CAUSAL: gl.constexpr, RAGGED: gl.constexpr,
):  # fmt: skip
    """A warpgroup computes 64 rows of dk and dv, from all queries of all query heads of the key head."""
    _, _, q_smem, _, out_smem = smem
    H, S_q, S_k, G = sizes
    BLOCK_M: gl.constexpr = q_smem.shape[3]
    D: gl.constexpr = q_smem.shape[4]
    OUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    row = start_n + consumer * ROWS
    shift = S_k - S_q if CAUSAL else S_k
    whole = max(S_q // BLOCK_M * BLOCK_M, first)  # tiles before this one have no query beyond the last
    # From `full` on, every query sees all keys of the tile.
    full = min(gl.cdiv(max(row + ROWS - 1 - shift, first), BLOCK_M) * BLOCK_M, whole) if CAUSAL else first
    dk = gl.zeros([ROWS, D], gl.float32, OUT)
    dv = gl.zeros([ROWS, D], gl.float32, OUT)
    mbarrier.wait(barriers[0].index(0), 0)
    count = 0
    for g in range(G):
        before = (b * H + h_kv * G + g).to(gl.int64) * S_q
        if CAUSAL:
            dk, dv, count = add_queries(
                consumer, dk, dv, smem, barriers, lse_ptr + before, delta_ptr + before, first, full, count, row,
                shift, S_q, qk_scale, True, False,
            )  # fmt: skip
        dk, dv, count = add_queries(
            consumer, dk, dv, smem, barriers, lse_ptr + before, delta_ptr + before, full, whole, count, row,
            shift, S_q, qk_scale, False, not CAUSAL and not RAGGED,
        )  # fmt: skip
        if RAGGED:
            dk, dv, count = add_queries(
                consumer, dk, dv, smem, barriers, lse_ptr + before, delta_ptr + before, whole, S_q, count, row,
                shift, S_q, qk_scale, True, False,
            )  # fmt: skip
    store(dk * sm_scale, dk_desc, out_smem, b, h_kv, row, consumer, CONSUMERS)
    store(dv, dv_desc, out_smem, b, h_kv, row, consumer, CONSUMERS)
    tma.store_wait(0)


@gluon.jit
def move_queries(k_desc, v_desc, q_desc, do_desc, smem, barriers, b, h_kv, start_n, first, S_q, G):
    """The producer of `keep_keys`."""
    BLOCK_M: gl.constexpr = q_desc.block_type.shape[2]
    load_kept(k_desc, v_desc, smem[0], smem[1], barriers[0], b, h_kv, start_n)
    count = 0
    for g in range(G):
        for start_m in range(first, S_q, BLOCK_M):
            load_moving(q_desc, do_desc, smem, barriers, count, b, h_kv * G + g, start_m)
            count += 1


@gluon.jit
def keep_queries(
    consumer: gl.constexpr, dq_desc, smem, barriers, lse_ptr, delta_ptr, b, h, start_m, end, sizes, qk_scale, sm_scale,
    CAUSAL: gl.constexpr,
):  # fmt: skip
    """A warpgroup computes 64 rows of dq, from all keys before `end`."""
    _, _, k_smem, _, out_smem = smem
    kept_full, _, _, empty = barriers
    H, S_q, S_k, _ = sizes
    STAGES: gl.constexpr = k_smem.shape[0]
    BLOCK_N: gl.constexpr = k_smem.shape[3]
    D: gl.constexpr = k_smem.shape[4]
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    OUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, OUT, k_width=2)
    row = start_m + consumer * ROWS
    queries = row + gl.arange(0, ROWS, gl.SliceLayout(1, SCORES))
    last_key = gl.minimum(queries + (S_k - S_q), S_k - 1) if CAUSAL else queries * 0 + (S_k - 1)
    full = min(row + S_k - S_q + 1, S_k) if CAUSAL else S_k  # all these queries see the keys before this one
    before = (b * H + h).to(gl.int64) * S_q
    lse = gl.load(lse_ptr + before + queries, mask=queries < S_q, other=float("inf"))
    delta = gl.load(delta_ptr + before + queries, mask=queries < S_q, other=0.0)
    minus_delta = gl.zeros([ROWS, BLOCK_N], gl.float32, SCORES) - delta[:, None]
    dq = gl.zeros([ROWS, D], gl.float32, OUT)
    mbarrier.wait(kept_full.index(0), 0)
    for count in range(gl.cdiv(end, BLOCK_N)):
        start_n = count * BLOCK_N
        stage = count % STAGES
        s, dp = products(consumer, smem, barriers, count, minus_delta)
        s = hopper.warpgroup_mma_wait(1, deps=(s,))
        if start_n + BLOCK_N > full:
            s = hide(s, last_key - start_n)
        p = gl.exp2(s * qk_scale - lse[:, None])
        dp = hopper.warpgroup_mma_wait(0, deps=(dp,))
        ds = gl.convert_layout((p * dp).to(k_smem.dtype), OPERAND)
        dq = hopper.warpgroup_mma(ds, k_smem.index(stage).reshape([BLOCK_N, D]), dq, is_async=True)
        dq, ds = hopper.warpgroup_mma_wait(0, deps=(dq, ds))
        mbarrier.arrive(empty.index(stage))
    store(dq * sm_scale, dq_desc, out_smem, b, h, row, consumer, CONSUMERS)
    tma.store_wait(0)


@gluon.jit
def move_keys(q_desc, do_desc, k_desc, v_desc, smem, barriers, b, h, start_m, end, G):
    """The producer of `keep_queries`."""
    BLOCK_N: gl.constexpr = k_desc.block_type.shape[2]
    load_kept(q_desc, do_desc, smem[0], smem[1], barriers[0], b, h, start_m)
    for count in range(gl.cdiv(end, BLOCK_N)):
        load_moving(k_desc, v_desc, smem, barriers, count, b, h // G, count * BLOCK_N)


@gluon.jit
def allocate(kept_desc, moving_desc, out_desc, D: gl.constexpr, STAGES: gl.constexpr):
    """Allocates shared memory for two kept operands, two moving operands and the results, and the barriers.

    Full barriers complete when TMA has written; the empty one of a stage when both consumers have read it.
    """
    DTYPE: gl.constexpr = kept_desc.dtype
    BLOCK: gl.constexpr = moving_desc.block_type.shape[2]
    BUFFERS: gl.constexpr = CONSUMERS * (2 if D > OUT_COLUMNS else 1)
    kept_a = gl.allocate_shared_memory(DTYPE, [CONSUMERS, 1, 1, ROWS, D], kept_desc.layout)
    kept_b = gl.allocate_shared_memory(DTYPE, [CONSUMERS, 1, 1, ROWS, D], kept_desc.layout)
    moving_a = gl.allocate_shared_memory(DTYPE, [STAGES, 1, 1, BLOCK, D], moving_desc.layout)
    moving_b = gl.allocate_shared_memory(DTYPE, [STAGES, 1, 1, BLOCK, D], moving_desc.layout)
    out = gl.allocate_shared_memory(DTYPE, [BUFFERS, 1, 1, ROWS, OUT_COLUMNS], out_desc.layout)
    kept_full = gl.allocate_shared_memory(gl.int64, [1, 1], mbarrier.MBarrierLayout())
    a_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    b_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    mbarrier.init(kept_full.index(0), count=1)
    for i in gl.static_range(STAGES):
        mbarrier.init(a_full.index(i), count=1)
        mbarrier.init(b_full.index(i), count=1)
        mbarrier.init(empty.index(i), count=CONSUMERS)
    hopper.fence_async_shared()
    return (kept_a, kept_b, moving_a, moving_b, out), (kept_full, a_full, b_full, empty)


@gluon.jit(do_not_specialize=INTEGERS)
def gluon_dk_dv_kernel(
    q_desc, k_desc, v_desc, do_desc, dk_desc, dv_desc, lse_ptr, delta_ptr, H, HEADS, HEAD_GROUP, S_q, S_k, G,
    qk_scale, sm_scale, CAUSAL: gl.constexpr, RAGGED: gl.constexpr, D: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """A program computes 128 rows of dk and dv of one key head."""
    BLOCK_N: gl.constexpr = ROWS * CONSUMERS
    BLOCK_M: gl.constexpr = q_desc.block_type.shape[2]
    smem, barriers = allocate(k_desc, q_desc, dk_desc, D, STAGES)
    head, rank = head_and_rank(gl.program_id(0), gl.cdiv(S_k, BLOCK_N), HEADS, HEAD_GROUP)
    b = head // (H // G)
    h_kv = head % (H // G)
    start_n = rank * BLOCK_N  # the first keys, which most queries see when causal, come first
    first = max(start_n - (S_k - S_q), 0) // BLOCK_M * BLOCK_M if CAUSAL else 0
    sizes = (H, S_q, S_k, G)
    gl.warp_specialize(
        [
            (keep_keys, (0, dk_desc, dv_desc, smem, barriers, lse_ptr, delta_ptr, b, h_kv, start_n, first, sizes,
                         qk_scale, sm_scale, CAUSAL, RAGGED)),
            (keep_keys, (1, dk_desc, dv_desc, smem, barriers, lse_ptr, delta_ptr, b, h_kv, start_n, first, sizes,
                         qk_scale, sm_scale, CAUSAL, RAGGED)),
            (move_queries, (k_desc, v_desc, q_desc, do_desc, smem, barriers, b, h_kv, start_n, first, S_q, G)),
        ],
        worker_num_warps=[4, 1],
        worker_num_regs=[240, 24],
    )  # fmt: skip


@gluon.jit(do_not_specialize=INTEGERS)
def gluon_dq_kernel(
    q_desc, k_desc, v_desc, do_desc, dq_desc, lse_ptr, delta_ptr, H, HEADS, HEAD_GROUP, S_q, S_k, G,
    qk_scale, sm_scale, CAUSAL: gl.constexpr, D: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """A program computes 64 * CONSUMERS rows of dq of one head."""
    BLOCK_M: gl.constexpr = ROWS * CONSUMERS
    smem, barriers = allocate(q_desc, k_desc, dq_desc, D, STAGES)
    tiles = gl.cdiv(S_q, BLOCK_M)
    head, rank = head_and_rank(gl.program_id(0), tiles, HEADS, HEAD_GROUP)
    b = head // H
    h = head % H
    start_m = (tiles - 1 - rank) * BLOCK_M  # the last queries, which see most keys when causal, come first
    end = max(min(start_m + BLOCK_M + S_k - S_q, S_k), 0) if CAUSAL else S_k
    sizes = (H, S_q, S_k, G)
    gl.warp_specialize(
        [
            (keep_queries, (0, dq_desc, smem, barriers, lse_ptr, delta_ptr, b, h, start_m, end, sizes, qk_scale,
                            sm_scale, CAUSAL)),
            (keep_queries, (1, dq_desc, smem, barriers, lse_ptr, delta_ptr, b, h, start_m, end, sizes, qk_scale,
                            sm_scale, CAUSAL)),
            (move_keys, (q_desc, do_desc, k_desc, v_desc, smem, barriers, b, h, start_m, end, G)),
        ],
        worker_num_warps=[4, 1],
        worker_num_regs=[240, 24],
    )  # fmt: skip


@kept
def attention_grad(
    q: Queries, k: Keys, v: Keys, do: Queries, *, causal: bool = False, sm_scale: float | None = None
) -> tuple[Queries, Keys, Keys]:
    """(dq, dk, dv): gradients of the sum of do * o, where o = softmax(sm_scale q k^T) v; forward and backward.

    Shapes: q and do (B, H, S_q, D), k and v (B, H_kv, S_k, D); D is 64 or 128. An operand that TMA cannot read (it
    needs contiguous rows, each at a multiple of 16 bytes) is copied first. `causal` and `sm_scale` are those of
    `attention`. The forward pass is that of attention/gluon.py. Then scores are computed twice more, for dk and dv and
    for dq, instead of adding dq by atomic operations: the result is deterministic.
    Dtypes: float16, bfloat16 (scores, softmax and sums in float32; p and ds are rounded once for the products that
    follow). Tail: TMA reads zeros beyond the last row, whose scores are hidden, and does not write there.
    A query that sees no key has gradient 0. Hidden pairs are weighted by 0: NaN and infinities of hidden rows can
    reach the gradients of rows of the same tile.
    Errors: ValueError for other shapes, dtypes or devices; NotImplementedError for float32, other D, a negative
    sm_scale, other GPUs; RuntimeError for a call in a CUDA graph capture that must compile, or causal with new sizes.
    Source: FlashAttention-3 (Shah et al., 2024), with a second kernel for dq.
    """
    B, H, H_kv, S_q, S_k, D = check_attention_grad(q, k, v, do)
    check_gpu("attention_grad", "q", q)
    _check_limits(q, sm_scale)
    if q.numel() == 0 or k.numel() == 0:
        dq, dk, dv = (torch.zeros(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
        return dq, dk, dv
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    sm_scale = D**-0.5 if sm_scale is None else sm_scale
    qk_scale = max(sm_scale * LOG2_E, 2.0**-126)  # not 0, because 0 times the minus infinity of a hidden score is NaN
    G, rows = H // H_kv, int(ROWS)
    block = rows * int(CONSUMERS)
    keys_together, queries_together = (max(1, GROUP_BYTES // (4 * S * D)) for S in (S_k, S_q * G))
    with device_of(q):
        q, k, v, do = map(tma_rows, (q, k, v, do))
        lse, delta = statistics(q, k, v, do, causal=causal, qk_scale=qk_scale)
        q_kept, do_kept, k_kept, v_kept = (descriptor(x, rows, D) for x in (q, do, k, v))
        q_step, do_step = (descriptor(x, QUERIES, D) for x in (q, do))
        k_step, v_step = (descriptor(x, KEYS, D) for x in (k, v))
        dq_out, dk_out, dv_out = (descriptor(x, rows, int(OUT_COLUMNS)) for x in (dq, dk, dv))
        launch(
            gluon_dk_dv_kernel, (B * H_kv * triton.cdiv(S_k, block),),
            q_step, k_kept, v_kept, do_step, dk_out, dv_out, lse, delta, H, B * H_kv, queries_together, S_q, S_k, G,
            qk_scale, sm_scale, CAUSAL=causal, RAGGED=S_q % QUERIES != 0, D=D, STAGES=STAGES, num_warps=4,
        )  # fmt: skip
        launch(
            gluon_dq_kernel, (B * H * triton.cdiv(S_q, block),),
            q_kept, k_step, v_step, do_kept, dq_out, lse, delta, H, B * H, keys_together, S_q, S_k, G,
            qk_scale, sm_scale, CAUSAL=causal, D=D, STAGES=STAGES, num_warps=4,
        )  # fmt: skip
    return dq, dk, dv


def config(q: Tensor, k: Tensor, v: Tensor, do: Tensor, *, causal: bool = False, sm_scale: float | None = None) -> str:
    """The kernels that `attention_grad` runs; empty if there is nothing to compute."""
    return "gluon; gluon_dk_dv; gluon_dq" if q.numel() > 0 and k.numel() > 0 else ""


def _check_limits(q: Tensor, sm_scale: float | None) -> None:
    """Raises NotImplementedError for cases that the kernels do not cover."""
    if q.dtype not in DTYPES:
        raise NotImplementedError(f"attention_grad: the tensor cores need float16 or bfloat16; got {q.dtype}")
    check_head(q.shape[3], HEAD_DIMS, sm_scale)
    if torch.cuda.get_device_capability(q.device)[0] != 9:
        raise NotImplementedError("attention_grad: wgmma needs a Hopper GPU (compute capability 9.0)")
