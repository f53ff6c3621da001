"""Sliding-window attention by FlexAttention: torch.compile writes a kernel that skips the blocks that a mask hides."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from torch_impls._runtime.compiled import compiled
from torch_impls._runtime.contract import check_attention, check_window

VENDOR = "FlexAttention (PyTorch)"
REQUIRES = "cuda"
OPTIONS_BEYOND = ("window",)


def _plain(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    o: Tensor = flex_attention(q, k, v, **options)
    return o.contiguous()


_fused = compiled("attention", _plain)


def sees(b: Tensor, h: Tensor, i: Tensor, j: Tensor, *, shift: int, window: int) -> Tensor:
    """True where query i sees key j: its own key is i + shift, and it sees `window` keys up to it."""
    return (j <= i + shift) & (j > i + shift - window)


@lru_cache(maxsize=32)
def blocks(S_q: int, S_k: int, window: int, device: torch.device) -> BlockMask:
    """The blocks of pairs that are visible, partly or wholly; computed once for each size."""
    return create_block_mask(partial(sees, shift=S_k - S_q, window=window), None, None, S_q, S_k, device=str(device))


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

    With `causal` and `window` query i sees that many keys up to i + S_k - S_q. A query that sees none gives zeros. The
    visible blocks are found in the first call of a size. float16 and bfloat16, row-major; scores, softmax and sums are
    float32.

    Raises ValueError for other shapes and dtypes; NotImplementedError without a window, for float32, for strides and
    for small inputs.
    """
    check_attention(q, k, v)
    S_q, S_k = q.shape[2], k.shape[2]
    near = check_window("attention", window, causal, S_k)
    if not near:
        raise NotImplementedError("attention: this FlexAttention takes windows shorter than the keys")
    if q.dtype == torch.float32:
        raise NotImplementedError("attention: this FlexAttention takes float16 and bfloat16; got float32")
    blind = max(0, S_q - S_k)
    mask = blocks(S_q - blind, S_k, near, q.device)
    options: dict[str, Any] = {"block_mask": mask, "scale": sm_scale, "enable_gqa": q.shape[1] != k.shape[1]}
    seeing = _fused(q[:, :, blind:], k, v, **options)
    return F.pad(seeing, (0, 0, blind, 0)) if blind else seeing
