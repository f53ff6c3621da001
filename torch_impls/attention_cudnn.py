"""Attention by cuDNN's fused kernel, through PyTorch, never by another."""

from __future__ import annotations

import warnings

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.backends.cuda import SDPAParams, can_use_cudnn_attention
from torch.nn.attention import SDPBackend, sdpa_kernel

VENDOR = "cuDNN"
REQUIRES = "cuda"


def attention(
    q: Float[Tensor, "B H S_q D"],
    k: Float[Tensor, "B H_kv S_k D"],
    v: Float[Tensor, "B H_kv S_k D"],
    *,
    causal: bool = False,
    sm_scale: float | None = None,
) -> Float[Tensor, "B H S_q D"]:
    """o[b, h, i] = sum over visible keys j of softmax_j(q[b, h, i] . k[b, h_kv, j] * sm_scale) v[b, h_kv, j].

    float16 and bfloat16 with float32 scores, softmax and sums; H a multiple of H_kv; D a multiple of 8 up to the
    limit of the device and the cuDNN version; `sm_scale` defaults to 1 / sqrt(D). PyTorch's wrapper of the kernel is
    called directly, which forces the choice without the 10 us that `sdpa_kernel` costs.

    With `causal` query i sees the keys j <= i + S_k - S_q, and a query that sees none gives zeros. PyTorch asks cuDNN
    for a mask aligned to the first key, so its `is_causal` is used where both are the same: for S_q = S_k, and for
    the last S_k queries when S_q > S_k (those before see nothing). A single query sees every key, without a mask. For
    1 < S_q < S_k the mask is given explicitly and cuDNN adds it to the scores.

    Raises ValueError for other shapes and dtypes and for two devices, NotImplementedError with PyTorch's reasons for
    what the kernel refuses.
    """
    _check(q, k, v)
    S_q, S_k = q.shape[2], k.shape[2]
    if not q.is_cuda:
        raise NotImplementedError(f"attention: cuDNN needs an NVIDIA GPU; q is on {q.device}")
    if q.numel() == 0 or S_k == 0:
        return q.new_zeros(q.shape)
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.is_cuda and x.data_ptr() % 16:
            raise NotImplementedError(f"attention: cuDNN needs {name} to begin at a multiple of 16 bytes")
    if causal and S_q > S_k:
        seeing = attention(q[:, :, S_q - S_k :], k, v, causal=True, sm_scale=sm_scale)
        return F.pad(seeing, (0, 0, S_q - S_k, 0))
    if causal and 1 < S_q < S_k:
        mask = q.new_ones(S_q, S_k, dtype=torch.bool).tril(S_k - S_q)
        return _choose(q, k, v, mask, False, sm_scale).contiguous()
    square = causal and S_q == S_k
    if not can_use_cudnn_attention(SDPAParams(q, k, v, None, 0.0, square, q.shape[1] != k.shape[1])):
        return _choose(q, k, v, None, square, sm_scale)
    o = torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, False, 0.0, square, False, scale=sm_scale)[0]
    return o.contiguous()


def _choose(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None) -> Tensor:
    """PyTorch's front door with every other kernel forbidden: it runs this one or warns why not and raises."""
    with warnings.catch_warnings(record=True) as caught, sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        warnings.simplefilter("always")
        try:
            return F.scaled_dot_product_attention(
                q, k, v, mask, is_causal=is_causal, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
            )
        except RuntimeError as error:
            if "No available kernel" not in str(error) and "No viable backend" not in str(error):
                raise
            reasons = [str(warning.message).partition(" (Triggered internally")[0] for warning in caught]
            raise NotImplementedError(f"attention: cuDNN refuses: {' '.join(reasons) or error}") from error


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
