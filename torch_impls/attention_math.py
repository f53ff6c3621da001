"""Attention by PyTorch's unfused kernels: a product, a softmax and a product, with the scores in memory."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

VENDOR = "PyTorch math"


def attention(
    q: Float[Tensor, "B H S_q D"],
    k: Float[Tensor, "B H_kv S_k D"],
    v: Float[Tensor, "B H_kv S_k D"],
    *,
    causal: bool = False,
    sm_scale: float | None = None,
) -> Float[Tensor, "B H S_q D"]:
    """o[b, h, i] = sum over visible keys j of softmax_j(q[b, h, i] . k[b, h_kv, j] * sm_scale) v[b, h_kv, j].

    float32, float16 or bfloat16; H a multiple of H_kv (PyTorch repeats k and v); `sm_scale` defaults to 1 / sqrt(D).
    Everything is float32, products included: PyTorch widens 16-bit inputs for these kernels, unless it was allowed to
    reduce in 16 bits, and rounds the output once. Both settings are made for the call and put back; together with the
    choice of the kernel they cost about 10 us of the host's time, beside some ten launches.

    With `causal` query i sees the keys j <= i + S_k - S_q, by an explicit mask where that is not PyTorch's
    `is_causal`, and a query that sees none gives zeros.

    Raises ValueError for other shapes and dtypes, and for two devices.
    """
    _check(q, k, v)
    S_q, S_k = q.shape[2], k.shape[2]
    if q.numel() == 0 or S_k == 0:
        return q.new_zeros(q.shape)
    if causal and S_q > S_k:
        seeing = attention(q[:, :, S_q - S_k :], k, v, causal=True, sm_scale=sm_scale)
        return F.pad(seeing, (0, 0, S_q - S_k, 0))
    mask = q.new_ones(S_q, S_k, dtype=torch.bool).tril(S_k - S_q) if causal and 1 < S_q < S_k else None
    cuda = torch.backends.cuda
    flags = cuda.matmul if q.is_cuda else torch.backends.mkldnn.matmul
    precision, reduction = flags.fp32_precision, cuda.fp16_bf16_reduction_math_sdp_allowed()
    flags.fp32_precision = "ieee"
    cuda.allow_fp16_bf16_reduction_math_sdp(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            o = F.scaled_dot_product_attention(
                q, k, v, mask, is_causal=causal and S_q == S_k, scale=sm_scale, enable_gqa=q.shape[1] != k.shape[1]
            )
    finally:
        flags.fp32_precision = precision
        cuda.allow_fp16_bf16_reduction_math_sdp(reduction)
    return o.contiguous()


def _check(q: Tensor, k: Tensor, v: Tensor) -> None:
    if q.ndim != 4:
        raise ValueError(f"attention: q must be (B, H, S_q, D); got {tuple(q.shape)}")
    B, H, _, D = q.shape
    if k.ndim != 4 or k.shape[0] != B or k.shape[3] != D:
        expected = f"q is (B, H, S_q, D)={tuple(q.shape)}, so k must be ({B}, H_kv, S_k, {D})"
        raise ValueError(f"attention: {expected}; got {tuple(k.shape)}")
    if v.shape != k.shape:
        expected = f"k is (B, H_kv, S_k, D)={tuple(k.shape)}, so v must be {tuple(k.shape)}"
        raise ValueError(f"attention: {expected}; got {tuple(v.shape)}")
    if H % k.shape[1] if k.shape[1] else H:
        raise ValueError(f"attention: H must be a multiple of H_kv; got H={H}, H_kv={k.shape[1]}")
    if q.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError(f"attention: q must be float32, float16 or bfloat16; got {q.dtype}")
    for name, x in (("k", k), ("v", v)):
        if x.dtype != q.dtype:
            raise ValueError(f"attention: q is {q.dtype}, so {name} must be {q.dtype}; got {x.dtype}")
        if x.device != q.device:
            raise ValueError(f"attention: q is on {q.device}, so {name} must be on {q.device}; got {x.device}")
