"""Attention by cuDNN's fused kernel through PyTorch, without fallback to other kernels."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.backends.cuda import SDPAParams, can_use_cudnn_attention
from torch.nn.attention import SDPBackend

from torch_impls._runtime.contract import check_attention
from torch_impls.attention._sdpa import check_alignment, only_kernel

VENDOR = "cuDNN"
REQUIRES = "cuda"

_only_cudnn = partial(only_kernel, SDPBackend.CUDNN_ATTENTION, "cuDNN")


def attention(
    q: Float[Tensor, "B H S_q D"],
    k: Float[Tensor, "B H_kv S_k D"],
    v: Float[Tensor, "B H_kv S_k D"],
    *,
    causal: bool = False,
    sm_scale: float | None = None,
) -> Float[Tensor, "B H S_q D"]:
    """o[b, h, i] = sum over visible keys j of softmax_j(q[b, h, i] . k[b, h_kv, j] * sm_scale) v[b, h_kv, j].

    Dtypes: float16 and bfloat16 with float32 scores, softmax and sums. H is a multiple of H_kv; D is a multiple of 8 up
    to the limit of the device and the cuDNN version; `sm_scale` defaults to 1 / sqrt(D). PyTorch's wrapper of the
    kernel is called directly, because `sdpa_kernel` would add host time to every call.

    With `causal` query i sees the keys j <= i + S_k - S_q, and a query that sees none gives zeros. PyTorch's
    `is_causal` aligns the mask to the first key instead. It is used if the two agree: for S_q = S_k, and for the last
    S_k queries if S_q > S_k (earlier queries see nothing). A single query sees every key, without a mask. For 1 < S_q <
    S_k the mask is explicit, and cuDNN adds it to the scores.

    Raises ValueError for other shapes and dtypes and for different devices, NotImplementedError with PyTorch's reasons
    for cases that the kernel refuses.
    """
    check_attention(q, k, v)
    S_q, S_k = q.shape[2], k.shape[2]
    if not q.is_cuda:
        raise NotImplementedError(f"attention: cuDNN needs an NVIDIA GPU; q is on {q.device}")
    if q.numel() == 0 or S_k == 0:
        return q.new_zeros(q.shape)
    check_alignment("cuDNN", q, k, v)
    if causal and S_q > S_k:
        seeing = attention(q[:, :, S_q - S_k :], k, v, causal=True, sm_scale=sm_scale)
        return F.pad(seeing, (0, 0, S_q - S_k, 0))
    if causal and 1 < S_q < S_k:
        mask = q.new_ones(S_q, S_k, dtype=torch.bool).tril(S_k - S_q)
        return _only_cudnn(q, k, v, mask, is_causal=False, scale=sm_scale).contiguous()
    square = causal and S_q == S_k
    if not can_use_cudnn_attention(SDPAParams(q, k, v, None, 0.0, square, q.shape[1] != k.shape[1])):
        return _only_cudnn(q, k, v, None, is_causal=square, scale=sm_scale)
    o = torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, False, 0.0, square, False, scale=sm_scale)[0]
    return o.contiguous()
