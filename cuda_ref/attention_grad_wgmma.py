"""The gradients of attention in CUDA on Hopper's tensor cores: one kernel for all, in a fixed order of sums."""

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._arguments import check_attention_grad
from cuda_ref._attention_hopper import check_covered, readable, scales, strides
from cuda_ref._kept import kept

REQUIRES = "sm_90"
DETERMINISTIC = True

HEAD_DIMS = (64, 128)
QUERIES = {64: 128, 128: 64}
"""Queries of a tile, by D: Plan::BLOCK_M of attention_grad_wgmma.cu."""
HEADS_TOGETHER = 16
"""Key heads whose blocks run at the same time. With fewer, more blocks wait for each other; with more, fewer of them
read the same queries from the L2 cache."""

Queries = Float[Tensor, "B H S_q D"]
Keys = Float[Tensor, "B H_kv S_k D"]


@kept
def attention_grad(
    q: Queries, k: Keys, v: Keys, do: Queries, *, causal: bool = False, sm_scale: float | None = None
) -> tuple[Queries, Keys, Keys]:
    """(dq, dk, dv): gradients of the sum of do * o, where o = softmax(sm_scale q k^T) v; forward and backward.

    Shapes: q and do (B, H, S_q, D), k and v (B, H_kv, S_k, D), D 64 or 128, H a multiple of H_kv: query head h uses key
    head h // (H // H_kv). An operand that TMA cannot read (rows contiguous, each at a multiple of 16 bytes) is copied
    first. The results are contiguous. `sm_scale` defaults to 1 / sqrt(D).
    Causal: aligned to the last key; query i sees the keys j <= i + S_k - S_q. A query that sees no key has no gradient.
    Hidden pairs are weighted by 0: NaN and infinities of hidden rows can reach the gradients of rows of the same tile.
    Dtypes: float16, bfloat16, the same for all; scores, softmax and sums in float32, o, p and ds rounded to 16 bits.
    The sums of a query and of a group of heads have a fixed order. Memory: dq in float32.
    Devices: CUDA, compute capability 9.0.
    Raises: ValueError for other shapes and dtypes, and for two devices; NotImplementedError for float32, other D, a
    negative sm_scale, more than 2^30 queries, keys or tiles, and on other devices; build.CudaError if a launch fails.
    Source: see attention_grad_wgmma.cu.
    """
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
        "attention_wgmma", "attention_statistics", q.device,
        q, k, v, do, lse, delta, B, H, H_kv, S_q, S_k, D,
        *strides(q), *strides(k), *strides(v), *strides(do), rows, causal, scale_log2, build.DTYPES[q.dtype],
    )  # fmt: skip
    dq_sums = torch.empty((B, H, rows, D), dtype=torch.float32, device=q.device)
    counters = torch.empty(2 + B * H * tiles, dtype=torch.int32, device=q.device)
    build.launch(
        "attention_grad_wgmma", "attention_grad_wgmma", q.device,
        q, k, v, do, lse, delta, dq_sums, counters, dq, dk, dv, B, H, H_kv, S_q, S_k, D,
        *strides(q), *strides(k), *strides(v), *strides(do), HEADS_TOGETHER, causal, scale,
        scale_log2, build.DTYPES[q.dtype],
    )  # fmt: skip
    return dq, dk, dv
