"""The rotary position embedding of queries and keys."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from numpy_impls._runtime.contract import check_rope

Queries = Float[np.ndarray, "B S H D"]
Keys = Float[np.ndarray, "B S H_kv D"]
Angles = Float[np.ndarray, "S D/2"]


@np.errstate(over="ignore", under="ignore", invalid="ignore")
def rope(
    q: Queries, k: Keys, cos: Angles, sin: Angles, *, layout: str = "halves", inverse: bool = False
) -> tuple[Queries, Keys]:
    """(a, b) -> (a cos - b sin, b cos + a sin) for each pair of features of q and k.

    q (B, S, H, D), k (B, S, H_kv, D), cos and sin (S, D/2), any strides; the results are row-major. A pair is i and
    i + D/2 (`halves`), or 2i and 2i + 1 (`pairs`). `inverse` rotates back.
    float32, float16 or bfloat16; computed in float64 and rounded once. Raises ValueError for other arguments.
    """
    check_rope(q, k, cos, sin, layout=layout)
    c, s = cos.astype(np.float64)[:, None], sin.astype(np.float64)[:, None] * (-1.0 if inverse else 1.0)
    return _rotated(q, c, s, layout), _rotated(k, c, s, layout)


def _rotated(x: np.ndarray, c: np.ndarray, s: np.ndarray, layout: str) -> np.ndarray:
    half = x.shape[-1] // 2
    at = (slice(0, half), slice(half, None)) if layout == "halves" else (slice(0, None, 2), slice(1, None, 2))
    a, b = (x[..., each].astype(np.float64) for each in at)
    out = np.empty(x.shape, x.dtype)
    out[..., at[0]] = a * c - b * s
    out[..., at[1]] = b * c + a * s
    return out
