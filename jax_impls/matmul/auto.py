"""Matrix product in Pallas: `jax/pallas` or `jax/elements`, by predicted times, copies included."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jax_impls.matmul._configs import Config, ElementsConfig, choose_config
from jax_impls.matmul._limits import check_products, described, multiprocessors
from jax_impls.matmul.elements import matmul_by_elements
from jax_impls.matmul.pallas import padded_matmul

REQUIRES = "sm_90"


def choose(a: jax.Array, b: jax.Array) -> Config:
    """The configuration with the shortest predicted time, for either kernel."""
    return choose_config(a.shape[0], b.shape[1], a.shape[1], a.dtype.itemsize, multiprocessors())


def config(a: jax.Array, b: jax.Array, *, precision: str = "ieee") -> str:
    """Kernel, tile and parts of K, such as `pallas 256x256 parts=1` or `elements 64x64 parts=2`."""
    return described(choose(a, b))


@partial(jax.jit, static_argnames="precision")
def matmul(a: Float[Array, "M K"], b: Float[Array, "K N"], *, precision: str = "ieee") -> Float[Array, "M N"]:
    """c[i, j] = sum over k of a[i, k] b[k, j]; K = 0 gives zeros.

    Dtypes, precisions and errors are those of `jax/pallas`.
    """
    check_products(a, b, precision)
    if a.size * b.size == 0:
        return jnp.zeros((a.shape[0], b.shape[1]), a.dtype)
    chosen = choose(a, b)
    if isinstance(chosen, ElementsConfig):
        return matmul_by_elements(a, b, chosen)
    return padded_matmul(a, b, chosen, multiprocessors())
