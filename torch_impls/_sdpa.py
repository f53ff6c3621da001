"""What the attention files share: PyTorch's scaled_dot_product_attention restricted to one kernel."""

from __future__ import annotations

import warnings

import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel


def check_alignment(kernel: str, q: Tensor, k: Tensor, v: Tensor) -> None:
    """Raises NotImplementedError for GPU tensors whose addresses are no multiples of 16 bytes."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.is_cuda and x.data_ptr() % 16:
            raise NotImplementedError(f"attention: {kernel} needs {name} to begin at a multiple of 16 bytes")


def only_kernel(
    backend: SDPBackend,
    kernel: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    *,
    is_causal: bool,
    scale: float | None,
) -> Tensor:
    """scaled_dot_product_attention by `backend` alone.

    Raises NotImplementedError with PyTorch's reasons if that kernel refuses; `kernel` is its name in the message.
    """
    with warnings.catch_warnings(record=True) as caught, sdpa_kernel(backend):
        warnings.simplefilter("always")
        try:
            return F.scaled_dot_product_attention(
                q, k, v, mask, is_causal=is_causal, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
            )
        except RuntimeError as error:
            if "No available kernel" not in str(error) and "No viable backend" not in str(error):
                raise
            reasons = [str(warning.message).partition(" (Triggered internally")[0] for warning in caught]
            raise NotImplementedError(f"attention: {kernel} refuses: {' '.join(reasons) or error}") from error
