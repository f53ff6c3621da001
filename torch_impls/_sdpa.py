"""What the attention files share: PyTorch's scaled_dot_product_attention restricted to one kernel."""

from __future__ import annotations

import warnings

import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel


def aligned(x: Tensor) -> bool:
    """Whether every row of x begins at a multiple of 16 bytes, which the fused kernels read at a time.

    They do not check it: a misaligned address ends the process's CUDA context. Of rows that are no multiple of 16 bytes
    long only the first counts: PyTorch pads or refuses them itself.
    """
    if x.shape[-1] * x.element_size() % 16 != 0:
        return bool(x.data_ptr() % 16 == 0)
    strides = (stride for size, stride in zip(x.shape[:-1], x.stride()[:-1], strict=True) if size > 1)
    return bool(x.data_ptr() % 16 == 0) and all(stride * x.element_size() % 16 == 0 for stride in strides)


def check_alignment(kernel: str, q: Tensor, k: Tensor, v: Tensor) -> None:
    """Raises NotImplementedError for GPU tensors that are not `aligned`."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.is_cuda and not aligned(x):
            raise NotImplementedError(
                f"attention: {kernel} needs {name}'s rows to begin at multiples of 16 bytes; got strides {x.stride()} "
                f"at an address that is {x.data_ptr() % 16} beyond one"
            )


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
