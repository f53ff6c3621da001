"""The gradients of attention by cuDNN's fused kernels, through JAX."""

from __future__ import annotations

from functools import partial

import jax
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_attention_grad
from jax_impls.attention.cudnn import attention

VENDOR = "cuDNN through JAX"
REQUIRES = "cuda"
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
    """(dq, dk, dv): gradients of the sum of do * o, where o is the `attention` of q, k and v.

    Dtypes, shapes, `causal`, `sm_scale` and `window` are those of attention/cudnn.py. A query that sees no key has
    gradient 0.

    Raises ValueError for other shapes and dtypes, NotImplementedError for float32, other D, or without a GPU.
    """
    check_attention_grad(q, k, v, do)
    _, gradients = jax.vjp(partial(attention, causal=causal, sm_scale=sm_scale, window=window), q, k, v)
    dq, dk, dv = gradients(do)
    return dq, dk, dv
