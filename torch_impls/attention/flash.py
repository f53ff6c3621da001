"""Attention by the FlashAttention-2 kernels in PyTorch, without fallback to other kernels."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.backends.cuda import SDPAParams, can_use_flash_attention
from torch.nn.attention import SDPBackend

from torch_impls._runtime.contract import check_attention, check_window
from torch_impls.attention._sdpa import check_alignment, lower_right, only_kernel

VENDOR = "FlashAttention-2 (PyTorch)"
OPTIONS_BEYOND = ("window",)

_only_flash = partial(only_kernel, SDPBackend.FLASH_ATTENTION, "FlashAttention-2")


def attention(
    q: Float[Tensor, "B H S_q D"],
    k: Float[Tensor, "B H_kv S_k D"],
    v: Float[Tensor, "B H_kv S_k D"],
    *,
    causal: bool = False,
    sm_scale: float | None = None,
    window: int | None = None,
) -> Float[Tensor, "B H S_q D"]:
    """o[b, h, i] = sum over visible keys j of softmax_j(q[b, h, i] . k[b, h_kv, j] * sm_scale) v[b, h_kv, j].

    Dtypes: on a GPU float16 and bfloat16, with D a multiple of 8 up to 256. On a CPU PyTorch has a kernel of the same
    algorithm, which also takes float32. Scores, softmax and sums are float32. H is a multiple of H_kv; `sm_scale`
    defaults to 1 / sqrt(D).

    With `causal` query i sees the keys j <= i + S_k - S_q, and a query that sees none gives zeros. On a GPU the
    kernel's own mask has this alignment, but its wrapper refuses S_q != S_k, because `is_causal` means the other
    alignment. So the kernel is called directly; `sdpa_kernel` would also add host time to every call. On a CPU the mask
    is explicit. `window` is the kernel's own sliding window, and on a CPU part of the mask.

    Raises ValueError for other shapes and dtypes and for different devices, NotImplementedError with PyTorch's reasons
    for cases that the kernel refuses.
    """
    check_attention(q, k, v)
    S_q, S_k, D = q.shape[2], k.shape[2], q.shape[3]
    near = check_window("attention", window, causal, S_k)
    if q.numel() == 0 or S_k == 0:
        return q.new_zeros(q.shape)
    check_alignment("FlashAttention", q, k, v)
    if causal and S_q > S_k:
        seeing = attention(q[:, :, S_q - S_k :], k, v, causal=True, sm_scale=sm_scale, window=window)
        return F.pad(seeing, (0, 0, S_q - S_k, 0))
    causal = causal and (S_q > 1 or near > 0)
    if not q.is_cuda:
        mask = lower_right(q, k, causal=causal, window=near)
        return _only_flash(q, k, v, mask, is_causal=causal and mask is None, scale=sm_scale).contiguous()
    if D % 8:
        raise NotImplementedError(f"attention: FlashAttention-2 takes D as a multiple of 8; got D={D}")
    if not can_use_flash_attention(SDPAParams(q, k, v, None, 0.0, False, q.shape[1] != k.shape[1])):
        return _only_flash(q, k, v, None, is_causal=causal, scale=sm_scale)
    if near:
        by_rows = (x.transpose(1, 2) for x in (q, k, v))  # (B, S, H, D)
        o = torch.ops.aten._flash_attention_forward(
            *by_rows, None, None, S_q, S_k, 0.0, True, False,
            scale=sm_scale, window_size_left=near - 1, window_size_right=0,
        )[0]  # fmt: skip
        return o.transpose(1, 2).contiguous()
    o = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False, scale=sm_scale)[0]
    return o.contiguous()
