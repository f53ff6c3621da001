"""Attention by the FlashAttention-2 kernels that PyTorch carries, never by another."""

from __future__ import annotations

import warnings

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.backends.cuda import SDPAParams, can_use_flash_attention
from torch.nn.attention import SDPBackend, sdpa_kernel

VENDOR = "FlashAttention-2 (PyTorch)"


def attention(
    q: Float[Tensor, "B H S_q D"],
    k: Float[Tensor, "B H_kv S_k D"],
    v: Float[Tensor, "B H_kv S_k D"],
    *,
    causal: bool = False,
    sm_scale: float | None = None,
) -> Float[Tensor, "B H S_q D"]:
    """o[b, h, i] = sum over visible keys j of softmax_j(q[b, h, i] . k[b, h_kv, j] * sm_scale) v[b, h_kv, j].

    On a GPU float16 and bfloat16, D a multiple of 8 up to 256; on a CPU, where PyTorch has a kernel of the same
    algorithm, float32 too. Scores, softmax and sums are float32; H a multiple of H_kv; `sm_scale` defaults to 1 /
    sqrt(D).

    With `causal` query i sees the keys j <= i + S_k - S_q, and a query that sees none gives zeros. On a GPU the
    kernel's own mask is aligned so (its wrapper refuses S_q != S_k only because `is_causal` promises the other
    alignment), and it is called directly: that forces the choice without the 10 us that `sdpa_kernel` costs. On a CPU
    the mask is explicit.

    Raises ValueError for other shapes and dtypes and for two devices, NotImplementedError with PyTorch's reasons for
    what the kernel refuses.
    """
    _check(q, k, v)
    S_q, S_k, D = q.shape[2], k.shape[2], q.shape[3]
    if q.numel() == 0 or S_k == 0:
        return q.new_zeros(q.shape)
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.is_cuda and x.data_ptr() % 16:
            raise NotImplementedError(f"attention: FlashAttention needs {name} to begin at a multiple of 16 bytes")
    if causal and S_q > S_k:
        seeing = attention(q[:, :, S_q - S_k :], k, v, causal=True, sm_scale=sm_scale)
        return F.pad(seeing, (0, 0, S_q - S_k, 0))
    causal = causal and S_q > 1
    if not q.is_cuda:
        mask = q.new_ones(S_q, S_k, dtype=torch.bool).tril(S_k - S_q) if causal and S_q < S_k else None
        return _choose(q, k, v, mask, causal and S_q == S_k, sm_scale).contiguous()
    if D % 8:
        raise NotImplementedError(f"attention: FlashAttention-2 takes D as a multiple of 8; got D={D}")
    if not can_use_flash_attention(SDPAParams(q, k, v, None, 0.0, False, q.shape[1] != k.shape[1])):
        return _choose(q, k, v, None, causal, sm_scale)
    o = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False, scale=sm_scale)[0]
    return o.contiguous()


def _choose(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None) -> Tensor:
    """PyTorch's front door with every other kernel forbidden: it runs this one or warns why not and raises."""
    with warnings.catch_warnings(record=True) as caught, sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        warnings.simplefilter("always")
        try:
            return F.scaled_dot_product_attention(
                q, k, v, mask, is_causal=is_causal, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
            )
        except RuntimeError as error:
            if "No available kernel" not in str(error) and "No viable backend" not in str(error):
                raise
            reasons = [str(warning.message).partition(" (Triggered internally")[0] for warning in caught]
            raise NotImplementedError(f"attention: FlashAttention-2 refuses: {' '.join(reasons) or error}") from error


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
