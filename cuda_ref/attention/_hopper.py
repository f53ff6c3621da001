"""Shared by the attention kernels on tensor cores: argument checks, copies and the launch."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_attention

HEAD_DIMS = (64, 128, 256)

Launch = Callable[[Tensor, Tensor, Tensor, Tensor, bool, float], None]
"""Launches a kernel, as `launch` does, for arguments that have been checked: q, k, v, out, causal, scale_log2."""


def attend(start: Launch, q: Tensor, k: Tensor, v: Tensor, causal: bool, sm_scale: float | None) -> Tensor:
    """Attention by the launcher `start`.

    Shapes: q (B, H, S_q, D), k and v (B, H_kv, S_k, D), D 64, 128 or 256, H a multiple of H_kv: query head h uses key
    head h_kv = h // (H // H_kv). An operand whose rows are not contiguous, or not at multiples of 16 bytes, is copied
    first. The output is contiguous. `sm_scale` defaults to 1 / sqrt(D).
    Causal: aligned to the last key; query i sees the keys j <= i + S_k - S_q. A query that sees no key gives zeros,
    one whose keys all score minus infinity gives NaN. NaN and infinities in hidden keys and values have no effect: the
    kernels for Hopper compute 16 queries with a NaN again, far more slowly.
    Dtypes: float16, bfloat16, the same for all; scores, softmax and sums in float32, weights rounded to 16 bits for
    their product with v.
    Tail: rows beyond the last one of a head are read as zeros; scores of keys beyond it are masked.
    Raises: ValueError for other shapes and dtypes, and for tensors on different devices; NotImplementedError for
    float32, other D, a negative sm_scale, more than 2^30 queries, keys or tiles, and on devices without the kernel's
    instructions; build.CudaError if the launch fails.
    """
    B, H, _, S_q, S_k, D = check_attention(q, k, v)
    check_covered("attention", q, k, HEAD_DIMS, sm_scale)
    if q.numel() > 0 and S_k == 0:
        return torch.zeros_like(q, memory_format=torch.contiguous_format)
    out = q.new_empty(B, H, S_q, D)
    if out.numel() > 0:
        start(q, k, v, out, causal, scales(D, sm_scale)[1])
    return out


def launch(
    source: str, q: Tensor, k: Tensor, v: Tensor, out: Tensor, causal: bool, scale_log2: float, *plan: int
) -> None:  # fmt: skip
    """Launches the kernel of `source`, such as `attention/wgmma`, for checked arguments, none of them empty.

    Rows of `out` are contiguous and begin at multiples of 16 bytes. `plan`: the plan's number and the window, if the
    kernel has them.
    """
    (B, H, S_q, D), (H_kv, S_k) = q.shape, k.shape[1:3]
    q, k, v = (readable(x) for x in (q, k, v))
    build.launch(
        source, source.replace("/", "_"), q.device,
        q, k, v, out, B, H, H_kv, S_q, S_k, D, *strides(q), *strides(k), *strides(v), *strides(out), causal,
        scale_log2, *plan, build.DTYPES[q.dtype],
    )  # fmt: skip


def scales(D: int, sm_scale: float | None) -> tuple[float, float]:
    """sm_scale, and sm_scale * log2(e) for base-2 exponentials. The second is never 0, because 0 times a hidden key's
    -inf is NaN."""
    scale = 1.0 / math.sqrt(D) if sm_scale is None else sm_scale
    return scale, max(scale * math.log2(math.e), 2.0**-126)


def check_covered(operation: str, q: Tensor, k: Tensor, dims: tuple[int, ...], sm_scale: float | None) -> None:
    """Raises NotImplementedError for consistent arguments that the kernels do not cover."""
    (B, H, S_q, D), S_k = q.shape, k.shape[2]
    if q.dtype == torch.float32:
        raise NotImplementedError(f"{operation}: written for float16 and bfloat16; got torch.float32")
    if D not in dims:
        *names, last = map(str, dims)
        raise NotImplementedError(f"{operation}: D must be {', '.join(names)} or {last}; got D={D}")
    if sm_scale is not None and sm_scale < 0:
        raise NotImplementedError(f"{operation}: sm_scale must not be negative; got {sm_scale}")
    if max(S_q, S_k, B * H * -(-S_q // 64), B * k.shape[1] * -(-S_k // 64)) > 2**30:
        raise NotImplementedError(
            f"{operation}: S_q, S_k and the number of tiles of 64 queries or keys of all heads must be at most 2^30; "
            f"got B={B}, H={H}, S_q={S_q}, S_k={S_k}"
        )


def strides(x: Tensor) -> list[int]:
    """Strides of batch entries, heads and rows. A dimension of size 1 gets a valid stride, which TMA requires."""
    spans = [x.shape[1] * x.shape[2] * x.shape[3], x.shape[2] * x.shape[3], x.shape[3]]
    return [span if size == 1 else stride for size, stride, span in zip(x.shape, x.stride(), spans, strict=False)]


def is_readable(x: Tensor) -> bool:
    """True if TMA can read x: rows are contiguous, and each begins at a multiple of 16 bytes."""
    align = 16 // x.element_size()
    aligned = all(stride > 0 and stride % align == 0 for stride in strides(x))
    return x.stride(3) == 1 and aligned and x.data_ptr() % 16 == 0


def readable(x: Tensor) -> Tensor:
    """x, or a contiguous copy where TMA cannot read it."""
    return x if is_readable(x) else x.clone(memory_format=torch.contiguous_format)


def copied(*operands: Tensor) -> str:
    """Returns ` (operands copied)`, for a configuration, if `readable` copies one of them; otherwise an empty text."""
    return "" if all(map(is_readable, operands)) else " (operands copied)"
