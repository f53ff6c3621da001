"""Attention in Pallas for Hopper (Mosaic GPU), with its gradient."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jax_impls._runtime.arguments import check_hopper
from jax_impls._runtime.contract import check_attention
from jax_impls.attention._pallas import CONFIGS, forward
from jax_impls.attention_grad._pallas import backward

REQUIRES = "sm_90"

Queries = Float[Array, "B H S_q D"]
Keys = Float[Array, "B H_kv S_k D"]


@partial(jax.jit, static_argnames=("causal", "sm_scale"))
def attention(q: Queries, k: Keys, v: Keys, *, causal: bool = False, sm_scale: float | None = None) -> Queries:
    """o[b, h, i] = sum over visible keys j of softmax_j(q[b, h, i] . k[b, h_kv, j] * sm_scale) v[b, h_kv, j].

    Dtypes: float16 and bfloat16 with float32 scores, softmax and sums. The numerators exp(s - max) are rounded to v's
    dtype for the second product, and the output is rounded once. H is a multiple of H_kv: query head h reads key head
    h // (H // H_kv). D is up to 256, and for a gradient up to 128; XLA pads it to 64, 128 or 256. `sm_scale` defaults
    to 1 / sqrt(D). With `causal` query i sees the keys j <= i + S_k - S_q; a query that sees none gives zeros, one
    whose keys all score minus infinity gives NaN.

    Raises ValueError for other shapes and dtypes; NotImplementedError for float32, other D, and on anything but a
    Hopper GPU.
    """
    check_attention(q, k, v)
    check_limits("attention", q, max(CONFIGS))
    check_hopper("attention")
    return padded_attention(q, k, v, causal, sm_scale)


def check_limits(operation: str, q: jax.Array, max_d: int) -> None:
    """Raises NotImplementedError for dtypes and D that the kernels do not cover."""
    if q.dtype == jnp.float32:
        raise NotImplementedError(f"{operation}: the kernel takes float16 and bfloat16; got float32")
    if q.shape[3] > max_d:
        raise NotImplementedError(f"{operation}: the kernel takes D up to {max_d}; got D={q.shape[3]}")


def padded_attention(q: jax.Array, k: jax.Array, v: jax.Array, causal: bool, sm_scale: float | None) -> jax.Array:
    """The output, with D padded to a width that the kernels support."""
    D = q.shape[3]
    if q.size == 0 or k.shape[2] == 0:
        return jnp.zeros(q.shape, q.dtype)
    if sm_scale is None:
        sm_scale = 1.0 / math.sqrt(D)
    if sm_scale <= 0.0:  # the kernel expects the largest product to be the largest score
        q, sm_scale = q * math.copysign(float(sm_scale != 0.0), sm_scale), abs(sm_scale) or 1.0
    width = next(width for width in CONFIGS if width >= D)
    q, k, v = (jnp.pad(x, ((0, 0), (0, 0), (0, 0), (0, width - D))) for x in (q, k, v))
    return _attention(causal, sm_scale, q, k, v)[..., :D]


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attention(causal: bool, sm_scale: float, q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return forward(q, k, v, causal, sm_scale)[0]


def _attention_forward(causal: bool, sm_scale: float, *operands: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    check_limits("attention's gradient", operands[0], 128)
    o, log_sums = forward(*operands, causal, sm_scale)
    return o, (*operands, o, log_sums)


def _attention_backward(
    causal: bool, sm_scale: float, kept: tuple[jax.Array, ...], do: jax.Array
) -> tuple[jax.Array, ...]:
    return backward(*kept, do, causal, sm_scale)


_attention.defvjp(_attention_forward, _attention_backward)
