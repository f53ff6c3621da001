"""Attention by PyTorch's unfused kernels: a product, a softmax and a product, with the scores in memory."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.contract import check_attention, check_window
from torch_impls.attention._sdpa import lower_right, unfused_in_float32

VENDOR = "PyTorch math"
DTYPES_BEYOND = ("float8_e4m3fn", "float64")
OPTIONS_BEYOND = ("window",)


def attention(
    q: Float[Tensor, "B H S_q D"],
    k: Float[Tensor, "B H_kv S_k D"],
    v: Float[Tensor, "B H_kv S_k D"],
    scale_q: Float[Tensor, ""] | None = None,
    scale_k: Float[Tensor, ""] | None = None,
    scale_v: Float[Tensor, ""] | None = None,
    *,
    causal: bool = False,
    sm_scale: float | None = None,
    window: int | None = None,
) -> Float[Tensor, "B H S_q D"]:
    """o[b, h, i] = sum over visible keys j of softmax_j(q[b, h, i] . k[b, h_kv, j] * sm_scale) v[b, h_kv, j].

    float32, float16 or bfloat16; H a multiple of H_kv (PyTorch repeats k and v); `sm_scale` defaults to 1 / sqrt(D).
    Everything is float32, products included: PyTorch widens 16-bit inputs for these kernels, unless it may reduce in
    16 bits, and rounds the output once. Both settings and the choice of kernel are restored after the call.

    With `causal` query i sees the keys j <= i + S_k - S_q, by an explicit mask if PyTorch's `is_causal` differs. A
    query that sees none gives zeros.

    With `window` a query sees only that many keys, up to its own: the mask is explicit, and all scores are computed.

    float8_e4m3fn: q, k and v are widened to float32 and each multiplied by a scale, and the output is bfloat16.

    Raises ValueError for other shapes and dtypes, and for different devices.
    """
    check_attention(q, k, v, (scale_q, scale_k, scale_v), float64=True)
    S_q, S_k = q.shape[2], k.shape[2]
    near = check_window("attention", window, causal, S_k)
    if scale_q is not None and scale_k is not None and scale_v is not None:
        q, k, v = q.float() * scale_q, k.float() * scale_k, v.float() * scale_v
        return attention(q, k, v, causal=causal, sm_scale=sm_scale, window=window).to(torch.bfloat16)
    if q.numel() == 0 or S_k == 0:
        return q.new_zeros(q.shape)
    if causal and S_q > S_k:
        seeing = attention(q[:, :, S_q - S_k :], k, v, causal=True, sm_scale=sm_scale, window=window)
        return F.pad(seeing, (0, 0, S_q - S_k, 0))
    with unfused_in_float32(q):
        o = F.scaled_dot_product_attention(
            q,
            k,
            v,
            lower_right(q, k, causal=causal, window=near),
            is_causal=causal and S_q == S_k and not near,
            scale=sm_scale,
            enable_gqa=q.shape[1] != k.shape[1],
        )
    return o.contiguous()
