"""PyTorch's scaled_dot_product_attention restricted to one kernel, and its gradients: shared by the attention files."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel


def aligned(x: Tensor) -> bool:
    """True if every row of x begins at a multiple of 16 bytes: the fused kernels read 16 bytes at a time.

    The kernels do not check this: a misaligned address ends the process's CUDA context. If the length of a row is not a
    multiple of 16 bytes, only the first row counts: PyTorch pads or refuses such rows itself.
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
                f"attention: {kernel} needs {name}'s rows to begin at multiples of 16 bytes; got strides {x.stride()}, "
                f"the first row {x.data_ptr() % 16} bytes past such a multiple"
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

    Raises NotImplementedError with PyTorch's reasons if that kernel refuses. `kernel` is its name in the message.
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


@contextmanager
def unfused_in_float32(q: Tensor) -> Iterator[None]:
    """Context in which PyTorch's attention of tensors like q uses its unfused kernels, all in float32.

    PyTorch widens 16-bit inputs for these kernels, unless it may reduce in 16 bits. The settings are restored.
    """
    cuda = torch.backends.cuda
    flags = cuda.matmul if q.is_cuda else torch.backends.mkldnn.matmul
    precision, reduction = flags.fp32_precision, cuda.fp16_bf16_reduction_math_sdp_allowed()
    flags.fp32_precision = "ieee"
    cuda.allow_fp16_bf16_reduction_math_sdp(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        flags.fp32_precision = precision
        cuda.allow_fp16_bf16_reduction_math_sdp(reduction)


@contextmanager
def sums_in_float32(x: Tensor) -> Iterator[None]:
    """Context in which PyTorch multiplies tensors like x in their own dtype, and adds the products only in float32.

    On a GPU cuBLAS may otherwise add parts of a sum in 16 bits. The settings are restored.
    """
    if x.dtype == torch.float32:
        with unfused_in_float32(x):
            yield
    elif x.is_cuda:
        name = "allow_fp16_reduced_precision_reduction"
        name = name if x.dtype == torch.float16 else name.replace("fp16", "bf16")
        flags = torch.backends.cuda.matmul
        before = getattr(flags, name)
        setattr(flags, name, False)
        try:
            yield
        finally:
            setattr(flags, name, before)
    else:
        yield


def lower_right(q: Tensor, k: Tensor, *, causal: bool, window: int = 0) -> Tensor | None:
    """The mask that aligns causal attention to the last key; None if PyTorch's `is_causal` gives the same.

    window: keys that a query sees up to its own; 0 for all.
    """
    S_q, S_k = q.shape[2], k.shape[2]
    if window:
        return q.new_ones(S_q, S_k, dtype=torch.bool).tril(S_k - S_q).triu(S_k - S_q - window + 1)
    return q.new_ones(S_q, S_k, dtype=torch.bool).tril(S_k - S_q) if causal and 1 < S_q < S_k else None


def gradients(
    attend: Callable[[Tensor, Tensor, Tensor], Tensor], q: Tensor, k: Tensor, v: Tensor, do: Tensor, *, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """(dq, dk, dv) of `attend` by autograd, contiguous. The first queries, if they see no key, are not passed to it."""
    blind = max(0, q.shape[2] - k.shape[2]) if causal else 0
    if q.numel() == 0 or k.numel() == 0:
        return q.new_zeros(q.shape), k.new_zeros(k.shape), v.new_zeros(v.shape)
    leaves = [x.detach().requires_grad_() for x in (q[:, :, blind:], k, v)]
    with torch.enable_grad():
        o = attend(*leaves)
    dq, dk, dv = torch.autograd.grad(o, leaves, do[:, :, blind:])
    if blind:
        dq = F.pad(dq, (0, 0, blind, 0))
    return dq.contiguous(), dk.contiguous(), dv.contiguous()
