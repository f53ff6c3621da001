"""The rotary position embedding of queries and keys, by torch's elementwise kernels."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.contract import check_rope

VENDOR = "PyTorch"

Queries = Float[Tensor, "B S H D"]
Keys = Float[Tensor, "B S H_kv D"]
Angles = Float[Tensor, "S D/2"]


def plain(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, layout: str, inverse: bool) -> tuple[Tensor, Tensor]:
    """The formula in float32, rounded once."""
    c, s = cos.float()[:, None], sin.float()[:, None]
    s = -s if inverse else s

    def rotated(x: Tensor) -> Tensor:
        wide = x.float()
        if layout == "halves":
            a, b = wide.chunk(2, dim=-1)
            return torch.cat([a * c - b * s, b * c + a * s], dim=-1).to(x.dtype)
        a, b = wide[..., 0::2], wide[..., 1::2]
        return torch.stack([a * c - b * s, b * c + a * s], dim=-1).flatten(-2).to(x.dtype)

    return rotated(q), rotated(k)


def rope(
    q: Queries, k: Keys, cos: Angles, sin: Angles, *, layout: str = "halves", inverse: bool = False
) -> tuple[Queries, Keys]:
    """(a, b) -> (a cos - b sin, b cos + a sin) for each pair of features of q and k.

    q (B, S, H, D), k (B, S, H_kv, D), cos and sin (S, D/2), any strides; the results are row-major. A pair is i and
    i + D/2 (`halves`), or 2i and 2i + 1 (`pairs`). `inverse` rotates back.
    float32, float16 or bfloat16; computed in float32 and rounded once. Raises ValueError for other arguments.
    """
    check_rope(q, k, cos, sin, layout=layout)
    rotated_q, rotated_k = plain(q, k, cos, sin, layout, inverse)
    return rotated_q.contiguous(), rotated_k.contiguous()
