"""Blocks of attention over a split sequence: positions of the rows of a rank, and sums over one block of keys."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jax_impls._runtime.contract import working
from jax_impls._runtime.shares import zigzag


class Sums(NamedTuple):
    """Sums over keys, in float32, relative to the largest score `m`."""

    m: Float[Array, "B H_kv G S 1"]
    l: Float[Array, "B H_kv G S 1"]  # noqa: E741 (the field's name for it)
    acc: Float[Array, "B H_kv G S D"]

    def plus(self, other: Sums) -> Sums:
        """Sums over the keys of both."""
        m = jnp.maximum(self.m, other.m)
        origin = jnp.where(m == -jnp.inf, 0.0, m)
        of_self, of_other = jnp.exp(self.m - origin), jnp.exp(other.m - origin)
        return Sums(m, self.l * of_self + other.l * of_other, self.acc * of_self + other.acc * of_other)

    def result(self, q: Float[Array, "B H S D"]) -> Float[Array, "B H S D"]:
        return (self.acc / self.l).reshape(q.shape).astype(q.dtype)


def positions(S: int, ranks: int, rank: Int[Array, ""]) -> Int[Array, S]:
    """The places of a rank's rows in the whole sequence, if causal shares are balanced (zigzag)."""
    i, half = jnp.arange(S), S // 2
    low, high = zigzag(rank, ranks, S)
    return jnp.where(i < half, low + i, high + i - half)


def attended(
    q: Float[Array, "B H S D"],
    kv: Float[Array, "2 B H_kv S_k D"],
    visible: Array | None,
) -> Sums:
    """The sums of q over the keys and values kv. visible: the mask (S, S_k); None if every key is visible."""
    B, H, S, D = q.shape
    k, v = kv
    H_kv = k.shape[1]

    def product(spec: str, x: Array, y: Array) -> Array:
        precision = lax.Precision.HIGHEST if q.dtype == jnp.float32 else None
        return jnp.einsum(spec, x, y, precision=precision, preferred_element_type=working(q))

    s = product("bhgqd,bhkd->bhgqk", q.reshape(B, H_kv, H // H_kv, S, D), k) * D**-0.5
    if visible is not None:
        s = jnp.where(visible, s, -jnp.inf)
    m = s.max(axis=-1, keepdims=True)
    p = jnp.exp(s - jnp.where(m == -jnp.inf, 0.0, m))
    return Sums(m, p.sum(axis=-1, keepdims=True), product("bhgqk,bhkd->bhgqd", p.astype(v.dtype), v))


def seen(q_positions: Array, k_positions: Array) -> Array:
    """True where a query sees a key under the causal mask, (S, S_k)."""
    visible: Array = q_positions[:, None] >= k_positions[None, :]
    return visible
