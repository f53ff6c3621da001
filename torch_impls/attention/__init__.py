"""Attention by scaled_dot_product_attention; PyTorch chooses the kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from torch_impls._runtime.contract import check_attention, check_window
from torch_impls.attention._sdpa import aligned, lower_right

VENDOR = "PyTorch"
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

    Dtypes: float32, float16 or bfloat16. H is a multiple of H_kv; `sm_scale` defaults to 1 / sqrt(D). 16-bit dtypes
    have float32 scores, softmax and sums. float32 on a GPU uses the unfused kernels with float32 products, because the
    fused kernel that PyTorch would choose splits its inputs for the tensor cores.

    With `causal` query i sees the keys j <= i + S_k - S_q, and a query that sees none gives zeros. PyTorch's
    `is_causal` aligns the mask to the first key instead. It is used if the two agree: for S_q = S_k, and for the last
    S_k queries if S_q > S_k (earlier queries see nothing). A single query sees every key, without a mask. For 1 < S_q <
    S_k `causal_lower_right` picks a kernel that can align to the last key, or makes the mask.

    On a GPU tensors with a row that does not begin at a multiple of 16 bytes are copied first. The fused kernels read
    16 bytes at a time without a check, and a misaligned address ends the process's CUDA context.

    With `window` a query sees only that many keys, up to its own: the mask is explicit, and all scores are computed.

    float8_e4m3fn: q, k and v are each multiplied by a scale, and the output is bfloat16. PyTorch has no float8 kernel:
    the inputs are widened to bfloat16.

    Raises ValueError for other shapes and dtypes, and for different devices.
    """
    check_attention(q, k, v, (scale_q, scale_k, scale_v), float64=True)
    S_q, S_k = q.shape[2], k.shape[2]
    near = check_window("attention", window, causal, S_k)
    if scale_q is not None and scale_k is not None and scale_v is not None:
        q, k, v = (q.float() * (scale_q * scale_k)).to(torch.bfloat16), k.to(torch.bfloat16), v.to(torch.bfloat16)
        return attention(q, k, v, causal=causal, sm_scale=sm_scale, window=window) * scale_v
    if q.numel() == 0 or S_k == 0:
        return q.new_zeros(q.shape)
    if causal and S_q > S_k:
        seeing = attention(q[:, :, S_q - S_k :], k, v, causal=True, sm_scale=sm_scale, window=window)
        return F.pad(seeing, (0, 0, S_q - S_k, 0))
    rectangle = _causal_lower_right()(S_q, S_k) if causal and 1 < S_q < S_k else None
    arguments = {
        "attn_mask": lower_right(q, k, causal=causal, window=near) if near else rectangle,
        "is_causal": causal and S_q == S_k and not near,
        "scale": sm_scale,
        "enable_gqa": q.shape[1] != k.shape[1],
    }
    if q.is_cuda:
        q, k, v = (x if aligned(x) else x.clone(memory_format=torch.contiguous_format) for x in (q, k, v))
    if not (q.is_cuda and q.dtype == torch.float32):
        return F.scaled_dot_product_attention(q, k, v, **arguments).contiguous()
    flags = torch.backends.cuda.matmul
    before = flags.fp32_precision
    flags.fp32_precision = "ieee"
    try:
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(q, k, v, **arguments).contiguous()
    finally:
        flags.fp32_precision = before


@cache
def _causal_lower_right() -> Callable[[int, int], Tensor]:
    """PyTorch's function, whose module is imported when it is first needed: this takes two seconds."""
    from torch.nn.attention.bias import causal_lower_right

    found: Callable[[int, int], Tensor] = causal_lower_right
    return found
