"""The rotary position embedding of queries and keys, by the kernels that XLA generates."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_rope

VENDOR = "XLA"

Queries = Float[Array, "B S H D"]
Keys = Float[Array, "B S H_kv D"]
Angles = Float[Array, "S D/2"]


@partial(jax.jit, static_argnames=("layout", "inverse"))
def rope(
    q: Queries, k: Keys, cos: Angles, sin: Angles, *, layout: str = "halves", inverse: bool = False
) -> tuple[Queries, Keys]:
    """(a, b) -> (a cos - b sin, b cos + a sin) for each pair of features of q and k.

    q (B, S, H, D), k (B, S, H_kv, D), cos and sin (S, D/2). A pair is i and i + D/2 (`halves`), or 2i and 2i + 1
    (`pairs`). `inverse` rotates back.
    float32, float16 or bfloat16; computed in float32 and rounded once. Raises ValueError for other arguments.
    """
    check_rope(q, k, cos, sin, layout=layout)
    c, s = cos.astype(jnp.float32)[:, None], sin.astype(jnp.float32)[:, None]
    s = -s if inverse else s

    def rotated(x: Array) -> Array:
        wide = x.astype(jnp.float32)
        half = x.shape[-1] // 2
        if layout == "halves":
            a, b = wide[..., :half], wide[..., half:]
            return jnp.concatenate([a * c - b * s, b * c + a * s], axis=-1).astype(x.dtype)
        a, b = wide[..., 0::2], wide[..., 1::2]
        return jnp.stack([a * c - b * s, b * c + a * s], axis=-1).reshape(x.shape).astype(x.dtype)

    return rotated(q), rotated(k)
