"""Attention in CUDA, the online softmax: four lanes compute one query, all in float32."""

import math

from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_attention, check_window
from cuda_ref._runtime.kept import kept

DETERMINISTIC = True
OPTIONS_BEYOND = ("window",)
BLOCK_M = 32  # queries per block, as in attention.cu


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
    """out[b, h, i] = sum over visible j of softmax_j(sm_scale * q[b, h, i] . k[b, h_kv, j]) * v[b, h_kv, j].

    Shapes: q (B, H, S_q, D), k and v (B, H_kv, S_k, D), D up to 256, H a multiple of H_kv: query head h uses key head
    h_kv = h // (H // H_kv). Any strides; torch first copies a tensor whose last dimension is not contiguous. The output
    is contiguous. `sm_scale` defaults to 1 / sqrt(D).
    Causal: aligned to the last key; query i sees the keys j <= i + S_k - S_q. A query that sees no key gives zeros,
    one whose keys all score minus infinity gives NaN. NaN and infinities in hidden keys and values have no effect.
    With `window` a query sees only that many keys, up to its own.
    Dtypes: float32, float16, bfloat16, the same for all; scores, softmax and sums in float32 without tensor cores,
    rounded once at the end. The S_q x S_k scores are never stored.
    Tail: the four lanes of a query take every fourth column up to D; lanes beyond the last query do nothing.
    Devices: CUDA; on the CPU the same kernel is emulated, only to check results.
    Raises: ValueError for other shapes and dtypes, and for tensors on different devices; NotImplementedError for D
    above 256 and for more than 2^30 queries, keys or blocks; build.CudaError if the launch fails.
    Source: see attention.cu.
    """
    B, H, _, S_q, S_k, D = check_attention(q, k, v)
    near = check_window("attention", window, causal, S_k)
    if D > 256:
        raise NotImplementedError(f"attention: D must be at most 256; got D={D}")
    if max(S_q, S_k, B * H * -(-S_q // BLOCK_M)) > 2**30:
        raise NotImplementedError(
            f"attention: S_q, S_k and B * H * ceil(S_q / {BLOCK_M}) must be at most 2^30; "
            f"got B={B}, H={H}, S_q={S_q}, S_k={S_k}"
        )
    out = q.new_empty(B, H, S_q, D)
    if out.numel() > 0:
        q, k, v = (x if x.stride(3) == 1 else x.contiguous() for x in (q, k, v))
        scale = 1.0 / math.sqrt(D) if sm_scale is None else sm_scale
        if near:
            attend(q, k, v, out, causal, scale, near)
            return out
        build.launch(
            "attention/attention", "attention", q.device,
            q, k, v, out, B, H, k.shape[1], S_q, S_k, D, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3],
            causal, scale, build.DTYPES[q.dtype],
        )  # fmt: skip
    return out


def attend(q: Tensor, k: Tensor, v: Tensor, out: Tensor, causal: bool, sm_scale: float, window: int = 0) -> None:
    """Writes the result of `attention` to `out` (B, H, S_q, D), not empty. Rows are contiguous. window: 0 for none."""
    (B, H, S_q, D), (H_kv, S_k) = q.shape, k.shape[1:3]
    build.launch(
        "attention/attention", "attention_into", q.device,
        q, k, v, out, B, H, H_kv, S_q, S_k, D, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3],
        causal, window or S_k, sm_scale, build.DTYPES[q.dtype],
    )  # fmt: skip
