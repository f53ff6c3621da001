"""Attention in Gluon for Hopper: a producer warp loads by TMA, consumer warpgroups multiply by wgmma.

Adds to `triton/specialized`: the source states the roles, layouts and barriers, so that the softmax of one block of
keys runs during the products of another.
"""

from typing import Any

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
from triton_kernels._runtime.configs import multiprocessors
from triton_kernels._runtime.contract import check_attention
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels.attention._configs_gluon import configuration, heads_together
from triton_kernels.attention._gluon_rows import (
    OUT_COLUMNS,
    ROWS,
    attend_by_key,
    hide,
    row_sums,
    store,
    store_statistics,
    weigh,
)
from triton_kernels.attention._gluon_tiles import tile_count, tile_number, tile_of, tile_table
from triton_kernels.attention._rows import LOG2_E

DETERMINISTIC = True
REQUIRES = "sm_90"
DTYPES = (torch.float16, torch.bfloat16)
HEAD_DIMS = (64, 128, 256)
STRIDES = [f"stride_{x}" for x in ("qb", "qh", "qm", "kb", "kh", "kn", "vb", "vh", "vn", "ob", "oh", "om")]
INTEGERS = ["H", "HEADS", "HEAD_GROUP", "S_q", "S_k", "G", *STRIDES]
tma_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared  # renamed after Triton 3.7


