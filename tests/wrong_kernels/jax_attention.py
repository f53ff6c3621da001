"""softmax(Q K^T / sqrt(D)) V in JAX, written out, with mistakes in softmax, mask and heads."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from wrong_kernels import Wrong

MISTAKES = {
    "no_maximum": Wrong(
        "the maximum is not subtracted before the exponential",
        "not finite",
        (1, 1, 1, 40, 40, 64),
        inputs="large_logits",
    ),
    "heads_tiled": Wrong("key heads are repeated as 0 1 0 1, not as 0 0 1 1", "value", (1, 4, 2, 32, 32, 64)),
    "masked_by_a_number": Wrong(
        "hidden scores are -1e9: a query that sees no key gives the mean of V",
        "value",
        (1, 1, 1, 40, 20, 64),
        options={"causal": True},
    ),
    "masked_after_softmax": Wrong(
        "hidden keys still count in the denominator", "value", (1, 1, 1, 40, 40, 64), options={"causal": True}
    ),
    "probabilities_in_float16": Wrong(
        "probabilities of float32 attention are rounded to float16", "value", (1, 1, 1, 40, 40, 64)
    ),
}


def make(mistake: str):
    product = partial(jnp.einsum, precision=lax.Precision.HIGHEST)

    @partial(jax.jit, static_argnames="causal")
    def attention(q: jax.Array, k: jax.Array, v: jax.Array, *, causal: bool = False) -> jax.Array:
        (_, H, S_q, D), (H_kv, S_k) = q.shape, k.shape[1:3]
        if mistake == "heads_tiled":
            k, v = (jnp.tile(x, (1, H // H_kv, 1, 1)) for x in (k, v))
        else:
            k, v = (jnp.repeat(x, H // H_kv, axis=1) for x in (k, v))
        s = product("bhqd,bhkd->bhqk", q, k) * D**-0.5
        seen = jnp.tri(S_q, S_k, S_k - S_q, dtype=bool) if causal else jnp.ones((S_q, S_k), bool)
        if mistake != "masked_after_softmax":
            s = jnp.where(seen, s, -1e9 if mistake == "masked_by_a_number" else -jnp.inf)
        highest = s.max(axis=-1, keepdims=True)
        shift = 0.0 if mistake == "no_maximum" else jnp.where(highest == -jnp.inf, 0.0, highest)
        p = jnp.exp(s - shift)
        total = p.sum(axis=-1, keepdims=True)
        p = p / jnp.where(total == 0.0, 1.0, total)
        if mistake == "masked_after_softmax":
            p = jnp.where(seen, p, 0.0)
        if mistake == "probabilities_in_float16":
            p = lax.reduce_precision(p, exponent_bits=5, mantissa_bits=10)
        return product("bhqk,bhkd->bhqd", p, v)

    return attention
