"""What the launchers of attention on Hopper's tensor cores share."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.arguments import check_attention
from cuda_ref.attention._decode import DECODING, decode

HEAD_DIMS = (64, 128, 256)

Launch = Callable[[Tensor, Tensor, Tensor, Tensor, bool, float], None]
"""Launches a kernel, as `launch` does, for arguments that have been checked: q, k, v, out, causal, scale_log2."""


def attend(
    start: Launch, q: Tensor, k: Tensor, v: Tensor, causal: bool, sm_scale: float | None, *, decodes: bool = False
) -> Tensor:  # fmt: skip
    """Attention by a launcher, `start`; with `decodes`, by _decode.cu for at most 16 queries.

    Shapes: q (B, H, S_q, D), k and v (B, H_kv, S_k, D), D 64, 128 or 256, H a multiple of H_kv: query head h uses key
    head h_kv = h // (H // H_kv). An operand that TMA cannot read (rows contiguous, each at a multiple of 16 bytes) is
    copied first. The output is contiguous. `sm_scale` defaults to 1 / sqrt(D).
    Causal: aligned to the last key; query i sees the keys j <= i + S_k - S_q. A query that sees no key gives zeros,
    one whose keys all score minus infinity gives NaN. NaN and infinities in hidden keys and values have no effect: 16
    queries with a NaN are computed again, far more slowly.
    Dtypes: float16, bfloat16, the same for all; scores, softmax and sums in float32, weights rounded to 16 bits for
    their product with v.
    Tail: TMA reads zeros beyond the last row of a head; scores of keys beyond it are masked.
    Devices: CUDA, compute capability 9.0.
    Raises: ValueError for other shapes and dtypes, and for two devices; NotImplementedError for float32, other D, a
    negative sm_scale, more than 2^30 queries, keys or tiles, and on other devices; build.CudaError if the launch fails.
    """
    B, H, _, S_q, S_k, D = check_attention(q, k, v)
    check_covered("attention", q, k, HEAD_DIMS, sm_scale)
    if q.numel() > 0 and S_k == 0:
        return torch.zeros_like(q, memory_format=torch.contiguous_format)
    out = q.new_empty(B, H, S_q, D)
    if out.numel() > 0:
        scale = scales(D, sm_scale)[1]
        if decodes and S_q <= DECODING:
            q, k, v = (readable(x) for x in (q, k, v))
            decode(q, k, v, out, [*strides(q), *strides(k), *strides(v)], causal, scale)
        else:
            start(q, k, v, out, causal, scale)
    return out


def launch(
    source: str, q: Tensor, k: Tensor, v: Tensor, out: Tensor, causal: bool, scale_log2: float, *plan: int
) -> None:  # fmt: skip
    """Launches the kernel of a `source`, as `attention/wgmma`, for checked arguments, none of them empty.

    Rows of `out` are contiguous and begin at multiples of 16 bytes. `plan`: its number, if the kernel has several.
    """
    (B, H, S_q, D), (H_kv, S_k) = q.shape, k.shape[1:3]
    q, k, v = (readable(x) for x in (q, k, v))
    build.launch(
        source, source.replace("/", "_"), q.device,
        q, k, v, out, B, H, H_kv, S_q, S_k, D, *strides(q), *strides(k), *strides(v), *strides(out), causal,
        scale_log2, *plan, build.DTYPES[q.dtype],
    )  # fmt: skip


def scales(D: int, sm_scale: float | None) -> tuple[float, float]:
    """sm_scale, and the same for exponents to base 2: not 0, which times the minus infinity of a hidden key is NaN."""
    scale = 1.0 / math.sqrt(D) if sm_scale is None else sm_scale
    return scale, max(scale * math.log2(math.e), 2.0**-126)


def check_covered(operation: str, q: Tensor, k: Tensor, dims: tuple[int, ...], sm_scale: float | None) -> None:
    """Raises NotImplementedError for what the kernels do not cover, of arguments that fit together."""
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
    """Of batch entries, heads and rows. That of a dimension of size 1 has no effect, but TMA wants a valid one."""
    spans = [x.shape[1] * x.shape[2] * x.shape[3], x.shape[2] * x.shape[3], x.shape[3]]
    return [span if size == 1 else stride for size, stride, span in zip(x.shape, x.stride(), spans, strict=False)]


def readable(x: Tensor) -> Tensor:
    """x, or a contiguous copy where TMA cannot read it."""
    align = 16 // x.element_size()
    readable = all(stride > 0 and stride % align == 0 for stride in strides(x))
    if x.stride(3) == 1 and readable and x.data_ptr() % 16 == 0:
        return x
    return x.clone(memory_format=torch.contiguous_format)