@gluon.jit
def fill(desc, smem, full, empty, count, b, h, row):
    """Loads the block of keys or values at `row` into the next stage, once its previous block has been read."""
    STAGES: gl.constexpr = smem.shape[0]
    stage = count % STAGES
    mbarrier.wait(empty.index(stage), (count // STAGES & 1) ^ 1)
    mbarrier.expect(full.index(stage), desc.block_type.nbytes)
    tma_load(desc, [b, h, row, 0], full.index(stage), smem.index(stage))


@gluon.jit
def load(q_desc, k_desc, v_desc, smem, barriers, table_ptr, sizes, CAUSAL: gl.constexpr):
    """The producer warp loads in the order of use: queries, then keys of block i + 1 before values of block i.

    The last block comes first, because it is the only masked one.
    """
    q_smem, k_smem, v_smem, _ = smem
    q_full, q_empty, k_full, k_empty, v_full, v_empty, _ = barriers
    _, HEADS, _, S_q, _, G = sizes
    CONSUMERS: gl.constexpr = q_smem.shape[0]
    BLOCK_M: gl.constexpr = ROWS * CONSUMERS
    BLOCK_N: gl.constexpr = k_smem.shape[3]
    count = 0
    tile = tile_number(table_ptr, 0)
    for turn in range(tile_count(table_ptr, HEADS * gl.cdiv(S_q, BLOCK_M))):
        b, h, start_m, blocks, _ = tile_of(tile, sizes, BLOCK_M, BLOCK_N, CAUSAL)
        tile = tile_number(table_ptr, turn + 1)
        row = (blocks - 1) * BLOCK_N
        for i in gl.static_range(CONSUMERS):
            mbarrier.wait(q_empty.index(i), (turn & 1) ^ 1)
            mbarrier.expect(q_full.index(i), q_desc.block_type.nbytes)
            tma_load(q_desc, [b, h, start_m + i * ROWS, 0], q_full.index(i), q_smem.index(i))
            if i == 0:
                fill(k_desc, k_smem, k_full, k_empty, count, b, h // G, row)
        for _ in range(1, blocks):
            fill(k_desc, k_smem, k_full, k_empty, count + 1, b, h // G, row - BLOCK_N)
            fill(v_desc, v_smem, v_full, v_empty, count, b, h // G, row)
            count += 1
            row -= BLOCK_N
        fill(v_desc, v_smem, v_full, v_empty, count, b, h // G, row)
        count += 1


@gluon.jit
def step(
    consumer: gl.constexpr, acc, p, alpha, m_i, l_i, q, smem, barriers, count, turn, last_key, start_n, qk_scale,
    masked, CAUSAL: gl.constexpr, PINGPONG: gl.constexpr, RESCALE_EARLY: gl.constexpr, LATE_SUM: gl.constexpr,
):  # fmt: skip
    """Computes the scores of block `count`, and adds the previous block, whose weights are p, to the output.

    The tensor cores compute the output while this warpgroup computes the softmax of the scores.
    """
    _, k_smem, v_smem, _ = smem
    _, _, k_full, k_empty, v_full, v_empty, turns = barriers
    STAGES: gl.constexpr = k_smem.shape[0]
    BLOCK_N: gl.constexpr = k_smem.shape[3]
    D: gl.constexpr = k_smem.shape[4]
    CONSUMERS: gl.constexpr = turns.shape[0]
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    stage = count % STAGES
    before = (count - 1) % STAGES
    mbarrier.wait(k_full.index(stage), count // STAGES & 1)
    if PINGPONG:
        # A tile takes one step fewer than it has blocks of keys. Both consumers take all steps.
        passed = count - turn - 1
        mbarrier.wait(turns.index(consumer), (passed & 1) ^ (1 if consumer == 0 else 0))
    s = gl.zeros([ROWS, BLOCK_N], gl.float32, SCORES)
    k = k_smem.index(stage).reshape([BLOCK_N, D])
    s = hopper.warpgroup_mma(q, k.permute([1, 0]), s, use_acc=False, is_async=True)
    if RESCALE_EARLY:
        acc *= alpha[:, None]
    mbarrier.wait(v_full.index(before), (count - 1) // STAGES & 1)
    acc = hopper.warpgroup_mma(p, v_smem.index(before).reshape([BLOCK_N, D]), acc, is_async=True)
    if PINGPONG:
        mbarrier.arrive(turns.index((consumer + 1) % CONSUMERS))
    s = hopper.warpgroup_mma_wait(1, deps=(s,))
    mbarrier.arrive(k_empty.index(stage))
    if CAUSAL:  # noqa: SIM102
        if masked:
            s = hide(s, last_key - start_n)
    weights, factor, m_i, l_i = weigh(s, m_i, l_i, qk_scale, LATE_SUM)
    # The barrier has already completed. Its loop keeps ptxas from moving the wait for the product before the softmax.
    mbarrier.wait(v_full.index(before), (count - 1) // STAGES & 1)
    # p and weights are operands of the wait: p keeps its registers until then, and weights are converted before it.
    weights = gl.convert_layout(weights.to(k_smem.dtype), p.type.layout)
    acc, p, weights = hopper.warpgroup_mma_wait(0, deps=(acc, p, weights))
    mbarrier.arrive(v_empty.index(before))
    alpha = gl.convert_layout(factor, alpha.type.layout)
    if not RESCALE_EARLY:
        acc *= alpha[:, None]
    return acc, weights, alpha, m_i, l_i


@gluon.jit
def consume(
    consumer: gl.constexpr, o_desc, smem, barriers, table_ptr, sizes, qk_scale, memory, strides, grad,
    CAUSAL: gl.constexpr, RAGGED: gl.constexpr, PINGPONG: gl.constexpr, RESCALE_EARLY: gl.constexpr,
    LATE_SUM: gl.constexpr,
):  # fmt: skip
    """A warpgroup computes 64 queries of each tile, one block of keys after the other, from the last to the first.

    m_i is the running maximum of the scores q k^T, and l_i the sum of exp2(qk_scale (score - m_i)). acc is the sum of
    exp2(qk_scale (score - m_i)) v and is one block behind. If `grad` has pointers, the statistics of the backward
    pass are stored instead of the output.
    """
    q_smem, k_smem, v_smem, o_smem = smem
    _, lse_ptr, _, _, _, _ = grad
    q_full, q_empty, k_full, k_empty, v_full, v_empty, _ = barriers
    _, HEADS, _, S_q, S_k, _ = sizes
    CONSUMERS: gl.constexpr = q_smem.shape[0]
    STAGES: gl.constexpr = k_smem.shape[0]
    BLOCK_M: gl.constexpr = ROWS * CONSUMERS
    BLOCK_N: gl.constexpr = k_smem.shape[3]
    D: gl.constexpr = k_smem.shape[4]
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    OUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(0, OUT, k_width=2)
    offs_m = consumer * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, SCORES))
    q = q_smem.index(consumer).reshape([ROWS, D])
    count = 0
    tile = tile_number(table_ptr, 0)
    for turn in range(tile_count(table_ptr, HEADS * gl.cdiv(S_q, BLOCK_M))):
        b, h, start_m, blocks, unmasked = tile_of(tile, sizes, BLOCK_M, BLOCK_N, CAUSAL)
        tile = tile_number(table_ptr, turn + 1)  # read early, so that nothing waits for it
        start_n = (blocks - 1) * BLOCK_N
        if CAUSAL:  # noqa: SIM108
            last_key = gl.minimum(start_m + offs_m + (S_k - S_q), S_k - 1)
        else:
            last_key = offs_m * 0 + (S_k - 1)
        mbarrier.wait(q_full.index(consumer), turn & 1)
        mbarrier.wait(k_full.index(count % STAGES), count // STAGES & 1)
        k = k_smem.index(count % STAGES).reshape([BLOCK_N, D])
        s = gl.zeros([ROWS, BLOCK_N], gl.float32, SCORES)
        s = hopper.warpgroup_mma(q, k.permute([1, 0]), s, use_acc=False, is_async=True)
        s = hopper.warpgroup_mma_wait(0, deps=(s,))
        mbarrier.arrive(k_empty.index(count % STAGES))
        m_i = gl.full([ROWS], float("-inf"), gl.float32, gl.SliceLayout(1, SCORES))
        if LATE_SUM:
            l_i = row_sums(gl.zeros([ROWS, BLOCK_N], gl.float32, SCORES), 8)
        else:
            l_i = gl.zeros([ROWS], gl.float32, gl.SliceLayout(1, SCORES))
        if CAUSAL or RAGGED:
            s = hide(s, last_key - start_n)
        weights, factor, m_i, l_i = weigh(s, m_i, l_i, qk_scale, LATE_SUM)
        p = gl.convert_layout(weights.to(k_smem.dtype), WEIGHTS)
        alpha = gl.convert_layout(factor, gl.SliceLayout(1, OUT))
        acc = gl.zeros([ROWS, D], gl.float32, OUT)
        count += 1
        for block in range(1, blocks):
            start_n -= BLOCK_N
            acc, p, alpha, m_i, l_i = step(
                consumer, acc, p, alpha, m_i, l_i, q, smem, barriers, count, turn, last_key, start_n, qk_scale,
                block < blocks - unmasked, CAUSAL, PINGPONG, RESCALE_EARLY, LATE_SUM,
            )  # fmt: skip
            count += 1
        mbarrier.arrive(q_empty.index(consumer))
        if RESCALE_EARLY:
            acc *= alpha[:, None]
        before = (count - 1) % STAGES
        mbarrier.wait(v_full.index(before), (count - 1) // STAGES & 1)
        acc = hopper.warpgroup_mma(p, v_smem.index(before).reshape([BLOCK_N, D]), acc, is_async=True)
        acc, p = hopper.warpgroup_mma_wait(0, deps=(acc, p))
        mbarrier.arrive(v_empty.index(before))
        if LATE_SUM:
            l_i = gl.sum(l_i, 1)
        total = gl.convert_layout(l_i, gl.SliceLayout(1, OUT))
        out = acc * (1.0 / total)[:, None]
        if CAUSAL:  # a query that sees no key gives zeros
            out = gl.where((gl.convert_layout(last_key, gl.SliceLayout(1, OUT)) >= 0)[:, None], out, 0.0)
        row = start_m + consumer * ROWS
        if lse_ptr is not None:
            lse = gl.convert_layout(m_i, gl.SliceLayout(1, OUT)) * qk_scale + gl.log2(total)
            if CAUSAL:  # a query that sees no key gets lse = infinity, which makes its weights 0
                lse = gl.where(gl.convert_layout(last_key, gl.SliceLayout(1, OUT)) >= 0, lse, float("inf"))
            store_statistics(out, lse, grad, sizes, b, h, row)
        elif CAUSAL:
            # The weight of a hidden key is 0, but 0 times NaN or infinity is NaN, and a product of tiles cannot leave
            # it out. Rows with a NaN are therefore computed again.
            if gl.max(gl.max((out != out).to(gl.int32), 1), 0) == 0:
                store(out, o_desc, o_smem, b, h, row, consumer, CONSUMERS)
            else:
                attend_by_key(memory, strides, grad, sizes, b, h, row, qk_scale, D)
        else:
            store(out, o_desc, o_smem, b, h, row, consumer, CONSUMERS)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=INTEGERS)
def gluon_kernel(
    q_desc, k_desc, v_desc, o_desc, q_ptr, k_ptr, v_ptr, out_ptr, table_ptr, H, HEADS, HEAD_GROUP, S_q, S_k, G,
    qk_scale, stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_vb, stride_vh, stride_vn,
    do_ptr, lse_ptr, delta_ptr, stride_ob, stride_oh, stride_om,
    CAUSAL: gl.constexpr, RAGGED: gl.constexpr, D: gl.constexpr,
    CONSUMERS: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr, PINGPONG: gl.constexpr,
    RESCALE_EARLY: gl.constexpr, LATE_SUM: gl.constexpr,
):  # fmt: skip
    """A program computes tiles of the output, [64 * CONSUMERS, D] of one head, in the order of tile_number.

    Each stage of keys, each stage of values and the queries of each consumer have two barriers: `full` completes when
    TMA has written them, `empty` when every consumer has read them. lse_ptr: if not None, the statistics of the
    backward pass are stored instead of the output.
    """
    DTYPE: gl.constexpr = q_desc.dtype
    OUT_BUFFERS: gl.constexpr = 2 if D > OUT_COLUMNS else 1
    q_smem = gl.allocate_shared_memory(DTYPE, [CONSUMERS, 1, 1, ROWS, D], q_desc.layout)
    k_smem = gl.allocate_shared_memory(DTYPE, [STAGES, 1, 1, BLOCK_N, D], k_desc.layout)
    v_smem = gl.allocate_shared_memory(DTYPE, [STAGES, 1, 1, BLOCK_N, D], v_desc.layout)
    o_smem = gl.allocate_shared_memory(DTYPE, [CONSUMERS * OUT_BUFFERS, 1, 1, ROWS, OUT_COLUMNS], o_desc.layout)
    q_full = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], mbarrier.MBarrierLayout())
    q_empty = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], mbarrier.MBarrierLayout())
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    k_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    turns = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(CONSUMERS):
        mbarrier.init(q_full.index(i), count=1)
        mbarrier.init(q_empty.index(i), count=1)
        mbarrier.init(turns.index(i), count=1)
    for i in gl.static_range(STAGES):
        mbarrier.init(k_full.index(i), count=1)
        mbarrier.init(k_empty.index(i), count=CONSUMERS)
        mbarrier.init(v_full.index(i), count=1)
        mbarrier.init(v_empty.index(i), count=CONSUMERS)
    hopper.fence_async_shared()

    smem = (q_smem, k_smem, v_smem, o_smem)
    barriers = (q_full, q_empty, k_full, k_empty, v_full, v_empty, turns)
    sizes = (H, HEADS, HEAD_GROUP, S_q, S_k, G)
    memory = (q_ptr, k_ptr, v_ptr, out_ptr)
    strides = (stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_vb, stride_vh, stride_vn)
    grad = (do_ptr, lse_ptr, delta_ptr, stride_ob, stride_oh, stride_om)
    # The consumers get the registers that the producer does not need.
    if CONSUMERS == 2:
        gl.warp_specialize(
            [
                (consume, (0, o_desc, smem, barriers, table_ptr, sizes, qk_scale, memory, strides, grad, CAUSAL,
                           RAGGED, PINGPONG, RESCALE_EARLY, LATE_SUM)),
                (consume, (1, o_desc, smem, barriers, table_ptr, sizes, qk_scale, memory, strides, grad, CAUSAL,
                           RAGGED, PINGPONG, RESCALE_EARLY, LATE_SUM)),
                (load, (q_desc, k_desc, v_desc, smem, barriers, table_ptr, sizes, CAUSAL)),
            ],
            worker_num_warps=[4, 1],
            worker_num_regs=[240, 24],
        )  # fmt: skip
    else:
        gl.static_assert(CONSUMERS == 3)
        gl.warp_specialize(
            [
                (consume, (0, o_desc, smem, barriers, table_ptr, sizes, qk_scale, memory, strides, grad, CAUSAL,
                           RAGGED, PINGPONG, RESCALE_EARLY, LATE_SUM)),
                (consume, (1, o_desc, smem, barriers, table_ptr, sizes, qk_scale, memory, strides, grad, CAUSAL,
                           RAGGED, PINGPONG, RESCALE_EARLY, LATE_SUM)),
                (consume, (2, o_desc, smem, barriers, table_ptr, sizes, qk_scale, memory, strides, grad, CAUSAL,
                           RAGGED, PINGPONG, RESCALE_EARLY, LATE_SUM)),
                (load, (q_desc, k_desc, v_desc, smem, barriers, table_ptr, sizes, CAUSAL)),
            ],
            worker_num_warps=[4, 4, 1],
            worker_num_regs=[160, 160, 24],
        )  # fmt: skip


def _launch(q: Tensor, k: Tensor, v: Tensor, out: Tensor, grad: tuple[Any, ...], causal: bool, qk_scale: float) -> None:
    """Launches the kernel for operands that TMA can read, with at least one key."""
    (B, H, S_q, D), (H_kv, S_k) = q.shape, k.shape[1:3]
    HEADS, G = B * H, H // H_kv
    tile = configuration(D, causal, HEADS, S_q, multiprocessors(q))
    BLOCK_M, BLOCK_N = int(ROWS) * tile.CONSUMERS, tile.BLOCK_N
    tiles = HEADS * triton.cdiv(S_q, BLOCK_M)
    programs = min(tiles, multiprocessors(q))
    head_group, table = 1, None
    if causal:
        head_group = heads_together(HEADS, G, tiles, programs, 2 * S_k * D * q.element_size())
        if tiles > programs:
            table = tile_table(programs, HEADS, head_group, S_q, S_k, BLOCK_M, BLOCK_N, device=q.device)
    launch(
        gluon_kernel, (programs,),
        descriptor(q, int(ROWS), D), descriptor(k, BLOCK_N, D), descriptor(v, BLOCK_N, D),
        descriptor(out, int(ROWS), int(OUT_COLUMNS)), q, k, v, out, table, H, HEADS, head_group, S_q, S_k, G, qk_scale,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *grad,
        CAUSAL=causal, RAGGED=not causal and S_k % BLOCK_N != 0, D=D, **tile._asdict(), num_warps=4,
    )  # fmt: skip


@kept
def attention(
    q: Float[Tensor, "B H S_q D"],
    k: Float[Tensor, "B H_kv S_k D"],
    v: Float[Tensor, "B H_kv S_k D"],
    *,
    causal: bool = False,
    sm_scale: float | None = None,
) -> Float[Tensor, "B H S_q D"]:
    """out = softmax(sm_scale q k^T) v, for each batch entry and head.

    Shapes: q (B, H, S_q, D), k and v (B, H_kv, S_k, D); query head h reads key head h // (H // H_kv). D is 64, 128 or
    256. An operand that TMA cannot read (it needs contiguous rows, each at a multiple of 16 bytes) is copied first. The
    output is contiguous. `sm_scale` defaults to 1 / sqrt(D).
    Causal: query i sees keys up to i + S_k - S_q; a query that sees no key gives zeros. NaN and infinities of hidden
    keys and values do not reach the result: 64 queries with a NaN are computed again, far more slowly.
    Dtypes: float16, bfloat16 (scores, softmax and accumulation in float32, the probabilities rounded once for the
    second product).
    Tail: TMA reads zeros beyond the last key, whose scores are masked, and does not write beyond the last query.
    Errors: ValueError for other shapes, dtypes or devices; NotImplementedError for float32, other D, a negative
    sm_scale, other GPUs; RuntimeError in a CUDA graph capture for a call that must compile or is causal with new sizes.
    Source: FlashAttention-3 (Shah et al., 2024): overlap of softmax and products within a warpgroup and between two.
    """
    check_attention(q, k, v)
    check_gpu("attention", "q", q)
    _check_limits(q, sm_scale)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    attend(q, k, v, out, causal, sm_scale)
    return out


def config(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, sm_scale: float | None = None) -> str:
    """The tile that `attention` runs; empty if there is nothing to compute."""
    if q.numel() == 0 or k.shape[2] == 0:
        return ""
    tile = configuration(q.shape[3], causal, q.shape[0] * q.shape[1], q.shape[2], multiprocessors(q))
    return f"gluon {int(ROWS) * tile.CONSUMERS}x{tile.BLOCK_N}"


def attend(q: Tensor, k: Tensor, v: Tensor, out: Tensor, causal: bool, sm_scale: float | None) -> None:
    """Writes the result of `attention` to `out` (B, H, S_q, D), with strides that TMA can write."""
    if q.numel() == 0 or k.shape[2] == 0:
        out.zero_()
        return
    sm_scale = q.shape[3] ** -0.5 if sm_scale is None else sm_scale
    qk_scale = max(sm_scale * LOG2_E, 2.0**-126)  # not 0, because 0 times the minus infinity of a masked score is NaN
    with device_of(q):
        _launch(tma_rows(q), tma_rows(k), tma_rows(v), out, (None, None, None, *out.stride()[:3]), causal, qk_scale)


def statistics(q: Tensor, k: Tensor, v: Tensor, do: Tensor, *, causal: bool, qk_scale: float) -> tuple[Tensor, Tensor]:
    """lse and delta, (B, H, S_q) in float32, for the backward pass; within `device_of(q)`.

    lse: base-2 logarithm of a row's sum of exp2(qk_scale q k^T); infinity where no key is seen. delta: sum of do * out.
    q, k and v must be readable by TMA; do has contiguous rows. Both results have memory for 2 * ROWS more numbers.
    """
    count = q.shape[:3].numel()
    rows = (torch.empty(count + 2 * int(ROWS), dtype=torch.float32, device=q.device) for _ in range(2))
    lse, delta = (each[:count].view(q.shape[:3]) for each in rows)
    _launch(q, k, v, q, (do, lse, delta, *do.stride()[:3]), causal, qk_scale)  # q in the place of an output
    return lse, delta


def _check_limits(q: Tensor, sm_scale: float | None) -> None:
    """Raises NotImplementedError for cases that the kernel does not cover."""
    if q.dtype not in DTYPES:
        raise NotImplementedError(f"attention: the tensor cores need float16 or bfloat16; got {q.dtype}")
    check_head(q.shape[3], HEAD_DIMS, sm_scale)
    if torch.cuda.get_device_capability(q.device)[0] != 9:
        raise NotImplementedError("attention: wgmma needs a Hopper GPU (compute capability 9.0)")
