"""The gradients of `attention`, derived by JAX and compiled by XLA, with the S_q x S_k scores in memory."""

from __future__ import annotations

from functools import partial

import jax
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_attention_grad
from jax_impls.attention import attention

VENDOR = "XLA"
DTYPES_BEYOND = ("float64",)
OPTIONS_BEYOND = ("window",)

Queries = Float[Array, "B H S_q D"]
Keys = Float[Array, "B H_kv S_k D"]


@partial(jax.jit, static_argnames=("causal", "sm_scale", "window"))
def attention_grad(
    q: Queries,
    k: Keys,
    v: Keys,
    do: Queries,
    *,
    causal: bool = False,
    sm_scale: float | None = None,
    window: int | None = None,
) -> tuple[Queries, Keys, Keys]:
    """(dq, dk, dv): gradients of the sum of do * o, where o is the `attention` of q, k and v, by `jax.vjp`.

    Dtypes, shapes, `causal`, `sm_scale` and `window` are those of `attention`. In 16 bits the gradient of the
    probabilities is rounded too, because they are an operand of a product. A query that sees no key has gradient 0.

    Raises ValueError for other shapes and dtypes.
    """
    check_attention_grad(q, k, v, do, float64=True)
    _, gradients = jax.vjp(partial(attention, causal=causal, sm_scale=sm_scale, window=window), q, k, v)
    dq, dk, dv = gradients(do)
    return dq, dk, dv
