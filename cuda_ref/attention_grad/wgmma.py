"""The gradients of attention in CUDA on Hopper's tensor cores: adds TMA, wgmma and specialized warps to tiles.py. One
kernel computes all gradients; its blocks add to dq in a fixed order."""

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_attention_grad, check_window
from cuda_ref._runtime.device import multiprocessors
from cuda_ref._runtime.kept import kept
from cuda_ref.attention._hopper import check_covered, copied, readable, scales, strides
from cuda_ref.attention._plan import PLANS, plan_for

REQUIRES = "sm_90"
DETERMINISTIC = True
OPTIONS_BEYOND = ("window",)

HEAD_DIMS = (64, 128)
QUERIES = {64: 128, 128: 64}
"""Queries per tile, by D: Plan::BLOCK_M of wgmma.cu."""
HEADS_TOGETHER = 16
"""Key heads whose blocks run at the same time. With fewer heads, more blocks wait for each other; with more, fewer
blocks read the same queries from the L2 cache."""

KEYS = 128
"""Keys per block."""
STEP_US = 2.5
"""Time of a block for one tile of queries (H200)."""
BYTES_PER_US = 3e6
"""Memory bandwidth in bytes per microsecond (H200)."""
GAIN = 0.95
"""More parts are used only if their predicted time is below this fraction of the time with fewer parts."""

Queries = Float[Tensor, "B H S_q D"]
Keys = Float[Tensor, "B H_kv S_k D"]


@kept
def attention_grad(
    q: Queries,
    k: Keys,
    v: Keys,
    do: Queries,
    *,
    causal: bool = False,
    sm_scale: float | None = None,
    window: int | None = None,
) -> tuple[Queries, Keys, Keys]:
    """(dq, dk, dv): gradients of the sum of do * o, where o = softmax(sm_scale q k^T) v; forward and backward.

    Shapes: q and do (B, H, S_q, D), k and v (B, H_kv, S_k, D), D 64 or 128, H a multiple of H_kv: query head h uses key
    head h // (H // H_kv). An operand that TMA cannot read (it needs contiguous rows, each at a multiple of 16 bytes) is
    copied first. The results are contiguous. `sm_scale` defaults to 1 / sqrt(D).
    Causal: aligned to the last key; query i sees the keys j <= i + S_k - S_q. A query that sees no key has gradient 0.
    Window: a query sees only that many keys, up to its own; steps without a visible pair are left out.
    Hidden pairs are weighted by 0: NaN and infinities of hidden rows can reach the gradients of rows of the same tile.
    Dtypes: float16, bfloat16, the same for all; scores, softmax and sums in float32, o, p and ds rounded to 16 bits.
    The order of the sums is fixed. Memory: dq in float32; with few key heads, where `parts_of_a_group` divides the
    query heads of each, also dk and dv in float32 for each part.
    Devices: CUDA, compute capability 9.0.
    Raises: ValueError for other shapes and dtypes, and for tensors on different devices; NotImplementedError for
    float32, other D, a negative sm_scale, more than 2^30 queries, keys or tiles, and on other devices; build.CudaError
    if a launch fails.
    Source: see wgmma.cu.
    """
    sizes = check_attention_grad(q, k, v, do)
    parts = parts_of_a_group(*sizes, causal=causal, processors=multiprocessors(q.device))
    return run(parts, q, k, v, do, causal, sm_scale, window)


def config(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, *, causal: bool = False, sm_scale: float | None = None,
    window: int | None = None,
) -> str:  # fmt: skip
    """The kernels and their parts, as in `wgmma 128x128 teams=1; prepare; gradients parts=2; finish; add_parts`, where
    `wgmma` computes lse and delta; empty without queries or keys."""
    if q.numel() == 0 or k.numel() == 0:
        return ""
    sizes = check_attention_grad(q, k, v, do)
    parts = parts_of_a_group(*sizes, causal=causal, processors=multiprocessors(q.device))
    forward = f"wgmma {PLANS[q.shape[3]][plan_for(q, k, causal)]}{copied(q, k, v, do)}"
    return f"{forward}; prepare; gradients parts={parts}; finish" + "; add_parts" * (parts > 1)


def run(
    parts: int, q: Tensor, k: Tensor, v: Tensor, do: Tensor, causal: bool, sm_scale: float | None,
    window: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """`attention_grad` with the query heads of a key head in `parts` parts, a divisor of their number."""
    near = check_window("attention_grad", window, causal, k.shape[2])
    B, H, H_kv, S_q, S_k, D = check_attention_grad(q, k, v, do)
    check_covered("attention_grad", q, k, HEAD_DIMS, sm_scale)
    if q.numel() == 0 or k.numel() == 0:
        return q.new_zeros(q.shape), k.new_zeros(k.shape), v.new_zeros(v.shape)
    q, k, v, do = (readable(x) for x in (q, k, v, do))
    scale, scale_log2 = scales(D, sm_scale)
    tiles = -(-S_q // QUERIES[D])
    rows = tiles * QUERIES[D]
    dq, dk, dv = (x.new_empty(x.shape) for x in (q, k, v))
    lse, delta = (torch.empty((B, H, rows), dtype=torch.float32, device=q.device) for _ in range(2))
    build.launch(
        "attention/wgmma", "attention_statistics", q.device,
        q, k, v, do, lse, delta, B, H, H_kv, S_q, S_k, D,
        *strides(q), *strides(k), *strides(v), *strides(do), rows, causal, scale_log2, plan_for(q, k, causal),
        near, build.DTYPES[q.dtype],
    )  # fmt: skip
    dq_sums = torch.empty((B, H, rows, D), dtype=torch.float32, device=q.device)
    part_sums = torch.empty((2, B, H_kv * parts, S_k, D), dtype=torch.float32, device=q.device) if parts > 1 else None
    counters = torch.empty(2 + B * H * tiles, dtype=torch.int32, device=q.device)
    build.launch(
        "attention_grad/wgmma", "attention_grad_wgmma", q.device,
        q, k, v, do, lse, delta, dq_sums, part_sums, counters, dq, dk, dv, B, H, H_kv, S_q, S_k, D,
        *strides(q), *strides(k), *strides(v), *strides(do), HEADS_TOGETHER, parts, causal, near,
        scale, scale_log2, build.DTYPES[q.dtype],
    )  # fmt: skip
    return dq, dk, dv


def parts_of_a_group(
    B: int, H: int, H_kv: int, S_q: int, S_k: int, D: int, causal: bool, processors: int, queries: int | None = None,
    step_us: float = STEP_US,
) -> int:  # fmt: skip
    """Number of parts into which the query heads of a key head are divided: the fewest that are about as fast as any.

    A block reads the queries of its part one after the other. With few key heads, parts occupy multiprocessors that
    would be idle, at least during the last blocks. The sums of parts, however, go through memory. queries: per tile, by
    default those of wgmma.cu. step_us: time of a block for one tile.
    """

    def predicted_us(parts: int) -> float:
        longest = H // H_kv // parts * -(-S_q // (queries or QUERIES[D]))
        blocks = B * H_kv * parts * -(-S_k // KEYS)
        # Under a mask a block needs half of the queries on average, and the longest blocks start first.
        steps = max(longest, blocks * longest / 2 / processors) if causal else -(-blocks // processors) * longest
        sums = 2 * 2 * 4 * B * H_kv * parts * S_k * D if parts > 1 else 0
        return steps * step_us + sums / BYTES_PER_US

    best = 1
    for parts in range(2, H // max(1, H_kv) + 1):
        if H // H_kv % parts == 0 and predicted_us(parts) < GAIN * predicted_us(best):
            best = parts
    return best
