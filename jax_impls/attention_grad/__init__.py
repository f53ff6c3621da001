"""The gradients of `attention`, derived by JAX and compiled by XLA, with the S_q x S_k scores in memory."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_attention_grad
from jax_impls.attention import attention

VENDOR = "XLA"
DTYPES_BEYOND = ("float8_e4m3fn", "float64")
OPTIONS_BEYOND = ("window",)

Queries = Float[Array, "B H S_q D"]
Keys = Float[Array, "B H_kv S_k D"]
Scale = Float[Array, ""]


@partial(jax.jit, static_argnames=("causal", "sm_scale", "window"))
def attention_grad(
    q: Queries,
    k: Keys,
    v: Keys,
    do: Queries,
    scale_q: Scale | None = None,
    scale_k: Scale | None = None,
    scale_v: Scale | None = None,
    scale_do: Scale | None = None,
    *,
    causal: bool = False,
    sm_scale: float | None = None,
    window: int | None = None,
) -> tuple[Queries, Keys, Keys]:
    """(dq, dk, dv): gradients of the sum of do * o, where o is the `attention` of q, k and v, by `jax.vjp`.

    Dtypes, shapes, `causal`, `sm_scale` and `window` are those of `attention`. In 16 bits the gradient of the
    probabilities is rounded too, because they are an operand of a product. A query that sees no key has gradient 0.

    float8_e4m3fn: q, k, v and do are each multiplied by a scale, and the gradients of the scaled operands are bfloat16.
    The products are computed in bfloat16, to which scaled q and k are rounded.

    Raises ValueError for other shapes and dtypes.
    """
    check_attention_grad(q, k, v, do, (scale_q, scale_k, scale_v, scale_do), float64=True)
    if scale_q is not None and scale_k is not None and scale_v is not None and scale_do is not None:
        q, k = ((x.astype(jnp.float32) * scale).astype(jnp.bfloat16) for x, scale in ((q, scale_q), (k, scale_k)))
        v, do = v.astype(jnp.bfloat16), do.astype(jnp.bfloat16)
        dq, dk, dv = attention_grad(q, k, v, do, causal=causal, sm_scale=sm_scale, window=window)
        dq, dk, dv = dq * (scale_v * scale_do), dk * (scale_v * scale_do), dv * scale_do
        return dq.astype(jnp.bfloat16), dk.astype(jnp.bfloat16), dv.astype(jnp.bfloat16)
    _, gradients = jax.vjp(partial(attention, causal=causal, sm_scale=sm_scale, window=window), q, k, v)
    dq, dk, dv = gradients(do)
    return dq, dk, dv
