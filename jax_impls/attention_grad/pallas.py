"""The gradients of attention in Pallas for Hopper (Mosaic GPU)."""

from __future__ import annotations

from functools import partial

import jax
from jaxtyping import Array, Float

from jax_impls._runtime.arguments import check_hopper
from jax_impls._runtime.contract import check_attention_grad
from jax_impls.attention.pallas import check_limits, padded_attention

REQUIRES = "sm_90"

Queries = Float[Array, "B H S_q D"]
Keys = Float[Array, "B H_kv S_k D"]


@partial(jax.jit, static_argnames=("causal", "sm_scale"))
def attention_grad(
    q: Queries, k: Keys, v: Keys, do: Queries, *, causal: bool = False, sm_scale: float | None = None
) -> tuple[Queries, Keys, Keys]:
    """(dq, dk, dv): gradients of the sum of do * o, where o is the `attention` of q, k and v, by `jax.vjp`.

    Dtypes, shapes, `causal` and `sm_scale` are those of attention/pallas.py, with D up to 128. Three kernels compute
    the output, the gradients of keys and values, and the gradient of queries. Each computes the scores, so that all
    sums have a fixed order. A query that sees no key has gradient 0.

    Raises ValueError for other shapes and dtypes; NotImplementedError for float32, other D, and on anything but a
    Hopper GPU.
    """
    check_attention_grad(q, k, v, do)
    check_limits("attention_grad", q, 128)
    check_hopper("attention_grad")
    _, gradients = jax.vjp(lambda *operands: padded_attention(*operands, causal, sm_scale), q, k, v)
    dq, dk, dv = gradients(do)
    return dq, dk, dv
