"""The gradients of attention in CUDA of float8 tensors with a scale per operand, on Hopper's tensor cores: adds to
wgmma.py operands transposed in memory, and p and ds that fill the range of float8. No block adds to others' sums."""

import torch
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_attention_grad
from cuda_ref._runtime.kept import kept
from cuda_ref.attention._hopper import check_covered, copied, readable, scales, strides

REQUIRES = "sm_90"
DETERMINISTIC = True
DTYPES_BEYOND = ("float8_e4m3fn",)

HEAD_DIMS = (64, 128)
KEPT, GROUP = 128, 16
"""Rows that a block keeps, and queries that share a limit of |ds|, as in float8.cuh."""

Queries = Float[Tensor, "B H S_q D"]
Keys = Float[Tensor, "B H_kv S_k D"]
Scale = Float[Tensor, ""]


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
) -> tuple[Queries, Keys, Keys]:
    """(dq, dk, dv): gradients of the sum of do * o for the scaled operands, where o = softmax(sm_scale q k^T) v.

    Shapes: q and do (B, H, S_q, D), k and v (B, H_kv, S_k, D), D 64 or 128, H a multiple of H_kv: query head h uses key
    head h // (H // H_kv). An operand that TMA cannot read (it needs contiguous rows, each at a multiple of 16 bytes) is
    copied first. The results are contiguous. `sm_scale` defaults to 1 / sqrt(D). The scales: float32, of shape ().
    Causal: aligned to the last key; query i sees the keys j <= i + S_k - S_q. A query that sees no key has gradient 0.
    Hidden pairs are weighted by 0: NaN of hidden rows can reach the gradients of rows of the same tile.
    Dtypes: q, k, v and do float8_e4m3fn, the results bfloat16. Softmax and its sums in float32; p and ds are multiplied
    by factors and rounded to float8. The tensor cores keep 14 bits of sums of products.
    The order of the sums is fixed. Memory: q, k and do transposed; some two float32 numbers for each query.
    Devices: CUDA, compute capability 9.0.
    Raises: ValueError for other shapes, dtypes and scales, and for tensors on different devices; NotImplementedError
    for float32, float16 and bfloat16, other D, a negative sm_scale, more than 2^30 queries, keys or tiles, and on other
    devices; build.CudaError if a launch fails.
    Source: see float8.cu.
    """
    given = scale_q, scale_k, scale_v, scale_do
    B, H, H_kv, S_q, S_k, D = check_attention_grad(q, k, v, do, given)
    if q.dtype != torch.float8_e4m3fn:
        raise NotImplementedError(f"attention_grad: needs float8_e4m3fn; got {q.dtype}")
    check_covered("attention_grad", q, k, HEAD_DIMS, sm_scale)
    dq, dk, dv = (x.new_empty(x.shape, dtype=torch.bfloat16) for x in (q, k, v))
    if q.numel() == 0 or k.numel() == 0:
        return dq.zero_(), dk.zero_(), dv.zero_()
    q, k, v, do = (readable(x) for x in (q, k, v, do))
    rows_q, rows_k = (-(-S // KEPT) * KEPT for S in (S_q, S_k))
    lse, delta = (torch.empty((B, H, rows_q), dtype=torch.float32, device=q.device) for _ in range(2))
    limits = torch.empty((B, H, rows_q // GROUP), dtype=torch.float32, device=q.device)
    q_t, do_t = (torch.empty((B, H, rows_q, 128), dtype=torch.uint8, device=q.device) for _ in range(2))
    k_t = torch.empty((B, H_kv, rows_k, D), dtype=torch.uint8, device=q.device)
    build.launch(
        "attention_grad/float8", "attention_grad_float8", q.device,
        q, k, v, do, *given, lse, delta, limits, q_t, do_t, k_t, dq, dk, dv, B, H, H_kv, S_q, S_k, D,
        *strides(q), *strides(k), *strides(v), *strides(do), causal, *scales(D, sm_scale),
    )  # fmt: skip
    return dq, dk, dv


def config(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, *scales: Tensor, causal: bool = False, sm_scale: float | None = None
) -> str:
    """The kernels, with queries and keys of their tiles; empty without queries or keys."""
    if q.numel() == 0 or k.numel() == 0:
        return ""
    tile, operands = f"{KEPT}x{KEPT}", copied(q, k, v, do)
    return f"transpose; float8_statistics {tile}; float8_dk_dv 64x{KEPT}; float8_dq {tile}{operands}"
