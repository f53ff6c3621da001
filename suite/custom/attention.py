"""Attention of 16-bit tensors as fused kernels compute it: in float32, with weights rounded to 16 bits."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

NARROW = (torch.float16, torch.bfloat16)


class FusedAttention(TorchFunctionMode):  # type: ignore[misc]
    """While entered, in this thread, `scaled_dot_product_attention` of 16-bit tensors rounds its weights.

    PyTorch's own formula keeps them in float32, which no fast kernel does.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is functional.scaled_dot_product_attention:
            tensors = [each for each in (*args, *kwargs.values()) if isinstance(each, torch.Tensor)]
            if tensors[0].dtype in NARROW:
                return _attention(*args, **kwargs)
        return func(*args, **kwargs)


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """softmax(query keyᵀ scale + mask) value; 0 for a query whose keys are all hidden. Without dropout."""
    q, k, v = query.float(), key.float(), value.float()
    if enable_gqa:
        k, v = (each.repeat_interleave(q.shape[-3] // each.shape[-3], -3) for each in (k, v))
    scores = (q @ k.mT) * (scale if scale is not None else 1.0 / math.sqrt(q.shape[-1]))
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    hidden = (scores == -math.inf).all(-1, keepdim=True)
    weights = torch.softmax(scores, -1).masked_fill(hidden, 0.0).to(query.dtype)
    return (weights.float() @ v).to(query.dtype)
